//! Passes listings on, and tells the keys' homes what they show. The homes drop attributes and
//! absences that a listing contradicts. Owns what an entry says of its object. Listings of uploads
//! are not handled here: they say nothing about objects.

use percent_encoding::percent_decode_str;
use s3s::dto::{
    ETag, EncodingType, ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput,
    ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, Object, Timestamp,
};
use s3s::{S3Request, S3Response, S3Result};
use time::OffsetDateTime;
use verbs3_protocol::{ListedAttributes, ListedEntry};

use super::operation_core::{OperationCore, send_to_ufs};
use super::operation_input::TableOperation;

/// A listing of objects.
pub(super) trait ObjectListing: TableOperation {
    /// Returns its entries, with the UFS's names.
    fn listed_entries(output: &Self::Output) -> Vec<ListedEntry>;
}

pub(super) async fn pass_listing<R: ObjectListing>(
    core: &OperationCore,
    mut request: S3Request<R>,
) -> S3Result<S3Response<R::Output>> {
    let entry = core.authorize_request(&mut request)?;
    core.rewrite_names(&entry, &mut request)?;
    let place = entry.exchange.take_store_place(&entry.mount.ufs).await?;
    let (result, raw) = send_to_ufs(&entry, request).await;
    drop(place);
    if let Ok(response) = &result {
        let entries = R::listed_entries(&response.output);
        if !entries.is_empty() {
            // Tell the homes before the client has the listing, so that its next reads are not
            // older.
            core.homes.report_listing(&entry.mount.volume, entries).await;
        }
    }
    core.conclude_response::<R>(&entry, result, raw)
}

impl ObjectListing for ListObjectsInput {
    fn listed_entries(output: &ListObjectsOutput) -> Vec<ListedEntry> {
        object_entries(output.contents.as_deref(), output.encoding_type.as_ref())
    }
}

impl ObjectListing for ListObjectsV2Input {
    fn listed_entries(output: &ListObjectsV2Output) -> Vec<ListedEntry> {
        object_entries(output.contents.as_deref(), output.encoding_type.as_ref())
    }
}

impl ObjectListing for ListObjectVersionsInput {
    /// Returns the newest version of each key.
    fn listed_entries(output: &ListObjectVersionsOutput) -> Vec<ListedEntry> {
        let encoding = output.encoding_type.as_ref();
        let versions =
            output.versions.iter().flatten().filter(|version| version.is_latest == Some(true));
        let versions = versions.filter_map(|version| {
            let shown = listed_attributes(
                version.e_tag.as_ref(),
                version.size,
                version.last_modified.as_ref(),
            );
            listed_entry(version.key.as_deref(), encoding, Some(shown))
        });
        let markers =
            output.delete_markers.iter().flatten().filter(|marker| marker.is_latest == Some(true));
        versions
            .chain(markers.filter_map(|marker| listed_entry(marker.key.as_deref(), encoding, None)))
            .collect()
    }
}

fn object_entries(objects: Option<&[Object]>, encoding: Option<&EncodingType>) -> Vec<ListedEntry> {
    let entry = |object: &Object| {
        let shown =
            listed_attributes(object.e_tag.as_ref(), object.size, object.last_modified.as_ref());
        listed_entry(object.key.as_deref(), encoding, Some(shown))
    };
    objects.unwrap_or_default().iter().filter_map(entry).collect()
}

/// Makes an entry. `None`: it names no key that could be cached.
fn listed_entry(
    key: Option<&str>,
    encoding: Option<&EncodingType>,
    shown: Option<ListedAttributes>,
) -> Option<ListedEntry> {
    let key = key?;
    let is_url = encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL);
    let key = match is_url {
        // S3 writes a space as `+`.
        true => percent_decode_str(&key.replace('+', " ")).decode_utf8().ok()?.into_owned(),
        false => key.to_owned(),
    };
    Some(ListedEntry { key, shown })
}

fn listed_attributes(
    etag: Option<&ETag>,
    size: Option<i64>,
    modified: Option<&Timestamp>,
) -> ListedAttributes {
    let milliseconds = |time: &Timestamp| {
        i64::try_from(
            OffsetDateTime::from(time.clone()).unix_timestamp_nanos().div_euclid(1_000_000),
        )
        .ok()
    };
    ListedAttributes {
        // Objects with a weak ETag are not cached.
        etag: etag.and_then(|etag| match etag {
            ETag::Strong(value) => Some(format!("\"{value}\"")),
            ETag::Weak(_) => None,
        }),
        bytes: size.and_then(|size| u64::try_from(size).ok()),
        last_modified_ms: modified.and_then(milliseconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::dto::{DeleteMarkerEntry, ObjectVersion};

    fn key(name: &str, encoding: Option<&'static str>) -> Option<String> {
        listed_entry(Some(name), encoding.map(EncodingType::from_static).as_ref(), None)
            .map(|entry| entry.key)
    }

    #[test]
    fn keys_are_decoded_where_the_listing_is_encoded() {
        assert_eq!(key("a%2Bb+c/%C3%BC", Some("url")).as_deref(), Some("a+b c/ü"));
        assert_eq!(key("a%2Bb+c", None).as_deref(), Some("a%2Bb+c"));
        assert_eq!(key("%ff", Some("url")), None);
    }

    #[test]
    fn an_entry_says_what_the_attributes_would() {
        let modified =
            Timestamp::from(OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(1500));
        let strong = listed_attributes(Some(&ETag::Strong("e".into())), Some(5), Some(&modified));
        assert_eq!(
            strong,
            ListedAttributes {
                etag: Some("\"e\"".into()),
                bytes: Some(5),
                last_modified_ms: Some(1500)
            }
        );
        assert_eq!(
            listed_attributes(Some(&ETag::Weak("e".into())), None, None),
            ListedAttributes::default()
        );
    }

    #[test]
    fn of_versions_the_newest_alone_is_told() {
        let version = |key: &str, is_latest| ObjectVersion {
            key: Some(key.into()),
            is_latest: Some(is_latest),
            ..ObjectVersion::default()
        };
        let marker = |key: &str, is_latest| DeleteMarkerEntry {
            key: Some(key.into()),
            is_latest: Some(is_latest),
            ..DeleteMarkerEntry::default()
        };
        let output = ListObjectVersionsOutput {
            versions: Some(vec![version("a", false), version("b", true)]),
            delete_markers: Some(vec![marker("a", true), marker("c", false)]),
            ..ListObjectVersionsOutput::default()
        };
        let told = ListObjectVersionsInput::listed_entries(&output);
        let told: Vec<_> =
            told.iter().map(|entry| (entry.key.as_str(), entry.shown.is_some())).collect();
        assert_eq!(told, [("b", true), ("a", false)]);
    }
}
