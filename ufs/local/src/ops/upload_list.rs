//! Owns ListMultipartUploads.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use super::list_objects::{NameEncoding, page_size};
use super::part::upload_initiator;
use super::{s3_timestamp, store_owner};
use crate::index::UploadRecord;
use crate::listing::{
    ListingItem, ListingPage, ListingQuery, ListingSpace, ListingStart, read_page,
};
use crate::store::{LocalStore, find_bucket, index_failed};

/// Lists a page of the uploads that are neither completed nor aborted.
pub async fn list_multipart_uploads(
    store: &LocalStore,
    req: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let input = req.input;
    let encoding = NameEncoding::parse(input.encoding_type.as_ref())?;
    let max = page_size(input.max_uploads, store.inner.options.list_page_max)?;
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    let (prefix, delimiter) = (text(&input.prefix), text(&input.delimiter));
    // An upload id marker without a key marker is ignored (S3 API reference).
    let start = match (&input.key_marker, &input.upload_id_marker) {
        (Some(key), Some(id)) if !key.is_empty() && !id.is_empty() => {
            ListingStart::AfterUpload(key.clone(), id.clone())
        }
        (key, _) => ListingStart::from_marker(&text(key), &prefix, &delimiter),
    };
    let bucket = input.bucket.clone();
    let page = store
        .run_blocking(move |s| {
            let view = s.open_view()?;
            let bucket = find_bucket(&view, &bucket)?;
            let query = ListingQuery { prefix: &prefix, delimiter: &delimiter, start, max };
            let page: ListingPage<UploadRecord> =
                read_page(&view, ListingSpace::Uploads, bucket.id, &query).map_err(index_failed)?;
            Ok(page)
        })
        .await?;
    let (next_key, next_id) = match page.next.clone() {
        None | Some(ListingStart::First) => (None, None),
        Some(ListingStart::AfterKey(key) | ListingStart::AfterPrefix(key)) => (Some(key), None),
        Some(ListingStart::AfterUpload(key, id)) => (Some(key), Some(id)),
    };
    let (mut uploads, mut prefixes) = (Vec::new(), Vec::new());
    for item in page.items {
        match item {
            ListingItem::Prefix(prefix) => prefixes.push(prefix),
            ListingItem::Entry { key, upload_id, record } => {
                uploads.push(upload_entry(encoding.encode_name(key), upload_id, record))
            }
        }
    }
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        common_prefixes: encoding.encode_prefixes(prefixes),
        delimiter: encoding.echo_name(input.delimiter),
        encoding_type: input.encoding_type,
        is_truncated: Some(page.next.is_some()),
        key_marker: Some(encoding.encode_name(input.key_marker.unwrap_or_default())),
        max_uploads: Some(i32::try_from(max).unwrap_or(i32::MAX)),
        next_key_marker: encoding.echo_name(next_key),
        next_upload_id_marker: next_id,
        prefix: Some(encoding.encode_name(input.prefix.unwrap_or_default())),
        request_charged: None,
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        uploads: Some(uploads),
    }))
}

fn upload_entry(key: String, id: String, record: UploadRecord) -> MultipartUpload {
    let class = record.storage_class.unwrap_or_else(|| "STANDARD".to_owned());
    let named = record.algorithm_named;
    MultipartUpload {
        checksum_algorithm: named
            .then(|| ChecksumAlgorithm::from_static(record.algorithm.s3_name())),
        checksum_type: named.then(|| record.kind.to_dto()),
        initiated: Some(s3_timestamp(record.initiated_ms)),
        initiator: Some(upload_initiator()),
        key: Some(key),
        owner: Some(store_owner()),
        storage_class: Some(StorageClass::from(class)),
        upload_id: Some(id),
    }
}
