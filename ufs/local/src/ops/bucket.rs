//! Owns the operations on buckets: create, delete, head, list, location, versioning.

use std::ops::Bound;

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::{check_canned_acl, not_implemented, refuse_unkept_promises, s3_timestamp, store_owner};
use crate::index::{BucketId, BucketRecord};
use crate::store::{LocalStore, find_bucket, index_failed, no_such_bucket, now_ms};

/// Makes a bucket. Fails with BucketAlreadyOwnedByYou where one has that name.
pub async fn create_bucket(
    store: &LocalStore,
    req: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let input = req.input;
    let name = input.bucket;
    if !s3s::path::check_bucket_name(&name) {
        return Err(s3_error!(InvalidBucketName, "The specified bucket is not valid: {name}"));
    }
    check_canned_acl(input.acl.as_ref().map(BucketCannedACL::as_str))?;
    if input.object_lock_enabled_for_bucket == Some(true) {
        return Err(not_implemented("object lock"));
    }
    refuse_unkept_promises!(
        input;
        grant_full_control, grant_read, grant_read_acp, grant_write, grant_write_acp,
    );
    let constraint = input.create_bucket_configuration.and_then(|c| c.location_constraint);
    let location = constraint.map(|c| c.as_str().to_owned());
    let created = name.clone();
    store
        .commit_change(move |tx| {
            if tx.bucket_record(&created)?.is_some() {
                return Err(s3_error!(
                    BucketAlreadyOwnedByYou,
                    "You already own the bucket {created}."
                )
                .into());
            }
            let id = BucketId(tx.increment_counter("bucket-id")?);
            let record = BucketRecord { id, created_ms: now_ms(), location, tags: Vec::new() };
            tx.put_bucket(&created, &record)
        })
        .await?;
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) }))
}

/// Removes an empty bucket. Fails with BucketNotEmpty while it has objects.
pub async fn delete_bucket(
    store: &LocalStore,
    req: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let name = req.input.bucket;
    store
        .commit_change(move |tx| {
            let bucket = tx.bucket_record(&name)?.ok_or_else(|| no_such_bucket(&name))?;
            if !tx.bucket_is_empty(bucket.id)? {
                return Err(s3_error!(
                    BucketNotEmpty,
                    "The bucket you tried to delete is not empty: {name}"
                )
                .into());
            }
            tx.remove_bucket(&name, bucket.id)
        })
        .await?;
    Ok(S3Response::with_status(DeleteBucketOutput::default(), http::StatusCode::NO_CONTENT))
}

/// Answers the bucket's region, or that of the store.
pub async fn head_bucket(
    store: &LocalStore,
    req: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    let name = req.input.bucket;
    let bucket = store.run_blocking(move |s| find_bucket(&s.open_view()?, &name)).await?;
    let region = bucket.location.unwrap_or_else(|| store.inner.options.region.clone());
    Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(region), ..Default::default() }))
}

/// Lists buckets by name. A page has at most 10,000 where the request asks for pages.
pub async fn list_buckets(
    store: &LocalStore,
    req: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let input = req.input;
    let max = match input.max_buckets {
        None => usize::MAX,
        Some(n @ 1..=10_000) => n as usize,
        Some(_) => {
            return Err(s3_error!(InvalidArgument, "max-buckets must be between 1 and 10000"));
        }
    };
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token.clone();
    let (buckets, continuation_token) = store
        .run_blocking(move |s| {
            let view = s.open_view()?;
            let from = match &after {
                Some(after) if after.as_str() >= prefix.as_str() => {
                    Bound::Excluded(after.as_bytes())
                }
                _ => Bound::Included(prefix.as_bytes()),
            };
            let mut rows = view.buckets_from(from).map_err(index_failed)?;
            let mut buckets: Vec<Bucket> = Vec::new();
            while let Some(row) = rows.next_entry().map_err(index_failed)? {
                let name = String::from_utf8_lossy(&row.key).into_owned();
                if !name.starts_with(&prefix) {
                    break;
                }
                if buckets.len() == max {
                    let last = buckets.last().and_then(|b| b.name.clone());
                    return Ok((buckets, last));
                }
                let record: BucketRecord = row.decode().map_err(index_failed)?;
                let creation_date = Some(s3_timestamp(record.created_ms));
                buckets.push(Bucket { bucket_region: None, creation_date, name: Some(name) });
            }
            Ok((buckets, None))
        })
        .await?;
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token,
        owner: Some(store_owner()),
        prefix: input.prefix,
    }))
}

/// Answers the constraint that the bucket was made with.
pub async fn get_bucket_location(
    store: &LocalStore,
    req: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    let name = req.input.bucket;
    let bucket = store.run_blocking(move |s| find_bucket(&s.open_view()?, &name)).await?;
    // An absent constraint is S3's name for us-east-1.
    let location_constraint = bucket.location.map(BucketLocationConstraint::from);
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}

/// Answers that versioning was never enabled. S3 says so by an empty answer.
pub async fn get_bucket_versioning(
    store: &LocalStore,
    req: S3Request<GetBucketVersioningInput>,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    let name = req.input.bucket;
    store.run_blocking(move |s| find_bucket(&s.open_view()?, &name)).await?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}
