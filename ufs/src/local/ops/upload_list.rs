//! ListMultipartUploads.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use super::list::{Encoding, page_size};
use super::part::initiator;
use super::{owner, timestamp};
use crate::local::index::UploadRecord;
use crate::local::listing::{Item, Page, Query, Space, Start, list};
use crate::local::store::{LocalStore, find_bucket, index_failed};

pub async fn list_multipart_uploads(
    store: &LocalStore,
    req: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let input = req.input;
    let encoding = Encoding::parse(input.encoding_type.as_ref())?;
    let max = page_size(input.max_uploads, store.inner.options.list_page_max)?;
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    let (prefix, delimiter) = (text(&input.prefix), text(&input.delimiter));
    // An upload id marker without a key marker is ignored (S3 API reference).
    let start = match (&input.key_marker, &input.upload_id_marker) {
        (Some(key), Some(id)) if !key.is_empty() && !id.is_empty() => {
            Start::AfterUpload(key.clone(), id.clone())
        }
        (key, _) => Start::from_marker(&text(key), &prefix, &delimiter),
    };
    let bucket = input.bucket.clone();
    let page = store
        .blocking(move |s| {
            let view = s.view()?;
            let bucket = find_bucket(&view, &bucket)?;
            let query = Query { prefix: &prefix, delimiter: &delimiter, start, max };
            let page: Page<UploadRecord> =
                list(&view, Space::Uploads, bucket.id, &query).map_err(index_failed)?;
            Ok(page)
        })
        .await?;
    let (next_key, next_id) = match page.next.clone() {
        None | Some(Start::First) => (None, None),
        Some(Start::AfterKey(key) | Start::AfterPrefix(key)) => (Some(key), None),
        Some(Start::AfterUpload(key, id)) => (Some(key), Some(id)),
    };
    let (mut uploads, mut prefixes) = (Vec::new(), Vec::new());
    for item in page.items {
        match item {
            Item::Prefix(prefix) => prefixes.push(prefix),
            Item::Entry { key, upload_id, record } => {
                uploads.push(upload(encoding.name(key), upload_id, record))
            }
        }
    }
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        common_prefixes: encoding.prefixes(prefixes),
        delimiter: encoding.echo(input.delimiter),
        encoding_type: input.encoding_type,
        is_truncated: Some(page.next.is_some()),
        key_marker: Some(encoding.name(input.key_marker.unwrap_or_default())),
        max_uploads: Some(i32::try_from(max).unwrap_or(i32::MAX)),
        next_key_marker: encoding.echo(next_key),
        next_upload_id_marker: next_id,
        prefix: Some(encoding.name(input.prefix.unwrap_or_default())),
        request_charged: None,
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        uploads: Some(uploads),
    }))
}

fn upload(key: String, id: String, record: UploadRecord) -> MultipartUpload {
    let class = record.storage_class.unwrap_or_else(|| "STANDARD".to_owned());
    let named = record.algorithm_named;
    MultipartUpload {
        checksum_algorithm: named.then(|| ChecksumAlgorithm::from_static(record.algorithm.name())),
        checksum_type: named.then(|| record.kind.to_dto()),
        initiated: Some(timestamp(record.initiated_ms)),
        initiator: Some(initiator()),
        key: Some(key),
        owner: Some(owner()),
        storage_class: Some(StorageClass::from(class)),
        upload_id: Some(id),
    }
}
