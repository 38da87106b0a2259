//! The vocabulary of the cases: requests without HTTP, and short forms of the common ones.

use bytes::Bytes;
use futures::StreamExt;
use http::Method;
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Result};

/// A request as a handler sees it.
pub fn req<T>(input: T) -> S3Request<T> {
    verbs3_ufs::s3_request(Method::GET, input)
}

/// A body that arrives in pieces of 1000 bytes and does not announce its length.
pub fn body(bytes: &[u8]) -> StreamingBlob {
    let pieces: Vec<_> =
        bytes.chunks(1000).map(|c| Ok::<_, std::io::Error>(Bytes::copy_from_slice(c))).collect();
    StreamingBlob::wrap(futures::stream::iter(pieces))
}

/// Bytes that differ at every position of every object, so that mixed-up extents show.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&next().to_le_bytes());
    }
    out.truncate(len);
    out
}

pub fn put_input(bucket: &str, key: &str, bytes: &[u8]) -> PutObjectInput {
    PutObjectInput {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        content_length: Some(bytes.len() as i64),
        body: Some(body(bytes)),
        ..Default::default()
    }
}

pub fn get_input(bucket: &str, key: &str) -> GetObjectInput {
    GetObjectInput { bucket: bucket.to_owned(), key: key.to_owned(), ..Default::default() }
}

pub fn head_input(bucket: &str, key: &str) -> HeadObjectInput {
    HeadObjectInput { bucket: bucket.to_owned(), key: key.to_owned(), ..Default::default() }
}

pub async fn make_bucket(s3: &dyn S3, bucket: &str) {
    let input = CreateBucketInput { bucket: bucket.to_owned(), ..Default::default() };
    s3.create_bucket(req(input)).await.unwrap();
}

/// Puts an object and returns its ETag.
pub async fn put(s3: &dyn S3, bucket: &str, key: &str, bytes: &[u8]) -> String {
    let output = s3.put_object(req(put_input(bucket, key, bytes))).await.unwrap().output;
    output.e_tag.unwrap().value().to_owned()
}

pub async fn read_body(body: Option<StreamingBlob>) -> S3Result<Vec<u8>> {
    let mut out = Vec::new();
    let Some(mut body) = body else { return Ok(out) };
    while let Some(piece) = body.next().await {
        out.extend_from_slice(&piece.map_err(|e| s3s::s3_error!(InternalError, "{e}"))?);
    }
    Ok(out)
}

pub async fn get(s3: &dyn S3, bucket: &str, key: &str) -> S3Result<Vec<u8>> {
    let output = s3.get_object(req(get_input(bucket, key))).await?.output;
    read_body(output.body).await
}

pub async fn get_range(
    s3: &dyn S3,
    bucket: &str,
    key: &str,
    range: &str,
) -> S3Result<(u16, String, Vec<u8>)> {
    let input =
        GetObjectInput { range: Some(Range::parse(range).unwrap()), ..get_input(bucket, key) };
    let response = s3.get_object(req(input)).await?;
    let status = response.status.map_or(0, |s| s.as_u16());
    let content_range = response.output.content_range.unwrap_or_default();
    let length = response.output.content_length.unwrap();
    let bytes = read_body(response.output.body).await?;
    assert_eq!(length as usize, bytes.len());
    Ok((status, content_range, bytes))
}

pub async fn delete(s3: &dyn S3, bucket: &str, key: &str) -> S3Result<()> {
    let input =
        DeleteObjectInput { bucket: bucket.to_owned(), key: key.to_owned(), ..Default::default() };
    s3.delete_object(req(input)).await.map(drop)
}

/// The one page that a listing has.
pub async fn list(s3: &dyn S3, input: ListObjectsV2Input) -> ListObjectsV2Output {
    s3.list_objects_v2(req(input)).await.unwrap().output
}

pub async fn keys(s3: &dyn S3, bucket: &str) -> Vec<String> {
    let input = ListObjectsV2Input { bucket: bucket.to_owned(), ..Default::default() };
    names(&list(s3, input).await.contents.unwrap_or_default())
}

pub fn names(objects: &[Object]) -> Vec<String> {
    objects.iter().map(|o| o.key.clone().unwrap()).collect()
}

pub fn prefixes(prefixes: Option<CommonPrefixList>) -> Vec<String> {
    prefixes.unwrap_or_default().into_iter().map(|p| p.prefix.unwrap()).collect()
}

pub async fn start_upload(s3: &dyn S3, bucket: &str, key: &str) -> String {
    let input = CreateMultipartUploadInput {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        ..Default::default()
    };
    s3.create_multipart_upload(req(input)).await.unwrap().output.upload_id.unwrap()
}

pub fn part_input(bucket: &str, key: &str, id: &str, number: i32, bytes: &[u8]) -> UploadPartInput {
    UploadPartInput {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        upload_id: id.to_owned(),
        part_number: number,
        content_length: Some(bytes.len() as i64),
        body: Some(body(bytes)),
        ..Default::default()
    }
}

pub async fn upload_part(
    s3: &dyn S3,
    bucket: &str,
    key: &str,
    id: &str,
    number: i32,
    bytes: &[u8],
) -> CompletedPart {
    let output =
        s3.upload_part(req(part_input(bucket, key, id, number, bytes))).await.unwrap().output;
    CompletedPart { e_tag: output.e_tag, part_number: Some(number), ..Default::default() }
}

pub fn complete_input(
    bucket: &str,
    key: &str,
    id: &str,
    parts: &[CompletedPart],
) -> CompleteMultipartUploadInput {
    CompleteMultipartUploadInput {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        upload_id: id.to_owned(),
        multipart_upload: Some(CompletedMultipartUpload { parts: Some(parts.to_vec()) }),
        ..Default::default()
    }
}

pub async fn complete(
    s3: &dyn S3,
    bucket: &str,
    key: &str,
    id: &str,
    parts: &[CompletedPart],
) -> S3Result<CompleteMultipartUploadOutput> {
    Ok(s3.complete_multipart_upload(req(complete_input(bucket, key, id, parts))).await?.output)
}

/// Uploads an object of parts and returns its ETag.
pub async fn put_in_parts(s3: &dyn S3, bucket: &str, key: &str, parts: &[&[u8]]) -> String {
    let id = start_upload(s3, bucket, key).await;
    let mut done = Vec::new();
    for (at, bytes) in parts.iter().enumerate() {
        done.push(upload_part(s3, bucket, key, &id, at as i32 + 1, bytes).await);
    }
    complete(s3, bucket, key, &id, &done).await.unwrap().e_tag.unwrap().value().to_owned()
}

/// A refusal's code and status.
pub fn refusal<T>(result: S3Result<T>) -> (String, u16) {
    match result {
        Ok(_) => ("OK".to_owned(), 200),
        Err(e) => code(&e),
    }
}

pub fn code(e: &S3Error) -> (String, u16) {
    (e.code().as_str().to_owned(), e.status_code().map_or(500, |s| s.as_u16()))
}

pub fn header(e: &S3Error, name: &str) -> String {
    let value = e.headers().and_then(|h| h.get(name)).map(|v| v.to_str().unwrap().to_owned());
    value.unwrap_or_default()
}
