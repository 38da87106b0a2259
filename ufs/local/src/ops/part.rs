//! Owns parts: upload, copy from an object, list.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::body_receiver::{BodyClaims, receive_body};
use super::copy::{CopySourceObject, copy_conditions};
use super::multipart::no_such_upload;
use super::part_number::check_part_number;
use super::{
    check_key, refuse_unkept_promises, s3_timestamp, signed_size, store_owner, strong_etag,
};
use crate::checksum::{S3ChecksumAlgorithm, given_checksums, put_checksums};
use crate::index::{IndexTransaction, PartRecord, TxError, UploadRecord, part_number_of};
use crate::store::{LocalStore, find_bucket, index_failed, no_such_bucket, now_ms};

/// The identity of an upload, for a look-up.
#[derive(Clone)]
struct UploadIdentity {
    bucket: String,
    key: String,
    id: String,
}

impl UploadIdentity {
    async fn find_upload(&self, store: &LocalStore) -> S3Result<UploadRecord> {
        let which = self.clone();
        let find = move |s: &crate::store::LocalStoreInner| {
            let view = s.open_view()?;
            let bucket = find_bucket(&view, &which.bucket)?;
            let upload =
                view.upload_record(bucket.id, &which.key, &which.id).map_err(index_failed)?;
            upload.ok_or_else(no_such_upload)
        };
        store.run_blocking(find).await
    }

    fn require_upload(&self, tx: &IndexTransaction<'_>) -> Result<(), TxError> {
        let bucket = tx.bucket_record(&self.bucket)?.ok_or_else(|| no_such_bucket(&self.bucket))?;
        tx.upload_record(bucket.id, &self.key, &self.id)?.ok_or_else(no_such_upload)?;
        Ok(())
    }
}

/// Stores one part. Replaces a part of the same number.
pub async fn upload_part(
    store: &LocalStore,
    req: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let mut input = req.input;
    check_key(&input.key)?;
    refuse_unkept_promises!(input; sse_customer_algorithm, sse_customer_key);
    let number = check_part_number(input.part_number)?;
    let which = UploadIdentity {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        id: input.upload_id.clone(),
    };
    let upload = which.find_upload(store).await?;
    let mut wanted = vec![upload.algorithm];
    wanted.extend(
        input
            .checksum_algorithm
            .as_ref()
            .map(|a| S3ChecksumAlgorithm::parse(a.as_str()))
            .transpose()?,
    );
    let claims = BodyClaims {
        length: input.content_length,
        md5: input.content_md5.take(),
        checksums: given_checksums!(input),
        wanted,
        headers: req.headers,
        trailers: req.trailing_headers,
    };
    let received = receive_body(store, input.body.take(), claims).await?;
    let (size, md5, checksums) = (received.size, received.md5, received.checksums.clone());
    let (extents, blob) = received.into_parts();
    let record =
        PartRecord { size, md5, modified_ms: now_ms(), extents, checksums: checksums.clone() };
    let put = move |tx: &mut IndexTransaction<'_>| {
        which.require_upload(tx)?;
        tx.add_references(&record.extents)?;
        tx.put_part(&which.id, number, &record)
    };
    store.inner.committer.commit_change(blob, put).await?;
    let mut output =
        UploadPartOutput { e_tag: Some(strong_etag(&hex::encode(md5))), ..Default::default() };
    put_checksums!(checksums => output);
    Ok(S3Response::new(output))
}

/// Stores a range of another object as a part. Shares its blobs where it can.
pub async fn upload_part_copy(
    store: &LocalStore,
    req: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let mut input = req.input;
    check_key(&input.key)?;
    refuse_unkept_promises!(
        input;
        sse_customer_algorithm, sse_customer_key, copy_source_sse_customer_algorithm,
        copy_source_sse_customer_key,
    );
    let number = check_part_number(input.part_number)?;
    let which = UploadIdentity { bucket: input.bucket, key: input.key, id: input.upload_id };
    let upload = which.find_upload(store).await?;
    let conditions = copy_conditions!(input);
    let range = input.copy_source_range.take();
    let source = CopySourceObject::find_source(store, &input.copy_source, conditions).await?;
    let bytes = source.parse_range(range.as_deref())?;
    let digest = source.digest_range(store, bytes.clone(), vec![upload.algorithm]).await?;
    let extents = source.source_extents(&bytes);
    let record = PartRecord {
        size: bytes.end - bytes.start,
        md5: digest.0,
        modified_ms: now_ms(),
        extents,
        checksums: digest.1,
    };
    let mut result = CopyPartResult {
        e_tag: Some(strong_etag(&hex::encode(record.md5))),
        last_modified: Some(s3_timestamp(record.modified_ms)),
        ..Default::default()
    };
    put_checksums!(record.checksums => result);
    store
        .commit_change(move |tx| {
            which.require_upload(tx)?;
            source.still_there(tx)?;
            tx.add_references(&record.extents)?;
            tx.put_part(&which.id, number, &record)
        })
        .await?;
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        ..Default::default()
    }))
}

/// Lists a page of the parts that an upload has so far.
pub async fn list_parts(
    store: &LocalStore,
    req: S3Request<ListPartsInput>,
) -> S3Result<S3Response<ListPartsOutput>> {
    let input = req.input;
    let max = super::list_objects::page_size(input.max_parts, store.inner.options.list_page_max)?;
    let marker = input.part_number_marker.unwrap_or(0);
    let after = u16::try_from(marker).map_err(|_| {
        s3_error!(InvalidArgument, "part-number-marker must be between 0 and 65535")
    })?;
    let which = UploadIdentity {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        id: input.upload_id.clone(),
    };
    let upload = which.find_upload(store).await?;
    let (parts, truncated) = store
        .run_blocking(move |s| {
            let view = s.open_view()?;
            let mut rows = view.parts_after(&which.id, after).map_err(index_failed)?;
            let mut parts: Vec<Part> = Vec::new();
            while let Some(row) = rows.next_entry().map_err(index_failed)? {
                if parts.len() == max {
                    return Ok((parts, max > 0));
                }
                let record: PartRecord = row.decode().map_err(index_failed)?;
                let mut part = Part {
                    e_tag: Some(strong_etag(&hex::encode(record.md5))),
                    last_modified: Some(s3_timestamp(record.modified_ms)),
                    part_number: Some(part_number_of(&row.key).into()),
                    size: Some(signed_size(record.size)),
                    ..Default::default()
                };
                put_checksums!(record.checksums => part);
                parts.push(part);
            }
            Ok((parts, false))
        })
        .await?;
    let class = upload.storage_class.unwrap_or_else(|| "STANDARD".to_owned());
    let named = upload.algorithm_named;
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        checksum_algorithm: named
            .then(|| ChecksumAlgorithm::from_static(upload.algorithm.s3_name())),
        checksum_type: named.then(|| upload.kind.to_dto()),
        initiator: Some(upload_initiator()),
        is_truncated: Some(truncated),
        max_parts: Some(i32::try_from(max).unwrap_or(i32::MAX)),
        next_part_number_marker: parts.last().and_then(|p| p.part_number).filter(|_| truncated),
        owner: Some(store_owner()),
        part_number_marker: Some(marker),
        parts: Some(parts),
        storage_class: Some(StorageClass::from(class)),
        ..Default::default()
    }))
}

/// Returns the one owner, as an upload's initiator.
pub fn upload_initiator() -> Initiator {
    let Owner { display_name, id } = store_owner();
    Initiator { display_name, id }
}
