//! Owns the chain of signatures over the chunks and trailers of an aws-chunked body. Each signs the
//! one before it, and the first the request's own ("Signature calculations for transferring a
//! payload in multiple chunks", S3 reference). s3s has verified the request's own signature.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::auth::{ALGORITHM, EMPTY_SHA256, SigningKey, compute_hmac, derive_signing_key};

/// The chain so far.
pub(super) struct ChunkSigner {
    /// Value of `x-amz-date`.
    stamp: String,
    /// `DAY/REGION/SERVICE/aws4_request`.
    scope: String,
    key: SigningKey,
    /// The signature before the next one, in hexadecimal.
    previous: String,
}

impl ChunkSigner {
    /// Begins the chain of a request whose Authorization header is verified with this secret.
    /// `None`: it has no header of version 4.
    pub fn from_headers(headers: &HeaderMap, secret: &str) -> Option<Self> {
        let authorization = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix(ALGORITHM)?;
        let field = |name: &str| {
            let (_, rest) = authorization.split_once(name)?;
            rest.split([',', ' ']).next()
        };
        let (_, scope) = field("Credential=")?.split_once('/')?;
        let key = derive_signing_key(secret, scope)?;
        Some(Self {
            stamp: headers.get("x-amz-date")?.to_str().ok()?.to_owned(),
            scope: scope.to_owned(),
            key,
            previous: authorization.rsplit_once("Signature=")?.1.trim_end().to_owned(),
        })
    }

    /// Returns whether the signature of the next chunk, whose data has this SHA-256, is right.
    /// Moves the chain on.
    pub fn accept_chunk(&mut self, digest: &[u8], given: &[u8]) -> bool {
        let rest = format!("{EMPTY_SHA256}\n{}", hex::encode(digest));
        self.accept_signature("AWS4-HMAC-SHA256-PAYLOAD", &rest, given)
    }

    /// Returns whether the trailers' signature is right. `trailers`: `name:value\n` of each, in the
    /// order of their names.
    pub fn accept_trailers(&mut self, trailers: &[u8], given: &[u8]) -> bool {
        let rest = hex::encode(Sha256::digest(trailers));
        self.accept_signature("AWS4-HMAC-SHA256-TRAILER", &rest, given)
    }

    fn accept_signature(&mut self, algorithm: &str, rest: &str, given: &[u8]) -> bool {
        let to_sign =
            format!("{algorithm}\n{}\n{}\n{}\n{rest}", self.stamp, self.scope, self.previous);
        let Some(signature) = compute_hmac(&self.key, &[&to_sign]) else { return false };
        self.previous = hex::encode(&*signature);
        self.previous.as_bytes().ct_eq(given).into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn signer(signature: &str) -> ChunkSigner {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;x-amz-date,Signature={signature}"
        );
        let headers = HeaderMap::from_iter([
            (AUTHORIZATION, authorization.parse().unwrap()),
            ("x-amz-date".parse().unwrap(), "20130524T000000Z".parse().unwrap()),
        ]);
        ChunkSigner::from_headers(&headers, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY").unwrap()
    }

    /// The worked examples of the S3 reference, with and without trailers.
    #[test]
    fn the_references_own_examples_are_accepted() {
        let parts = [vec![b'a'; 65_536], vec![b'a'; 1024], Vec::new()];
        let mut plain = signer("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
        let mut trailed =
            signer("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
        let of_plain = [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ];
        let of_trailed = [
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ];
        for ((part, one), other) in parts.iter().zip(of_plain).zip(of_trailed) {
            assert!(plain.accept_chunk(&Sha256::digest(part), one.as_bytes()));
            assert!(trailed.accept_chunk(&Sha256::digest(part), other.as_bytes()));
        }
        let signature = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";
        assert!(trailed.accept_trailers(b"x-amz-checksum-crc32c:sOO8/Q==\n", signature.as_bytes()));
    }

    #[test]
    fn a_chain_that_was_left_is_not_found_again() {
        let mut signer = signer("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
        let second = "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497";
        assert!(
            !signer.accept_chunk(&Sha256::digest([b'a'; 1024]), second.as_bytes()),
            "out of its order"
        );
        let first = "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648";
        assert!(!signer.accept_chunk(&Sha256::digest([b'a'; 65_536]), first.as_bytes()));
        assert!(!signer.accept_chunk(&Sha256::digest([b'a'; 65_536]), b""));
    }
}
