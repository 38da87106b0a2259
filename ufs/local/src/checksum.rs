//! Owns digests of bodies: the MD5 behind ETags, S3's checksums, and those derived from parts.
//! Verifies claims. Reads no request itself.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, checksum_combine};
use http::HeaderMap;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::{S3Error, S3Result, s3_error};
use serde::{Deserialize, Serialize};

/// S3's additional checksum algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum S3ChecksumAlgorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

/// The kind of a multipart object's checksum: of its bytes, or of its parts' checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChecksumKind {
    FullObject,
    Composite,
}

impl S3ChecksumAlgorithm {
    /// All algorithms, in the order of their discriminants.
    pub const ALL: [S3ChecksumAlgorithm; 5] = [
        S3ChecksumAlgorithm::Crc32,
        S3ChecksumAlgorithm::Crc32c,
        S3ChecksumAlgorithm::Crc64Nvme,
        S3ChecksumAlgorithm::Sha1,
        S3ChecksumAlgorithm::Sha256,
    ];

    /// Reads S3's name, in any case. Fails with InvalidRequest for an unknown one.
    pub fn parse(name: &str) -> S3Result<Self> {
        let known =
            S3ChecksumAlgorithm::ALL.into_iter().find(|a| a.s3_name().eq_ignore_ascii_case(name));
        known.ok_or_else(|| {
            s3_error!(InvalidRequest, "Checksum algorithm provided is unsupported: {name}")
        })
    }

    /// Returns S3's name for the algorithm, in capitals: `CRC32C`.
    pub fn s3_name(self) -> &'static str {
        match self {
            S3ChecksumAlgorithm::Crc32 => "CRC32",
            S3ChecksumAlgorithm::Crc32c => "CRC32C",
            S3ChecksumAlgorithm::Crc64Nvme => "CRC64NVME",
            S3ChecksumAlgorithm::Sha1 => "SHA1",
            S3ChecksumAlgorithm::Sha256 => "SHA256",
        }
    }

    /// Returns the request and response header that carries the value, in lower case.
    pub fn header_name(self) -> &'static str {
        match self {
            S3ChecksumAlgorithm::Crc32 => "x-amz-checksum-crc32",
            S3ChecksumAlgorithm::Crc32c => "x-amz-checksum-crc32c",
            S3ChecksumAlgorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            S3ChecksumAlgorithm::Sha1 => "x-amz-checksum-sha1",
            S3ChecksumAlgorithm::Sha256 => "x-amz-checksum-sha256",
        }
    }

    fn digest_len(self) -> usize {
        match self {
            S3ChecksumAlgorithm::Crc32 | S3ChecksumAlgorithm::Crc32c => 4,
            S3ChecksumAlgorithm::Crc64Nvme => 8,
            S3ChecksumAlgorithm::Sha1 => 20,
            S3ChecksumAlgorithm::Sha256 => 32,
        }
    }

    fn crc_algorithm(self) -> Option<CrcAlgorithm> {
        match self {
            S3ChecksumAlgorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            S3ChecksumAlgorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            S3ChecksumAlgorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            S3ChecksumAlgorithm::Sha1 | S3ChecksumAlgorithm::Sha256 => None,
        }
    }

    /// Returns the kind of a multipart upload's checksum if the client does not say (S3 user guide,
    /// "Checking object integrity").
    pub fn default_kind(self) -> ChecksumKind {
        if self == S3ChecksumAlgorithm::Crc64Nvme {
            ChecksumKind::FullObject
        } else {
            ChecksumKind::Composite
        }
    }

    /// Returns true if S3 accepts this kind of checksum with the algorithm, for multipart uploads.
    pub fn allows_kind(self, kind: ChecksumKind) -> bool {
        match kind {
            ChecksumKind::FullObject => self.crc_algorithm().is_some(),
            ChecksumKind::Composite => self != S3ChecksumAlgorithm::Crc64Nvme,
        }
    }

    fn value_index(self) -> usize {
        self as usize
    }
}

impl ChecksumKind {
    /// Reads S3's `FULL_OBJECT` or `COMPOSITE`. Fails with InvalidRequest for anything else.
    pub fn parse(name: &str) -> S3Result<Self> {
        match name {
            s3s::dto::ChecksumType::FULL_OBJECT => Ok(ChecksumKind::FullObject),
            s3s::dto::ChecksumType::COMPOSITE => Ok(ChecksumKind::Composite),
            _ => Err(s3_error!(
                InvalidRequest,
                "Value for x-amz-checksum-type header is invalid: {name}"
            )),
        }
    }

    /// Returns the kind as the S3 interface writes it.
    pub fn to_dto(self) -> s3s::dto::ChecksumType {
        s3s::dto::ChecksumType::from_static(match self {
            ChecksumKind::FullObject => s3s::dto::ChecksumType::FULL_OBJECT,
            ChecksumKind::Composite => s3s::dto::ChecksumType::COMPOSITE,
        })
    }
}

/// Checksums in S3's notation: base64, with `-N` behind a composite one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumSet {
    values: [Option<String>; 5],
    pub kind: Option<ChecksumKind>,
}

impl ChecksumSet {
    /// Returns the value of one algorithm, in base64. `None` where it is not known.
    pub fn get(&self, algorithm: S3ChecksumAlgorithm) -> Option<String> {
        self.values[algorithm.value_index()].clone()
    }

    /// Replaces the value of one algorithm. `None` removes it.
    pub fn set_value(&mut self, algorithm: S3ChecksumAlgorithm, value: Option<String>) {
        self.values[algorithm.value_index()] = value;
    }

    /// Returns the algorithms that have a value.
    pub fn known_algorithms(&self) -> impl Iterator<Item = S3ChecksumAlgorithm> + '_ {
        S3ChecksumAlgorithm::ALL.into_iter().filter(|a| self.values[a.value_index()].is_some())
    }

    /// Returns true if no algorithm has a value. The kind does not count.
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }

    /// Reads checksums from headers or trailers.
    pub fn from_headers(headers: &HeaderMap) -> S3Result<Self> {
        let mut out = ChecksumSet::default();
        for algorithm in S3ChecksumAlgorithm::ALL {
            if let Some(value) = headers.get(algorithm.header_name()) {
                let value = value.to_str().map_err(|_| invalid_value(algorithm))?;
                out.set_value(algorithm, Some(value.to_owned()));
            }
        }
        Ok(out)
    }

    /// Refuses values that cannot be digests of their algorithms.
    pub fn check_shape(&self) -> S3Result<()> {
        for algorithm in self.known_algorithms() {
            let bytes = self.get(algorithm).and_then(|v| STANDARD.decode(v).ok());
            if bytes.is_none_or(|b| b.len() != algorithm.digest_len()) {
                return Err(invalid_value(algorithm));
            }
        }
        Ok(())
    }

    /// Verifies `claimed` against what was computed. Everything claimed must have been computed.
    pub fn verify_claims(&self, claimed: &ChecksumSet) -> S3Result<()> {
        for algorithm in claimed.known_algorithms() {
            if self.get(algorithm) != claimed.get(algorithm) {
                let name = algorithm.s3_name();
                return Err(s3_error!(
                    BadDigest,
                    "The {name} you specified did not match the calculated checksum."
                ));
            }
        }
        Ok(())
    }
}

fn invalid_value(algorithm: S3ChecksumAlgorithm) -> S3Error {
    s3_error!(InvalidRequest, "Value for {} header is invalid.", algorithm.header_name())
}

/// Reads the five checksum fields of an S3 input.
macro_rules! given_checksums {
    ($input:expr) => {{
        use $crate::checksum::{ChecksumSet, S3ChecksumAlgorithm};
        let mut sums = ChecksumSet::default();
        sums.set_value(S3ChecksumAlgorithm::Crc32, $input.checksum_crc32.clone());
        sums.set_value(S3ChecksumAlgorithm::Crc32c, $input.checksum_crc32c.clone());
        sums.set_value(S3ChecksumAlgorithm::Crc64Nvme, $input.checksum_crc64nvme.clone());
        sums.set_value(S3ChecksumAlgorithm::Sha1, $input.checksum_sha1.clone());
        sums.set_value(S3ChecksumAlgorithm::Sha256, $input.checksum_sha256.clone());
        sums
    }};
}
pub(super) use given_checksums;

/// Fills the five checksum fields of an S3 output.
macro_rules! put_checksums {
    ($sums:expr => $output:expr) => {{
        use $crate::checksum::S3ChecksumAlgorithm;
        $output.checksum_crc32 = $sums.get(S3ChecksumAlgorithm::Crc32);
        $output.checksum_crc32c = $sums.get(S3ChecksumAlgorithm::Crc32c);
        $output.checksum_crc64nvme = $sums.get(S3ChecksumAlgorithm::Crc64Nvme);
        $output.checksum_sha1 = $sums.get(S3ChecksumAlgorithm::Sha1);
        $output.checksum_sha256 = $sums.get(S3ChecksumAlgorithm::Sha256);
    }};
}
pub(super) use put_checksums;

/// A hasher of one body: MD5 and the wanted checksums, in one pass.
#[derive(Default)]
pub struct BodyHasher {
    md5: Md5,
    crc32: Option<Crc32>,
    crc32c: Option<Crc32c>,
    crc64nvme: Option<Crc64Nvme>,
    sha1: Option<Sha1>,
    sha256: Option<Sha256>,
}

impl fmt::Debug for BodyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyHasher").finish_non_exhaustive()
    }
}

impl BodyHasher {
    /// Makes a hasher that computes MD5 always, and the given algorithms besides.
    pub fn new(algorithms: impl IntoIterator<Item = S3ChecksumAlgorithm>) -> Self {
        let mut out = BodyHasher::default();
        for algorithm in algorithms {
            match algorithm {
                S3ChecksumAlgorithm::Crc32 => out.crc32 = Some(Crc32::new()),
                S3ChecksumAlgorithm::Crc32c => out.crc32c = Some(Crc32c::new()),
                S3ChecksumAlgorithm::Crc64Nvme => out.crc64nvme = Some(Crc64Nvme::new()),
                S3ChecksumAlgorithm::Sha1 => out.sha1 = Some(Sha1::new()),
                S3ChecksumAlgorithm::Sha256 => out.sha256 = Some(Sha256::new()),
            }
        }
        out
    }

    /// Feeds the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        if let Some(h) = &mut self.crc32 {
            h.update(bytes);
        }
        if let Some(h) = &mut self.crc32c {
            h.update(bytes);
        }
        if let Some(h) = &mut self.crc64nvme {
            h.update(bytes);
        }
        if let Some(h) = &mut self.sha1 {
            h.update(bytes);
        }
        if let Some(h) = &mut self.sha256 {
            h.update(bytes);
        }
    }

    /// Returns the MD5 in binary form, and the checksums of the full object in base64.
    pub fn finish_digests(self) -> ([u8; 16], ChecksumSet) {
        let mut sums = ChecksumSet::default();
        sums.set_value(
            S3ChecksumAlgorithm::Crc32,
            self.crc32.map(|h| STANDARD.encode(h.finalize())),
        );
        sums.set_value(
            S3ChecksumAlgorithm::Crc32c,
            self.crc32c.map(|h| STANDARD.encode(h.finalize())),
        );
        sums.set_value(
            S3ChecksumAlgorithm::Crc64Nvme,
            self.crc64nvme.map(|h| STANDARD.encode(h.finalize())),
        );
        sums.set_value(S3ChecksumAlgorithm::Sha1, self.sha1.map(|h| STANDARD.encode(h.finalize())));
        sums.set_value(
            S3ChecksumAlgorithm::Sha256,
            self.sha256.map(|h| STANDARD.encode(h.finalize())),
        );
        sums.kind = Some(ChecksumKind::FullObject);
        (self.md5.finalize(), sums)
    }
}

/// Decodes a `Content-MD5`.
pub fn parse_content_md5(value: &str) -> S3Result<[u8; 16]> {
    let bytes = STANDARD.decode(value).ok().and_then(|b| <[u8; 16]>::try_from(b).ok());
    bytes.ok_or_else(|| s3_error!(InvalidDigest, "The Content-MD5 you specified was invalid."))
}

/// Returns the ETag of an object that was uploaded in parts: MD5 over the parts' MD5s, and their
/// number.
pub fn multipart_etag<'a>(md5s: impl ExactSizeIterator<Item = &'a [u8; 16]>) -> String {
    let count = md5s.len();
    let mut md5 = Md5::new();
    md5s.for_each(|m| md5.update(m));
    format!("{}-{count}", hex::encode(md5.finalize()))
}

/// Computes the object's checksum from its parts (size and checksum each). Returns `None` if a part
/// lacks one.
pub fn multipart_checksum(
    algorithm: S3ChecksumAlgorithm,
    kind: ChecksumKind,
    parts: &[(u64, Option<String>)],
) -> Option<String> {
    let mut digests = Vec::with_capacity(parts.len());
    for (size, value) in parts {
        digests.push((*size, STANDARD.decode(value.as_ref()?).ok()?));
    }
    match (kind, algorithm.crc_algorithm()) {
        (ChecksumKind::FullObject, Some(crc)) => {
            let as_u64 = |b: &[u8]| b.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
            let sums = digests.iter().map(|(size, d)| (*size, as_u64(d)));
            let (_, sum) =
                sums.reduce(|(_, a), (size, b)| (0, checksum_combine(crc, a, b, size)))?;
            Some(STANDARD.encode(&sum.to_be_bytes()[8 - algorithm.digest_len()..]))
        }
        (ChecksumKind::FullObject, None) => None,
        (ChecksumKind::Composite, _) => {
            let mut hasher = BodyHasher::new([algorithm]);
            digests.iter().for_each(|(_, d)| hasher.update(d));
            let (_, sums) = hasher.finish_digests();
            Some(format!("{}-{}", sums.get(algorithm)?, parts.len()))
        }
    }
}
