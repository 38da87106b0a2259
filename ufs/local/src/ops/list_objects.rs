//! Owns ListObjects, ListObjectsV2 and ListObjectVersions.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::{s3_timestamp, signed_size, store_owner, strong_etag};
use crate::index::ObjectRecord;
use crate::listing::{
    ListingItem, ListingPage, ListingQuery, ListingSpace, ListingStart, read_page, url_encode,
};
use crate::store::{LocalStore, find_bucket, index_failed};

/// The encoding of names in an answer: none, or `url`.
#[derive(Clone, Copy)]
pub struct NameEncoding(bool);

impl NameEncoding {
    /// Reads `encoding-type`. Fails with InvalidArgument for anything but `url`.
    pub fn parse(given: Option<&EncodingType>) -> S3Result<Self> {
        match given.map(EncodingType::as_str) {
            None => Ok(NameEncoding(false)),
            Some(EncodingType::URL) => Ok(NameEncoding(true)),
            Some(_) => {
                Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request"))
            }
        }
    }

    /// Encodes a name for the answer.
    pub fn encode_name(self, text: String) -> String {
        if self.0 { url_encode(&text) } else { text }
    }

    /// Encodes a name that the answer repeats from the request.
    pub fn echo_name(self, text: Option<String>) -> Option<String> {
        text.map(|t| self.encode_name(t))
    }

    /// Encodes the common prefixes for the answer. Returns `None` where there are none.
    pub fn encode_prefixes(self, prefixes: Vec<String>) -> Option<CommonPrefixList> {
        let one = |p| CommonPrefix { prefix: Some(self.encode_name(p)) };
        (!prefixes.is_empty()).then(|| prefixes.into_iter().map(one).collect())
    }
}

/// Returns how many entries a request may have.
pub fn page_size(asked: Option<i32>, page_max: usize) -> S3Result<usize> {
    let asked = asked.unwrap_or(1000);
    let asked = usize::try_from(asked)
        .map_err(|_| s3_error!(InvalidArgument, "max-keys must not be negative"))?;
    Ok(asked.min(page_max))
}

/// The fields that the requests of the three operations share.
struct LocalListRequest<'a> {
    bucket: &'a str,
    prefix: &'a Option<String>,
    delimiter: &'a Option<String>,
    encoding_type: &'a Option<EncodingType>,
    max_keys: Option<i32>,
}

/// Collects the fields that their inputs share. They have the same names there, but no common type.
macro_rules! ask {
    ($input:expr) => {
        LocalListRequest {
            bucket: &$input.bucket,
            prefix: &$input.prefix,
            delimiter: &$input.delimiter,
            encoding_type: &$input.encoding_type,
            max_keys: $input.max_keys,
        }
    };
}

/// One page of a bucket's objects.
struct LocalListPage {
    entries: Vec<(String, ObjectRecord)>,
    prefixes: Vec<String>,
    next: Option<ListingStart>,
    /// The last name of the page, entry or prefix.
    last: Option<String>,
    encoding: NameEncoding,
    /// Most entries that the page might have.
    max: i32,
}

impl LocalListRequest<'_> {
    /// Returns where the page after a marker begins.
    fn start_after(&self, marker: &Option<String>) -> ListingStart {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        ListingStart::from_marker(&text(marker), &text(self.prefix), &text(self.delimiter))
    }

    async fn read_page(&self, store: &LocalStore, start: ListingStart) -> S3Result<LocalListPage> {
        let encoding = NameEncoding::parse(self.encoding_type.as_ref())?;
        let max = page_size(self.max_keys, store.inner.options.list_page_max)?;
        let (bucket, prefix, delimiter) =
            (self.bucket.to_owned(), self.prefix.clone(), self.delimiter.clone());
        let page = store.run_blocking(move |s| {
            let view = s.open_view()?;
            let bucket = find_bucket(&view, &bucket)?;
            let (prefix, delimiter) =
                (prefix.as_deref().unwrap_or_default(), delimiter.as_deref().unwrap_or_default());
            read_page(
                &view,
                ListingSpace::Objects,
                bucket.id,
                &ListingQuery { prefix, delimiter, start, max },
            )
            .map_err(index_failed)
        });
        let page: ListingPage<ObjectRecord> = page.await?;
        let last = page.items.last().map(|item| match item {
            ListingItem::Entry { key, .. } => key.clone(),
            ListingItem::Prefix(prefix) => prefix.clone(),
        });
        let (mut entries, mut prefixes) = (Vec::new(), Vec::new());
        for item in page.items {
            match item {
                ListingItem::Entry { key, record, .. } => entries.push((key, record)),
                ListingItem::Prefix(prefix) => prefixes.push(prefix),
            }
        }
        let max = i32::try_from(max).unwrap_or(i32::MAX);
        Ok(LocalListPage { entries, prefixes, next: page.next, last, encoding, max })
    }
}

fn object_entry(
    key: String,
    record: ObjectRecord,
    encoding: NameEncoding,
    with_owner: bool,
) -> Object {
    let class = record.storage_class.unwrap_or_else(|| "STANDARD".to_owned());
    Object {
        checksum_algorithm: checksum_algorithms(&record.checksums),
        checksum_type: record.checksums.kind.map(|k| k.to_dto()),
        e_tag: Some(strong_etag(&record.etag)),
        key: Some(encoding.encode_name(key)),
        last_modified: Some(s3_timestamp(record.modified_ms)),
        owner: with_owner.then(store_owner),
        restore_status: None,
        size: Some(signed_size(record.size)),
        storage_class: Some(ObjectStorageClass::from(class)),
    }
}

fn checksum_algorithms(sums: &crate::checksum::ChecksumSet) -> Option<ChecksumAlgorithmList> {
    let names: Vec<_> =
        sums.known_algorithms().map(|a| ChecksumAlgorithm::from_static(a.s3_name())).collect();
    (!names.is_empty()).then_some(names)
}

/// Lists a page of objects by marker.
pub async fn list_objects(
    store: &LocalStore,
    req: S3Request<ListObjectsInput>,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let input = req.input;
    let ask = ask!(input);
    let listed = ask.read_page(store, ask.start_after(&input.marker)).await?;
    let encoding = listed.encoding;
    let delimited = input.delimiter.as_ref().is_some_and(|d| !d.is_empty());
    let truncated = listed.next.is_some();
    let contents =
        listed.entries.into_iter().map(|(k, r)| object_entry(k, r, encoding, true)).collect();
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(encoding.encode_name(input.prefix.unwrap_or_default())),
        marker: Some(encoding.encode_name(input.marker.unwrap_or_default())),
        max_keys: Some(listed.max),
        is_truncated: Some(truncated),
        contents: Some(contents),
        common_prefixes: encoding.encode_prefixes(listed.prefixes),
        delimiter: encoding.echo_name(input.delimiter),
        // S3 sends it with a delimiter only. Without one the last key is the marker.
        next_marker: listed
            .last
            .filter(|_| truncated && delimited)
            .map(|l| encoding.encode_name(l)),
        encoding_type: input.encoding_type,
        request_charged: None,
    }))
}

/// Lists a page of objects by continuation token. The token outranks `start-after`.
pub async fn list_objects_v2(
    store: &LocalStore,
    req: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let input = req.input;
    let ask = ask!(input);
    let start = match &input.continuation_token {
        Some(token) => ListingStart::from_token(token).ok_or_else(|| {
            s3_error!(InvalidArgument, "The continuation token provided is incorrect")
        })?,
        None => ask.start_after(&input.start_after),
    };
    let listed = ask.read_page(store, start).await?;
    let encoding = listed.encoding;
    let with_owner = input.fetch_owner.unwrap_or(false);
    let count = listed.entries.len() + listed.prefixes.len();
    let contents: Vec<_> =
        listed.entries.into_iter().map(|(k, r)| object_entry(k, r, encoding, with_owner)).collect();
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(encoding.encode_name(input.prefix.unwrap_or_default())),
        max_keys: Some(listed.max),
        key_count: Some(i32::try_from(count).unwrap_or(i32::MAX)),
        continuation_token: input.continuation_token,
        is_truncated: Some(listed.next.is_some()),
        next_continuation_token: listed.next.map(|next| next.to_token()),
        contents: (!contents.is_empty()).then_some(contents),
        common_prefixes: encoding.encode_prefixes(listed.prefixes),
        delimiter: encoding.echo_name(input.delimiter),
        encoding_type: input.encoding_type,
        start_after: encoding.echo_name(input.start_after),
        request_charged: None,
    }))
}

/// Lists every object as the one version, `null`, of its key.
pub async fn list_object_versions(
    store: &LocalStore,
    req: S3Request<ListObjectVersionsInput>,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    let input = req.input;
    if input.version_id_marker.is_some() && input.key_marker.is_none() {
        return Err(s3_error!(
            InvalidArgument,
            "A version-id marker cannot be specified without a key marker."
        ));
    }
    let ask = ask!(input);
    let listed = ask.read_page(store, ask.start_after(&input.key_marker)).await?;
    let encoding = listed.encoding;
    let truncated = listed.next.is_some();
    let at_key = matches!(&listed.next, Some(ListingStart::AfterKey(_)));
    let versions = listed.entries.into_iter().map(|(key, record)| ObjectVersion {
        checksum_algorithm: checksum_algorithms(&record.checksums),
        checksum_type: record.checksums.kind.map(|k| k.to_dto()),
        e_tag: Some(strong_etag(&record.etag)),
        is_latest: Some(true),
        key: Some(encoding.encode_name(key)),
        last_modified: Some(s3_timestamp(record.modified_ms)),
        owner: Some(store_owner()),
        restore_status: None,
        size: Some(signed_size(record.size)),
        storage_class: Some(record.storage_class.unwrap_or_else(|| "STANDARD".to_owned()).into()),
        version_id: Some("null".to_owned()),
    });
    Ok(S3Response::new(ListObjectVersionsOutput {
        common_prefixes: encoding.encode_prefixes(listed.prefixes),
        delete_markers: None,
        delimiter: encoding.echo_name(input.delimiter),
        encoding_type: input.encoding_type,
        is_truncated: Some(truncated),
        key_marker: Some(encoding.encode_name(input.key_marker.unwrap_or_default())),
        max_keys: Some(listed.max),
        name: Some(input.bucket),
        next_key_marker: listed.last.filter(|_| truncated).map(|l| encoding.encode_name(l)),
        next_version_id_marker: (truncated && at_key).then(|| "null".to_owned()),
        prefix: Some(encoding.encode_name(input.prefix.unwrap_or_default())),
        request_charged: None,
        version_id_marker: input.version_id_marker,
        versions: Some(versions.collect()),
    }))
}
