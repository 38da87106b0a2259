//! Owns multipart uploads as a whole: create, complete, abort, expiry. Completing moves no bytes:
//! the object is the list of its parts' blobs.

use std::sync::atomic::Ordering;

use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use super::part_number::{PART_NUMBER_MAX, check_part_number};
use super::tagging::parse_tagging_header;
use super::{
    check_canned_acl, check_key, check_storage_class, given_attributes, refuse_unkept_promises,
    strong_etag,
};
use crate::checksum::{
    ChecksumKind, ChecksumSet, S3ChecksumAlgorithm, given_checksums, multipart_checksum,
    multipart_etag, put_checksums,
};
use crate::condition::WriteConditions;
use crate::index::{
    IndexTransaction, LayoutRecord, ObjectLayout, ObjectRecord, ObjectSeq, PartRecord, PartSummary,
    TxError, UploadRecord,
};
use crate::store::{LocalStore, no_such_bucket, now_ms};

/// Milliseconds between two searches for expired uploads.
const EXPIRY_EVERY_MS: i64 = 3_600_000;

/// Makes S3's 404 answer for an upload that does not exist, or no longer exists.
pub fn no_such_upload() -> S3Error {
    s3_error!(
        NoSuchUpload,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have \
        been aborted or completed."
    )
}

/// Begins a multipart upload. Also aborts old uploads, if that is due.
pub async fn create_upload(
    store: &LocalStore,
    req: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let mut input = req.input;
    check_key(&input.key)?;
    check_canned_acl(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
    refuse_unkept_promises!(
        input;
        sse_customer_algorithm, sse_customer_key, ssekms_key_id, server_side_encryption,
        object_lock_legal_hold_status, object_lock_mode, object_lock_retain_until_date,
        grant_full_control, grant_read, grant_read_acp, grant_write_acp,
    );
    let named = input
        .checksum_algorithm
        .as_ref()
        .map(|a| S3ChecksumAlgorithm::parse(a.as_str()))
        .transpose()?;
    let kind = input.checksum_type.as_ref().map(|t| ChecksumKind::parse(t.as_str())).transpose()?;
    if kind.is_some() && named.is_none() {
        return Err(s3_error!(
            InvalidRequest,
            "x-amz-checksum-type needs x-amz-checksum-algorithm."
        ));
    }
    let algorithm = named.unwrap_or(S3ChecksumAlgorithm::Crc64Nvme);
    let kind = kind.unwrap_or(algorithm.default_kind());
    if !algorithm.allows_kind(kind) {
        let kind = kind.to_dto();
        let (kind, name) = (kind.as_str(), algorithm.s3_name());
        return Err(s3_error!(
            InvalidRequest,
            "The {kind} checksum type cannot be used with the {name} algorithm."
        ));
    }
    let record = UploadRecord {
        initiated_ms: now_ms(),
        storage_class: check_storage_class(input.storage_class.as_ref().map(StorageClass::as_str))?,
        tags: input.tagging.as_deref().map(parse_tagging_header).transpose()?.unwrap_or_default(),
        attributes: given_attributes!(input),
        algorithm,
        kind,
        algorithm_named: named.is_some(),
    };
    expire_uploads(store).await?;
    // The time comes first, so that uploads of one key sort by it. Random digits follow, so that
    // ids cannot be guessed.
    let upload_id = format!("{:012x}{:020x}", record.initiated_ms, rand::random::<u128>() >> 48);
    let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), upload_id.clone());
    store
        .commit_change(move |tx| {
            let bucket = tx.bucket_record(&bucket)?.ok_or_else(|| no_such_bucket(&bucket))?;
            tx.put_upload(bucket.id, &key, &id, &record)
        })
        .await?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(upload_id),
        checksum_algorithm: named.map(|a| ChecksumAlgorithm::from_static(a.s3_name())),
        checksum_type: named.map(|_| kind.to_dto()),
        ..Default::default()
    }))
}

/// Removes an upload and its parts.
pub async fn abort_upload(
    store: &LocalStore,
    req: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let AbortMultipartUploadInput { bucket, key, upload_id, .. } = req.input;
    store
        .commit_change(move |tx| {
            let bucket = tx.bucket_record(&bucket)?.ok_or_else(|| no_such_bucket(&bucket))?;
            tx.upload_record(bucket.id, &key, &upload_id)?.ok_or_else(no_such_upload)?;
            tx.remove_upload(bucket.id, key.as_bytes(), &upload_id)?;
            tx.remove_parts(&upload_id, &[])
        })
        .await?;
    let status = http::StatusCode::NO_CONTENT;
    Ok(S3Response::with_status(AbortMultipartUploadOutput::default(), status))
}

/// Aborts expired uploads, if an expiry is configured and an hour has passed since the last search.
async fn expire_uploads(store: &LocalStore) -> S3Result<()> {
    let Some(ttl) = store.inner.options.multipart_ttl else { return Ok(()) };
    let now = now_ms();
    let last = store.inner.expired_ms.swap(now, Ordering::Relaxed);
    if now - last < EXPIRY_EVERY_MS {
        store.inner.expired_ms.store(last, Ordering::Relaxed);
        return Ok(());
    }
    let before = now.saturating_sub(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
    let expired = store.commit_change(move |tx| tx.remove_uploads_before(before)).await?;
    if expired > 0 {
        tracing::info!(expired, "aborted multipart uploads past their time");
    }
    Ok(())
}

/// A part as the client lists it.
struct ClaimedPart {
    number: u16,
    etag: ETag,
    checksums: ChecksumSet,
}

/// The checked input of a completion.
struct UploadCompletion {
    parts: Vec<ClaimedPart>,
    part_bytes_min: u64,
    size: Option<i64>,
    claimed: ChecksumSet,
    kind: Option<ChecksumKind>,
    conditions: WriteConditions,
}

/// Makes the object from the listed parts. Removes unlisted parts.
pub async fn complete_upload(
    store: &LocalStore,
    req: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let mut input = req.input;
    check_key(&input.key)?;
    let completion = UploadCompletion {
        parts: parse_parts(input.multipart_upload.take())?,
        part_bytes_min: store.inner.options.part_bytes_min,
        size: input.mpu_object_size,
        claimed: given_checksums!(input),
        kind: input.checksum_type.as_ref().map(|t| ChecksumKind::parse(t.as_str())).transpose()?,
        conditions: WriteConditions {
            if_match: input.if_match.take(),
            if_none_match: input.if_none_match.take(),
        },
    };
    completion.conditions.check_supported()?;
    let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id);
    let record = store
        .commit_change(move |tx| {
            let bucket = tx.bucket_record(&bucket)?.ok_or_else(|| no_such_bucket(&bucket))?;
            let upload = tx.upload_record(bucket.id, &key, &id)?.ok_or_else(no_such_upload)?;
            let current = tx.object_record(bucket.id, &key)?;
            completion.conditions.judge_write(current.as_ref().map(|o| o.etag.as_str()))?;
            let parts = completion.uploaded_parts(tx, &id)?;
            let (record, layout) = completion.assemble_object(upload, parts)?;
            // No check refuses from here on.
            let kept: Vec<_> = completion.parts.iter().map(|p| p.number).collect();
            tx.remove_upload(bucket.id, key.as_bytes(), &id)?;
            tx.remove_parts(&id, &kept)?;
            tx.put_object(bucket.id, &key, record, &layout)
        })
        .await?;
    let mut output = CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: Some(strong_etag(&record.etag)),
        checksum_type: record.checksums.kind.map(ChecksumKind::to_dto),
        ..Default::default()
    };
    put_checksums!(record.checksums => output);
    Ok(S3Response::new(output))
}

fn parse_parts(upload: Option<CompletedMultipartUpload>) -> S3Result<Vec<ClaimedPart>> {
    let parts = upload.and_then(|u| u.parts).unwrap_or_default();
    if parts.is_empty() || parts.len() > usize::from(PART_NUMBER_MAX) {
        return Err(s3_error!(MalformedXML, "You must specify 1 to {PART_NUMBER_MAX} parts."));
    }
    let mut out: Vec<ClaimedPart> = Vec::with_capacity(parts.len());
    for part in parts {
        let checksums = given_checksums!(part);
        let (Some(number), Some(etag)) = (part.part_number, part.e_tag) else {
            return Err(s3_error!(MalformedXML, "Every part needs a PartNumber and an ETag."));
        };
        let number = check_part_number(number)?;
        if out.last().is_some_and(|last| last.number >= number) {
            return Err(s3_error!(
                InvalidPartOrder,
                "The list of parts was not in ascending order."
            ));
        }
        out.push(ClaimedPart { number, etag, checksums });
    }
    Ok(out)
}

impl UploadCompletion {
    fn uploaded_parts(
        &self,
        tx: &IndexTransaction<'_>,
        upload_id: &str,
    ) -> Result<Vec<PartRecord>, TxError> {
        let mut out = Vec::with_capacity(self.parts.len());
        let invalid = |number: u16| {
            s3_error!(
                InvalidPart,
                "Part {number} could not be found, or its entity tag or checksum does not match \
                what was uploaded."
            )
        };
        for (at, listed) in self.parts.iter().enumerate() {
            let part =
                tx.part_record(upload_id, listed.number)?.ok_or_else(|| invalid(listed.number))?;
            if listed.etag.value() != hex::encode(part.md5)
                || part.checksums.verify_claims(&listed.checksums).is_err()
            {
                return Err(invalid(listed.number).into());
            }
            if at + 1 < self.parts.len() && part.size < self.part_bytes_min {
                let (number, size) = (listed.number, part.size);
                let message = s3_error!(
                    EntityTooSmall,
                    "Your proposed upload is smaller than the minimum allowed size: part {number} \
                    has {size} bytes."
                );
                return Err(message.into());
            }
            out.push(part);
        }
        Ok(out)
    }

    fn assemble_object(
        &self,
        upload: UploadRecord,
        parts: Vec<PartRecord>,
    ) -> S3Result<(ObjectRecord, LayoutRecord)> {
        let size: u64 = parts.iter().map(|p| p.size).sum();
        if self.size.is_some_and(|n| n != super::signed_size(size)) {
            return Err(s3_error!(
                InvalidRequest,
                "x-amz-mp-object-size does not match the parts: {size} bytes."
            ));
        }
        if self.kind.is_some_and(|k| k != upload.kind) {
            return Err(s3_error!(
                InvalidRequest,
                "x-amz-checksum-type differs from what the upload began with."
            ));
        }
        let sums: Vec<_> =
            parts.iter().map(|p| (p.size, p.checksums.get(upload.algorithm))).collect();
        let mut checksums = ChecksumSet::default();
        checksums
            .set_value(upload.algorithm, multipart_checksum(upload.algorithm, upload.kind, &sums));
        checksums.kind = (!checksums.is_empty()).then_some(upload.kind);
        self.verify_checksums(&checksums)?;
        let etag = multipart_etag(parts.iter().map(|p| &p.md5));
        let summary = |(listed, part): (&ClaimedPart, &PartRecord)| PartSummary {
            number: listed.number,
            size: part.size,
            checksums: part.checksums.clone(),
        };
        let layout = LayoutRecord {
            parts: self.parts.iter().zip(&parts).map(summary).collect(),
            extents: parts.into_iter().flat_map(|p| p.extents).collect(),
        };
        let record = ObjectRecord {
            seq: ObjectSeq(0),
            size,
            etag,
            modified_ms: now_ms(),
            storage_class: upload.storage_class,
            layout: ObjectLayout::Empty,
            parts_count: u32::try_from(self.parts.len()).unwrap_or(u32::MAX),
            checksums,
            attributes: upload.attributes,
            tags: upload.tags,
        };
        Ok((record, layout))
    }

    /// Verifies claimed checksums. A claim of a composite one may come with or without its `-N`.
    fn verify_checksums(&self, computed: &ChecksumSet) -> S3Result<()> {
        for algorithm in self.claimed.known_algorithms() {
            let (claimed, computed) = (self.claimed.get(algorithm), computed.get(algorithm));
            let bare = computed.as_deref().and_then(|c| c.split('-').next()).map(str::to_owned);
            if claimed != computed && claimed != bare {
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
