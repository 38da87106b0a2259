//! Owns PutObject, and the commit that makes a new object visible.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use super::body_receiver::{BodyClaims, receive_body};
use super::tagging::parse_tagging_header;
use super::{
    check_canned_acl, check_key, check_storage_class, given_attributes, not_implemented,
    refuse_unkept_promises, strong_etag,
};
use crate::checksum::{S3ChecksumAlgorithm, given_checksums, put_checksums};
use crate::condition::WriteConditions;
use crate::index::{LayoutRecord, ObjectLayout, ObjectRecord, ObjectSeq};
use crate::store::{LocalStore, find_bucket, no_such_bucket, now_ms};

/// Stores a body and commits it as an object, if the conditions still hold then.
pub async fn put_object(
    store: &LocalStore,
    req: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let mut input = req.input;
    check_key(&input.key)?;
    check_canned_acl(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
    refuse_unkept_promises!(
        input;
        sse_customer_algorithm, sse_customer_key, ssekms_key_id, server_side_encryption,
        object_lock_legal_hold_status, object_lock_mode, object_lock_retain_until_date,
        grant_full_control, grant_read, grant_read_acp, grant_write_acp,
    );
    if input.write_offset_bytes.is_some_and(|n| n != 0) {
        return Err(not_implemented("appending to objects"));
    }
    let conditions = WriteConditions {
        if_match: input.if_match.take(),
        if_none_match: input.if_none_match.take(),
    };
    conditions.check_supported()?;
    let storage_class =
        check_storage_class(input.storage_class.as_ref().map(StorageClass::as_str))?;
    let tags = input.tagging.as_deref().map(parse_tagging_header).transpose()?.unwrap_or_default();
    let attributes = given_attributes!(input);
    // Before the body: a missing bucket should not cost the client an upload.
    let bucket = input.bucket.clone();
    store.run_blocking(move |s| find_bucket(&s.open_view()?, &bucket)).await?;

    let wanted = input
        .checksum_algorithm
        .as_ref()
        .map(|a| S3ChecksumAlgorithm::parse(a.as_str()))
        .transpose()?;
    let claims = BodyClaims {
        length: input.content_length,
        md5: input.content_md5.take(),
        checksums: given_checksums!(input),
        wanted: wanted.into_iter().collect(),
        headers: req.headers,
        trailers: req.trailing_headers,
    };
    let received = receive_body(store, input.body.take(), claims).await?;
    let record = ObjectRecord {
        seq: ObjectSeq(0),
        size: received.size,
        etag: hex::encode(received.md5),
        modified_ms: now_ms(),
        storage_class,
        layout: ObjectLayout::Empty,
        parts_count: 0,
        checksums: received.checksums.clone(),
        attributes,
        tags,
    };
    let (extents, blob) = received.into_parts();
    let (bucket, key) = (input.bucket, input.key);
    let put = move |tx: &mut crate::index::IndexTransaction<'_>| {
        let bucket = tx.bucket_record(&bucket)?.ok_or_else(|| no_such_bucket(&bucket))?;
        let current = tx.object_record(bucket.id, &key)?;
        conditions.judge_write(current.as_ref().map(|o| o.etag.as_str()))?;
        tx.add_references(&extents)?;
        tx.put_object(bucket.id, &key, record, &LayoutRecord { extents, parts: Vec::new() })
    };
    let record = store.inner.committer.commit_change(blob, put).await?;

    let mut output =
        PutObjectOutput { e_tag: Some(strong_etag(&record.etag)), ..Default::default() };
    put_checksums!(record.checksums => output);
    output.checksum_type = record.checksums.kind.map(|k| k.to_dto());
    Ok(S3Response::new(output))
}
