//! Owns the tags of objects and buckets, and their rules.

use std::collections::HashSet;

use http::StatusCode;
use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use super::{check_key, check_version};
use crate::store::{LocalStore, find_bucket, find_record, no_such_bucket, no_such_key};

/// Most tags of an object (S3 user guide, "Categorizing your objects using tags").
const OBJECT_TAGS_MAX: usize = 10;
/// Most tags of a bucket (S3 user guide, "Using cost allocation S3 bucket tags").
const BUCKET_TAGS_MAX: usize = 50;
/// Most characters of a tag's key, and below it of its value (same source).
const KEY_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;

type TagPairList = Vec<(String, String)>;

/// Reads `x-amz-tagging`, which is written like a URL query.
pub fn parse_tagging_header(header: &str) -> S3Result<TagPairList> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_encoding::percent_decode_str(&text).decode_utf8();
        decoded
            .map(|t| t.into_owned())
            .map_err(|_| invalid_tag("The header 'x-amz-tagging' is not valid UTF-8."))
    };
    let mut tags = Vec::new();
    for pair in header.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        tags.push((decode(key)?, decode(value)?));
    }
    check_tags(&tags, OBJECT_TAGS_MAX)?;
    Ok(tags)
}

fn parse_tagging(tagging: Tagging, max: usize) -> S3Result<TagPairList> {
    let pair = |t: Tag| (t.key.unwrap_or_default(), t.value.unwrap_or_default());
    let tags: TagPairList = tagging.tag_set.into_iter().map(pair).collect();
    check_tags(&tags, max)?;
    Ok(tags)
}

fn check_tags(tags: &TagPairList, max: usize) -> S3Result<()> {
    if tags.len() > max {
        return Err(s3_error!(InvalidTag, "Tags cannot be more than {max}"));
    }
    let mut seen = HashSet::new();
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > KEY_CHARS_MAX {
            return Err(invalid_tag("The TagKey you have provided is invalid"));
        }
        if value.chars().count() > VALUE_CHARS_MAX {
            return Err(invalid_tag("The TagValue you have provided is invalid"));
        }
        if !seen.insert(key) {
            return Err(invalid_tag("Cannot provide multiple Tags with the same key"));
        }
    }
    Ok(())
}

fn invalid_tag(message: &'static str) -> S3Error {
    s3_error!(InvalidTag, "{message}")
}

fn to_dto(tags: TagPairList) -> TagSet {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

/// Answers the tags of an object. The set may be empty.
pub async fn get_object_tagging(
    store: &LocalStore,
    req: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let input = req.input;
    check_key(&input.key)?;
    check_version(input.version_id.as_deref())?;
    let record = store
        .run_blocking(move |s| find_record(&s.open_view()?, &input.bucket, &input.key))
        .await?;
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: to_dto(record.tags), version_id: None }))
}

/// Replaces all tags of an object. It may have 10.
pub async fn put_object_tagging(
    store: &LocalStore,
    req: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let input = req.input;
    check_key(&input.key)?;
    check_version(input.version_id.as_deref())?;
    let tags = parse_tagging(input.tagging, OBJECT_TAGS_MAX)?;
    set_object_tags(store, input.bucket, input.key, tags).await?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

/// Removes all tags of an object.
pub async fn delete_object_tagging(
    store: &LocalStore,
    req: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let input = req.input;
    check_key(&input.key)?;
    check_version(input.version_id.as_deref())?;
    set_object_tags(store, input.bucket, input.key, Vec::new()).await?;
    Ok(S3Response::with_status(DeleteObjectTaggingOutput::default(), StatusCode::NO_CONTENT))
}

/// Sets the tags. They are not part of a version: ETag and Last-Modified stay.
async fn set_object_tags(
    store: &LocalStore,
    bucket: String,
    key: String,
    tags: TagPairList,
) -> S3Result<()> {
    store
        .commit_change(move |tx| {
            let bucket = tx.bucket_record(&bucket)?.ok_or_else(|| no_such_bucket(&bucket))?;
            let mut record = tx.object_record(bucket.id, &key)?.ok_or_else(no_such_key)?;
            record.tags = tags;
            tx.update_object(bucket.id, &key, &record)
        })
        .await
}

/// Answers the tags of a bucket. Fails with NoSuchTagSet where it has none.
pub async fn get_bucket_tagging(
    store: &LocalStore,
    req: S3Request<GetBucketTaggingInput>,
) -> S3Result<S3Response<GetBucketTaggingOutput>> {
    let name = req.input.bucket;
    let bucket = store.run_blocking(move |s| find_bucket(&s.open_view()?, &name)).await?;
    if bucket.tags.is_empty() {
        return Err(s3_error!(NoSuchTagSet, "The TagSet does not exist"));
    }
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set: to_dto(bucket.tags) }))
}

/// Replaces all tags of a bucket. It may have 50.
pub async fn put_bucket_tagging(
    store: &LocalStore,
    req: S3Request<PutBucketTaggingInput>,
) -> S3Result<S3Response<PutBucketTaggingOutput>> {
    let tags = parse_tagging(req.input.tagging, BUCKET_TAGS_MAX)?;
    set_bucket_tags(store, req.input.bucket, tags).await?;
    Ok(S3Response::with_status(PutBucketTaggingOutput::default(), StatusCode::NO_CONTENT))
}

/// Removes all tags of a bucket.
pub async fn delete_bucket_tagging(
    store: &LocalStore,
    req: S3Request<DeleteBucketTaggingInput>,
) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
    set_bucket_tags(store, req.input.bucket, Vec::new()).await?;
    Ok(S3Response::with_status(DeleteBucketTaggingOutput::default(), StatusCode::NO_CONTENT))
}

async fn set_bucket_tags(store: &LocalStore, name: String, tags: TagPairList) -> S3Result<()> {
    store
        .commit_change(move |tx| {
            let mut bucket = tx.bucket_record(&name)?.ok_or_else(|| no_such_bucket(&name))?;
            bucket.tags = tags;
            tx.put_bucket(&name, &bucket)
        })
        .await
}
