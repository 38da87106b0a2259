//! Owns the transfer of a request's body into a blob. It counts and hashes the body. It verifies
//! every claim of the client, in the headers and behind the body.
//!
//! Commits nothing. The blob that it returns is removed unless somebody commits it.

use futures::StreamExt;
use http::HeaderMap;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3Result, StdError, TrailingHeaders, s3_error};

use crate::blob::{BlobExtent, BlobWriter, UnfinishedBlob};
use crate::checksum::{BodyHasher, ChecksumSet, S3ChecksumAlgorithm, parse_content_md5};
use crate::store::{LocalStore, disk_failed};

use super::not_implemented;

/// The client's claims about its body.
pub struct BodyClaims {
    pub length: Option<i64>,
    pub md5: Option<String>,
    pub checksums: ChecksumSet,
    /// Algorithms to compute besides those claimed.
    pub wanted: Vec<S3ChecksumAlgorithm>,
    pub headers: HeaderMap,
    pub trailers: Option<TrailingHeaders>,
}

/// A durable body on disk, with its computed digests.
pub struct ReceivedBody {
    /// `None` for an empty body.
    pub blob: Option<(BlobExtent, UnfinishedBlob)>,
    pub size: u64,
    pub md5: [u8; 16],
    pub checksums: ChecksumSet,
}

impl ReceivedBody {
    /// Returns the extents for the record, and the blob for the commit. Both are empty for an empty
    /// body.
    pub fn into_parts(self) -> (Vec<BlobExtent>, Option<UnfinishedBlob>) {
        match self.blob {
            Some((extent, blob)) => (vec![extent], Some(blob)),
            None => (Vec::new(), None),
        }
    }
}

/// Stores the body in a blob and verifies every claim. Fails when a claim does not hold, or when
/// the body is too large.
pub async fn receive_body(
    store: &LocalStore,
    body: Option<StreamingBlob>,
    claims: BodyClaims,
) -> S3Result<ReceivedBody> {
    claims.checksums.check_shape()?;
    claims.refuse_unverified()?;
    let md5 = claims.md5.as_deref().map(parse_content_md5).transpose()?;
    let expected = claims.expected_length()?;
    if expected.is_some_and(|n| n > store.inner.options.put_bytes_max) {
        return Err(too_large());
    }
    let promised = claims.promised_trailers()?;
    let mut algorithms: Vec<_> =
        claims.checksums.known_algorithms().chain(claims.wanted.iter().copied()).collect();
    algorithms.extend(&promised);
    if algorithms.is_empty() {
        // S3 gives this checksum to objects that came without one.
        algorithms.push(S3ChecksumAlgorithm::Crc64Nvme);
    }
    let hasher = BodyHasher::new(algorithms);
    let (blob, hasher, size) = store_body(store, body, hasher, expected).await?;
    if expected.is_some_and(|n| n != size) {
        return Err(incomplete_error());
    }
    let (computed_md5, checksums) = hasher.finish_digests();
    if md5.is_some_and(|claimed| claimed != computed_md5) {
        return Err(s3_error!(
            BadDigest,
            "The Content-MD5 you specified did not match what we received."
        ));
    }
    checksums.verify_claims(&claims.checksums)?;
    checksums.verify_claims(&claims.trailing_checksums(&promised)?)?;
    Ok(ReceivedBody { blob, size, md5: computed_md5, checksums })
}

type StoredBody = (Option<(BlobExtent, UnfinishedBlob)>, BodyHasher, u64);

async fn store_body(
    store: &LocalStore,
    body: Option<StreamingBlob>,
    hasher: BodyHasher,
    expected: Option<u64>,
) -> S3Result<StoredBody> {
    let options = &store.inner.options;
    let limit = expected.unwrap_or(options.put_bytes_max);
    let write_failed = |e| disk_failed("write an object's bytes", e);
    let (mut hasher, mut writer) = (Some(hasher), None);
    if let Some(mut body) = body {
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(body_failed)?;
            if piece.is_empty() {
                continue;
            }
            if let Some(hasher) = hasher.take() {
                let chunk = options.write_chunk_bytes;
                writer = Some(
                    BlobWriter::create_blob(store.inner.dir.clone(), hasher, chunk)
                        .await
                        .map_err(write_failed)?,
                );
            }
            let Some(writer) = &mut writer else { break };
            if writer.len() + piece.len() as u64 > limit {
                return Err(if expected.is_some() { incomplete_error() } else { too_large() });
            }
            writer.push(piece).await.map_err(write_failed)?;
        }
    }
    match writer {
        Some(writer) => {
            let done = writer.finish_blob().await.map_err(write_failed)?;
            let size = done.extent.len;
            Ok((Some((done.extent, done.blob)), done.hasher, size))
        }
        None => Ok((None, hasher.unwrap_or_default(), 0)),
    }
}

impl BodyClaims {
    fn expected_length(&self) -> S3Result<Option<u64>> {
        let bad = || s3_error!(InvalidArgument, "The content length is not a number of bytes.");
        // An aws-chunked request's Content-Length counts its framing too.
        if let Some(decoded) = self.headers.get("x-amz-decoded-content-length") {
            return Ok(Some(decoded.to_str().ok().and_then(|v| v.parse().ok()).ok_or_else(bad)?));
        }
        self.length.map(|n| u64::try_from(n).map_err(|_| bad())).transpose()
    }

    /// Refuses a checksum that nobody has verified: it must not be acknowledged. The gateway
    /// verifies all others that this store does not keep.
    fn refuse_unverified(&self) -> S3Result<()> {
        match self.headers.keys().find(|name| name.as_str().starts_with("x-amz-checksum-xxhash")) {
            Some(name) => Err(not_implemented(&format!("the checksum {name}"))),
            None => Ok(()),
        }
    }

    /// Returns the checksums that `x-amz-trailer` promises.
    fn promised_trailers(&self) -> S3Result<Vec<S3ChecksumAlgorithm>> {
        let mut promised = Vec::new();
        for value in self.headers.get_all("x-amz-trailer") {
            let value = value.to_str().map_err(|_| malformed_trailer())?;
            for name in value.split(',').map(str::trim) {
                promised.extend(
                    S3ChecksumAlgorithm::ALL
                        .into_iter()
                        .filter(|a| a.header_name().eq_ignore_ascii_case(name)),
                );
            }
        }
        Ok(promised)
    }

    /// Returns the checksums behind the body. Every promised one must be there.
    fn trailing_checksums(&self, promised: &[S3ChecksumAlgorithm]) -> S3Result<ChecksumSet> {
        let read = |headers: &HeaderMap| ChecksumSet::from_headers(headers);
        let found =
            self.trailers.as_ref().and_then(|t| t.read(read)).transpose()?.unwrap_or_default();
        if promised.iter().any(|a| found.get(*a).is_none()) {
            return Err(malformed_trailer());
        }
        Ok(found)
    }
}

fn malformed_trailer() -> S3Error {
    let message = "The request contained trailing data that was not well-formed or did not conform \
        to x-amz-trailer.";
    super::custom_error("MalformedTrailerError", http::StatusCode::BAD_REQUEST, message)
}

fn incomplete_error() -> S3Error {
    s3_error!(
        IncompleteBody,
        "The request body does not have the number of bytes specified by its length header."
    )
}

fn too_large() -> S3Error {
    s3_error!(EntityTooLarge, "Your proposed upload exceeds the maximum allowed object size.")
}

/// Makes the error for a body that broke off. s3s's own refusals differ by text only, because their
/// types are private.
fn body_failed(e: StdError) -> S3Error {
    let text = e.to_string();
    if text.contains("SignatureMismatch") {
        return s3_error!(SignatureDoesNotMatch, "A chunk's signature does not match.");
    }
    if text.contains("Sha256Mismatch") {
        let message =
            "The provided 'x-amz-content-sha256' header does not match what was computed.";
        return super::custom_error(
            "XAmzContentSHA256Mismatch",
            http::StatusCode::BAD_REQUEST,
            message,
        );
    }
    let mut error = incomplete_error();
    error.set_source(e);
    error
}
