//! Owns the promises about a body and their check: its length, Content-MD5, `x-amz-checksum-*`
//! headers and trailing checksums. Does not read bodies.
//!
//! s3s 0.14.1 verifies signatures and the payload's SHA-256, and none of these.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderMap;
use md5::{Digest, Md5};
use s3s::checksum::ChecksumHasher;
use s3s::{S3Error, S3ErrorCode, S3Result};
use sha2::Sha512;

use super::body_fault::BodyFault;
use super::chunked::ProvenTrailers;

/// Checksum algorithms that are verified here, by header name, with the length of their digests.
const ALGORITHMS: [(&str, usize); 7] = [
    ("x-amz-checksum-crc32", 4),
    ("x-amz-checksum-crc32c", 4),
    ("x-amz-checksum-crc64nvme", 8),
    ("x-amz-checksum-sha1", 20),
    ("x-amz-checksum-sha256", 32),
    ("x-amz-checksum-sha512", 64),
    (MD5_SUM, 16),
];
const MD5_SUM: &str = "x-amz-checksum-md5";
/// Checksums that only the UFS can verify. They are passed on unchanged, in headers alone.
const OF_UFS: [(&str, usize); 3] = [
    ("x-amz-checksum-xxhash3", 8),
    ("x-amz-checksum-xxhash64", 8),
    ("x-amz-checksum-xxhash128", 16),
];
/// Headers of the same family that carry no digest.
const NOT_DIGESTS: [&str; 3] =
    ["x-amz-checksum-algorithm", "x-amz-checksum-type", "x-amz-checksum-mode"];

/// The promises of one request, with the running hashes.
pub struct BodyChecks {
    declared: u64,
    md5: Option<(Md5, Vec<u8>)>,
    hasher: ChecksumHasher,
    hashes: bool,
    /// Algorithms that s3s has no hasher for.
    sha512: Option<Sha512>,
    md5_sum: Option<Md5>,
    expected: Vec<(&'static str, Vec<u8>)>,
    trailers: Vec<&'static str>,
    trailing: Option<ProvenTrailers>,
}

impl BodyChecks {
    /// Reads the promises from the headers. Refuses a promise that can't be understood at once.
    pub fn from_headers(
        declared: u64,
        headers: &HeaderMap,
        trailing: Option<ProvenTrailers>,
    ) -> S3Result<Self> {
        let mut checks = Self {
            declared,
            md5: None,
            hasher: ChecksumHasher::default(),
            hashes: false,
            sha512: None,
            md5_sum: None,
            expected: Vec::new(),
            trailers: Vec::new(),
            trailing,
        };
        if let Some(value) = headers.get("content-md5") {
            let digest = BASE64.decode(value.as_bytes()).ok().filter(|digest| digest.len() == 16);
            let digest = digest.ok_or_else(|| {
                S3Error::with_message(
                    S3ErrorCode::InvalidDigest,
                    "The Content-MD5 you specified is not valid.",
                )
            })?;
            checks.md5 = Some((Md5::new(), digest));
        }
        for (name, value) in
            headers.iter().filter(|(name, _)| name.as_str().starts_with("x-amz-checksum-"))
        {
            if NOT_DIGESTS.contains(&name.as_str()) {
                continue;
            }
            let of_ufs = OF_UFS.into_iter().find(|(known, _)| *known == name.as_str());
            let (name, bytes) = of_ufs.map_or_else(|| find_algorithm(name.as_str()), Ok)?;
            let digest =
                BASE64.decode(value.as_bytes()).ok().filter(|digest| digest.len() == bytes);
            let digest = digest
                .ok_or_else(|| invalid_request(format!("Value for {name} header is invalid.")))?;
            if of_ufs.is_some() {
                continue;
            }
            checks.hash_with(name);
            checks.expected.push((name, digest));
        }
        checks.read_trailer_names(headers)?;
        Ok(checks)
    }

    fn read_trailer_names(&mut self, headers: &HeaderMap) -> S3Result<()> {
        for value in headers.get_all("x-amz-trailer") {
            let names = value.to_str().map_err(|_| {
                invalid_request("Value for x-amz-trailer header is invalid.".to_owned())
            })?;
            for name in names
                .split(',')
                .map(|name| name.trim().to_ascii_lowercase())
                .filter(|name| !name.is_empty())
            {
                let (name, _) = find_algorithm(&name)?;
                self.hash_with(name);
                self.trailers.push(name);
            }
        }
        Ok(())
    }

    /// Returns the algorithm of trailing checksums, by its name in `x-amz-sdk-checksum-algorithm`.
    /// `None`, too, for those that the UFS's client can't compute on the way: they are checked
    /// here, and not stored.
    pub fn trailing_algorithm(&self) -> Option<&'static str> {
        self.trailers.iter().find_map(|name| match *name {
            "x-amz-checksum-crc32" => Some("CRC32"),
            "x-amz-checksum-crc32c" => Some("CRC32C"),
            "x-amz-checksum-crc64nvme" => Some("CRC64NVME"),
            "x-amz-checksum-sha1" => Some("SHA1"),
            "x-amz-checksum-sha256" => Some("SHA256"),
            _ => None,
        })
    }

    fn hash_with(&mut self, name: &'static str) {
        use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
        self.hashes = true;
        match name {
            "x-amz-checksum-crc32" => self.hasher.crc32 = Some(Crc32::new()),
            "x-amz-checksum-crc32c" => self.hasher.crc32c = Some(Crc32c::new()),
            "x-amz-checksum-crc64nvme" => self.hasher.crc64nvme = Some(Crc64Nvme::new()),
            "x-amz-checksum-sha1" => self.hasher.sha1 = Some(Sha1::new()),
            "x-amz-checksum-sha512" => self.sha512 = Some(Sha512::new()),
            MD5_SUM => self.md5_sum = Some(Md5::new()),
            _ => self.hasher.sha256 = Some(Sha256::new()),
        }
    }

    /// Hashes the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some((md5, _)) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(md5) = &mut self.md5_sum {
            md5.update(bytes);
        }
        if let Some(sha512) = &mut self.sha512 {
            sha512.update(bytes);
        }
        if self.hashes {
            self.hasher.update(bytes);
        }
    }

    /// Compares the hashes, at the body's end.
    pub fn finish(mut self, got: u64) -> Result<(), BodyFault> {
        if got != self.declared {
            return Err(BodyFault::Length { got, declared: self.declared });
        }
        if let Some((md5, expected)) = self.md5.take()
            && md5.finalize().as_slice() != expected
        {
            return Err(BodyFault::Md5);
        }
        for &name in &self.trailers {
            let digest = self.trailing.as_ref().and_then(|trailing| {
                let trailers = trailing.lock();
                trailers.as_ref()?.get(name).and_then(|value| BASE64.decode(value.as_bytes()).ok())
            });
            self.expected.push((name, digest.ok_or(BodyFault::Trailer { name })?));
        }
        let sums = self.hasher.finalize();
        let sha512 = self.sha512.map(|hasher| BASE64.encode(hasher.finalize()));
        let md5_sum = self.md5_sum.map(|hasher| BASE64.encode(hasher.finalize()));
        for (name, expected) in self.expected {
            let computed = match name {
                "x-amz-checksum-crc32" => &sums.checksum_crc32,
                "x-amz-checksum-crc32c" => &sums.checksum_crc32c,
                "x-amz-checksum-crc64nvme" => &sums.checksum_crc64nvme,
                "x-amz-checksum-sha1" => &sums.checksum_sha1,
                "x-amz-checksum-sha512" => &sha512,
                MD5_SUM => &md5_sum,
                _ => &sums.checksum_sha256,
            };
            let computed = computed.as_ref().and_then(|value| BASE64.decode(value).ok());
            if computed.as_deref() != Some(&expected[..]) {
                return Err(BodyFault::Checksum { name });
            }
        }
        Ok(())
    }
}

fn find_algorithm(name: &str) -> S3Result<(&'static str, usize)> {
    // An unknown digest would be neither checked here nor sent on. Refusing it is better than
    // dropping it silently.
    ALGORITHMS.into_iter().find(|(known, _)| *known == name).ok_or_else(|| {
        S3Error::with_message(
            S3ErrorCode::NotImplemented,
            format!("the checksum {name} is not supported here"),
        )
    })
}

fn invalid_request(message: String) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn verdict(headers: &[(&'static str, &'static str)], body: &[u8]) -> Result<(), BodyFault> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let mut checks = BodyChecks::from_headers(body.len() as u64, &headers, None).unwrap();
        checks.update(&body[..2]);
        checks.update(&body[2..]);
        checks.finish(body.len() as u64)
    }

    /// Digests of "hello", made with python's hashlib, zlib and the CRC catalogue's algorithms.
    const HELLO: [(&str, &str); 7] = [
        ("x-amz-checksum-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
        (
            "x-amz-checksum-sha512",
            "m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDEZjR1wuXDre9G9zvN7AQw==",
        ),
        ("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
        ("x-amz-checksum-crc32", "NhCmhg=="),
        ("x-amz-checksum-crc32c", "mnG7TA=="),
        ("x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00="),
        ("x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="),
    ];

    #[test]
    fn right_digests_pass_and_fail_over_another_body() {
        for header in HELLO {
            assert_eq!(verdict(&[header], b"hello"), Ok(()), "{header:?}");
            assert!(verdict(&[header], b"hellO").is_err(), "{header:?}");
        }
        assert_eq!(verdict(&HELLO, b"hello"), Ok(()));
    }

    #[test]
    fn an_announced_trailer_that_never_came_fails() {
        let fault = verdict(&[("x-amz-trailer", "x-amz-checksum-crc32")], b"hello").unwrap_err();
        assert_eq!(fault, BodyFault::Trailer { name: "x-amz-checksum-crc32" });
    }

    #[test]
    fn promises_that_make_no_sense_are_refused_before_the_body() {
        for (name, value, code) in [
            ("content-md5", "nonsense", "InvalidDigest"),
            ("x-amz-checksum-crc32", "AAAA", "InvalidRequest"),
            ("x-amz-checksum-xxhash", "AAAA", "NotImplemented"),
            ("x-amz-checksum-xxhash64", "AAAA", "InvalidRequest"),
            ("x-amz-trailer", "x-amz-checksum-xxhash64", "NotImplemented"),
            ("x-amz-trailer", "x-amz-checksum-nothing", "NotImplemented"),
        ] {
            let headers: HeaderMap =
                [(name.parse().unwrap(), value.parse().unwrap())].into_iter().collect();
            let error = BodyChecks::from_headers(0, &headers, None).err().unwrap();
            assert_eq!(error.code().as_str(), code, "{name}");
        }
    }

    #[test]
    fn a_wrong_length_is_named() {
        let checks = BodyChecks::from_headers(5, &HeaderMap::new(), None).unwrap();
        assert_eq!(checks.finish(4), Err(BodyFault::Length { got: 4, declared: 5 }));
    }
}
