//! Owns DeleteObject and DeleteObjects.

use http::StatusCode;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use time::OffsetDateTime;

use super::{check_key, check_version, signed_size};
use crate::condition::{matches_strongly, precondition_failed};
use crate::index::{ObjectRecord, TxError};
use crate::store::{LocalStore, no_such_bucket};

/// Most keys in one DeleteObjects request (S3 API reference).
const BATCH_MAX: usize = 1000;

/// The conditions under which an object may be deleted.
#[derive(Debug, Default)]
struct DeleteConditions {
    etag: Option<ETagCondition>,
    modified: Option<Timestamp>,
    size: Option<i64>,
}

impl DeleteConditions {
    /// Judges the conditions. An absent object is already deleted, so conditions on its state do
    /// not apply. `*` demands that an object exists.
    fn judge_delete(&self, current: Option<&ObjectRecord>) -> S3Result<()> {
        let Some(record) = current else {
            let must_exist = matches!(self.etag, Some(ETagCondition::Any));
            return if must_exist { Err(precondition_failed("If-Match")) } else { Ok(()) };
        };
        if self.etag.as_ref().is_some_and(|wanted| !matches_strongly(wanted, &record.etag)) {
            return Err(precondition_failed("If-Match"));
        }
        let seconds = |t: &Timestamp| OffsetDateTime::from(t.clone()).unix_timestamp();
        if self.modified.as_ref().is_some_and(|t| seconds(t) != record.modified_ms.div_euclid(1000))
        {
            return Err(precondition_failed("x-amz-if-match-last-modified-time"));
        }
        if self.size.is_some_and(|n| n != signed_size(record.size)) {
            return Err(precondition_failed("x-amz-if-match-size"));
        }
        Ok(())
    }
}

/// Removes an object if the conditions hold. An absent object counts as removed.
pub async fn delete_object(
    store: &LocalStore,
    req: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let input = req.input;
    check_key(&input.key)?;
    check_version(input.version_id.as_deref())?;
    let conditions = DeleteConditions {
        etag: input.if_match,
        modified: input.if_match_last_modified_time,
        size: input.if_match_size,
    };
    let (bucket, key) = (input.bucket, input.key);
    delete_one(store, bucket, key, conditions).await?;
    Ok(S3Response::with_status(DeleteObjectOutput::default(), StatusCode::NO_CONTENT))
}

async fn delete_one(
    store: &LocalStore,
    bucket: String,
    key: String,
    conditions: DeleteConditions,
) -> S3Result<()> {
    store
        .commit_change(move |tx| {
            let bucket = tx.bucket_record(&bucket)?.ok_or_else(|| no_such_bucket(&bucket))?;
            conditions.judge_delete(tx.object_record(bucket.id, &key)?.as_ref())?;
            tx.remove_object(bucket.id, &key)
        })
        .await
}

/// Removes 1 to 1000 objects. Each has its own result.
pub async fn delete_objects(
    store: &LocalStore,
    req: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let Delete { objects, quiet } = req.input.delete;
    if objects.is_empty() || objects.len() > BATCH_MAX {
        return Err(s3_error!(MalformedXML, "A batch delete names 1 to {BATCH_MAX} keys."));
    }
    let bucket = req.input.bucket;
    let (deleted, errors) = store
        .commit_change(move |tx| {
            let bucket = tx.bucket_record(&bucket)?.ok_or_else(|| no_such_bucket(&bucket))?;
            let (mut deleted, mut errors) = (Vec::new(), Vec::new());
            for object in objects {
                let (key, version_id) = (object.key.clone(), object.version_id.clone());
                let verdict = match check_one(object) {
                    Err(e) => Err(e),
                    Ok(conditions) => {
                        conditions.judge_delete(tx.object_record(bucket.id, &key)?.as_ref())
                    }
                };
                match verdict {
                    Ok(()) => {
                        tx.remove_object(bucket.id, &key)?;
                        deleted.push(DeletedObject {
                            key: Some(key),
                            version_id,
                            ..Default::default()
                        });
                    }
                    Err(e) => errors.push(Error {
                        code: Some(e.code().as_str().to_owned()),
                        key: Some(key),
                        message: e.message().map(str::to_owned),
                        version_id,
                    }),
                }
            }
            Ok::<_, TxError>((deleted, errors))
        })
        .await?;
    let deleted = (!quiet.unwrap_or(false)).then_some(deleted);
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted,
        errors: Some(errors),
        request_charged: None,
    }))
}

fn check_one(object: ObjectIdentifier) -> S3Result<DeleteConditions> {
    check_key(&object.key)?;
    check_version(object.version_id.as_deref())?;
    Ok(DeleteConditions {
        etag: object.e_tag.map(ETagCondition::ETag),
        modified: object.last_modified_time,
        size: object.size,
    })
}
