//! Owns CopyObject, and the copy source that it shares with UploadPartCopy. Copies share the
//! source's blobs, so they move no bytes. Bytes are read once where a digest must be computed (an
//! MD5, another checksum).

use std::ops::Range as ByteRange;

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::read::cut_extents;
use super::tagging::parse_tagging_header;
use super::{
    check_canned_acl, check_key, check_storage_class, check_version, given_attributes,
    refuse_unkept_promises, s3_timestamp, strong_etag,
};
use crate::blob::{BlobExtent, ExtentReader};
use crate::checksum::{BodyHasher, ChecksumKind, ChecksumSet, S3ChecksumAlgorithm, put_checksums};
use crate::condition::ReadConditions;
use crate::index::{
    IndexTransaction, LayoutRecord, ObjectLayout, ObjectRecord, ObjectSeq, TxError,
};
use crate::store::{LocalStore, PinnedObject, disk_failed, no_such_bucket, now_ms};

/// Reads the conditions on a copy's source.
macro_rules! copy_conditions {
    ($input:expr) => {
        $crate::condition::ReadConditions {
            if_match: $input.copy_source_if_match.take(),
            if_none_match: $input.copy_source_if_none_match.take(),
            if_modified_since: $input.copy_source_if_modified_since.take(),
            if_unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}
pub(super) use copy_conditions;

/// The source object of a copy, with its bytes pinned.
pub struct CopySourceObject {
    bucket: String,
    key: String,
    found: PinnedObject,
}

impl CopySourceObject {
    /// Finds the object, pins its bytes and judges the conditions on it.
    pub async fn find_source(
        store: &LocalStore,
        source: &CopySource,
        conditions: ReadConditions,
    ) -> S3Result<Self> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(super::not_implemented("access points as copy sources"));
        };
        check_version(version_id.as_deref())?;
        let (bucket, key) = (bucket.to_string(), key.to_string());
        check_key(&key)?;
        let (b, k) = (bucket.clone(), key.clone());
        let found = store.run_blocking(move |s| s.find_object(&b, &k)).await?;
        conditions.judge_copy(&found.record.etag, found.record.modified_ms.div_euclid(1000))?;
        Ok(CopySourceObject { bucket, key, found })
    }

    /// Parses a copy's range. It must be `bytes=first-last`, within the source.
    pub fn parse_range(&self, given: Option<&str>) -> S3Result<ByteRange<u64>> {
        let size = self.found.record.size;
        let Some(given) = given else { return Ok(0..size) };
        match Range::parse(given) {
            Ok(Range::Int { first, last: Some(last) }) if last < size => Ok(first..last + 1),
            Ok(Range::Int { last: Some(_), .. }) => Err(s3_error!(
                InvalidRange,
                "Range specified is not valid for source object of size: {size}"
            )),
            _ => Err(s3_error!(
                InvalidArgument,
                "The x-amz-copy-source-range value must be of the form bytes=first-last"
            )),
        }
    }

    /// Returns the extents that hold `bytes` of the source.
    pub fn source_extents(&self, bytes: &ByteRange<u64>) -> Vec<BlobExtent> {
        cut_extents(&self.found.layout.extents, bytes)
    }

    /// Reads `bytes` of the source for their digests.
    pub async fn digest_range(
        &self,
        store: &LocalStore,
        bytes: ByteRange<u64>,
        algorithms: Vec<S3ChecksumAlgorithm>,
    ) -> S3Result<([u8; 16], ChecksumSet)> {
        if bytes.end - bytes.start > store.inner.options.put_bytes_max {
            let max = store.inner.options.put_bytes_max;
            return Err(s3_error!(
                InvalidRequest,
                "The specified copy source is larger than the maximum allowable size for a copy \
                source: {max}"
            ));
        }
        let extents = self.source_extents(&bytes);
        let pin = store.inner.pins.pin_blobs(extents.iter().map(|e| e.blob).collect());
        store
            .run_blocking(move |s| {
                let mut reader =
                    ExtentReader::new(s.dir.clone(), extents, s.options.read_chunk_bytes, pin);
                let mut hasher = BodyHasher::new(algorithms);
                loop {
                    let piece =
                        reader.next_piece().map_err(|e| disk_failed("read a copy's source", e))?;
                    if piece.is_empty() {
                        return Ok(hasher.finish_digests());
                    }
                    hasher.update(&piece);
                }
            })
            .await
    }

    /// Checks that the source was not replaced meanwhile. Its blobs can only be shared while
    /// somebody owns them; a replaced source's blobs are about to be removed.
    pub fn still_there(&self, tx: &IndexTransaction<'_>) -> Result<(), TxError> {
        let bucket = tx.bucket_record(&self.bucket)?.ok_or_else(|| no_such_bucket(&self.bucket))?;
        match tx.object_record(bucket.id, &self.key)? {
            Some(now) if now.seq == self.found.record.seq => Ok(()),
            _ => Err(source_changed().into()),
        }
    }
}

/// Makes S3's error for an operation that lost a race.
fn source_changed() -> s3s::S3Error {
    s3_error!(
        OperationAborted,
        "The copy source was changed while it was being copied. Please try again."
    )
}

/// Copies an object by sharing its blobs. Reads the bytes only where a digest is missing.
pub async fn copy_object(
    store: &LocalStore,
    req: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let mut input = req.input;
    check_key(&input.key)?;
    check_canned_acl(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
    refuse_unkept_promises!(
        input;
        sse_customer_algorithm, sse_customer_key, ssekms_key_id, server_side_encryption,
        copy_source_sse_customer_algorithm, copy_source_sse_customer_key,
        object_lock_legal_hold_status, object_lock_mode, object_lock_retain_until_date,
        grant_full_control, grant_read, grant_read_acp, grant_write_acp,
    );
    let replace_metadata =
        directive_replaces(input.metadata_directive.as_ref().map(MetadataDirective::as_str))?;
    let replace_tags =
        directive_replaces(input.tagging_directive.as_ref().map(TaggingDirective::as_str))?;
    let storage_class =
        check_storage_class(input.storage_class.as_ref().map(StorageClass::as_str))?;
    let algorithm = input
        .checksum_algorithm
        .as_ref()
        .map(|a| S3ChecksumAlgorithm::parse(a.as_str()))
        .transpose()?;
    let conditions = copy_conditions!(input);
    let source = CopySourceObject::find_source(store, &input.copy_source, conditions).await?;
    let from = &source.found.record;

    let redirects = input.website_redirect_location.is_some();
    let itself = source.bucket == input.bucket && source.key == input.key;
    if itself
        && !replace_metadata
        && !redirects
        && input.storage_class.is_none()
        && algorithm.is_none()
    {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without \
            changing the object's metadata, storage class, website redirect location or encryption \
            attributes."
        ));
    }
    let given_tags =
        input.tagging.as_deref().map(parse_tagging_header).transpose()?.unwrap_or_default();
    let given = given_attributes!(input);
    // The redirect is never copied (S3 API reference, CopyObject).
    let attributes = if replace_metadata {
        given
    } else {
        let website_redirect = given.website_redirect;
        crate::index::StoredAttributes { website_redirect, ..from.attributes.clone() }
    };
    let (etag, checksums) = copy_digests(store, &source, algorithm).await?;
    let record = ObjectRecord {
        seq: ObjectSeq(0),
        size: from.size,
        etag,
        modified_ms: now_ms(),
        storage_class,
        layout: ObjectLayout::Empty,
        parts_count: 0,
        checksums,
        attributes,
        tags: if replace_tags { given_tags } else { from.tags.clone() },
    };
    let extents = source.found.layout.extents.clone();
    let (bucket, key) = (input.bucket, input.key);
    let record = store
        .commit_change(move |tx| {
            let bucket = tx.bucket_record(&bucket)?.ok_or_else(|| no_such_bucket(&bucket))?;
            source.still_there(tx)?;
            // References are added before the old object's are released, because the two may be the
            // same.
            tx.add_references(&extents)?;
            tx.put_object(bucket.id, &key, record, &LayoutRecord { extents, parts: Vec::new() })
        })
        .await?;
    Ok(S3Response::new(copy_output(&record)))
}

fn copy_output(record: &ObjectRecord) -> CopyObjectOutput {
    let mut result = CopyObjectResult {
        e_tag: Some(strong_etag(&record.etag)),
        last_modified: Some(s3_timestamp(record.modified_ms)),
        checksum_type: record.checksums.kind.map(ChecksumKind::to_dto),
        ..Default::default()
    };
    put_checksums!(record.checksums => result);
    CopyObjectOutput { copy_object_result: Some(result), ..Default::default() }
}

/// Returns a copy's digests. A copy is one object, even if its source was uploaded in parts. So its
/// ETag is the MD5 of its bytes, and its checksum covers the whole. The bytes are read only if the
/// source does not know these digests.
async fn copy_digests(
    store: &LocalStore,
    source: &CopySourceObject,
    algorithm: Option<S3ChecksumAlgorithm>,
) -> S3Result<(String, ChecksumSet)> {
    let from = &source.found.record;
    if from.size > store.inner.options.put_bytes_max {
        let max = store.inner.options.put_bytes_max;
        return Err(s3_error!(
            InvalidRequest,
            "The specified copy source is larger than the maximum allowable size for a copy \
            source: {max}"
        ));
    }
    let known = algorithm.is_none_or(|a| from.checksums.get(a).is_some());
    if from.parts_count == 0 && known {
        let mut checksums = from.checksums.clone();
        if let Some(only) = algorithm {
            checksums = ChecksumSet::default();
            checksums.set_value(only, from.checksums.get(only));
            checksums.kind = Some(ChecksumKind::FullObject);
        }
        return Ok((from.etag.clone(), checksums));
    }
    let mut algorithms: Vec<_> = match algorithm {
        Some(only) => vec![only],
        None => from.checksums.known_algorithms().collect(),
    };
    if algorithms.is_empty() {
        algorithms.push(S3ChecksumAlgorithm::Crc64Nvme);
    }
    let (md5, checksums) = source.digest_range(store, 0..from.size, algorithms).await?;
    Ok((hex::encode(md5), checksums))
}

/// Returns true for REPLACE. Both directives say COPY or REPLACE, and mean COPY when absent.
fn directive_replaces(directive: Option<&str>) -> S3Result<bool> {
    match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => Err(s3_error!(InvalidArgument, "Unknown directive: {other}")),
    }
}
