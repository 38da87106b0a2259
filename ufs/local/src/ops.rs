//! Owns S3's operations, one file per family. This file has what several families need: checks of a
//! request, and the translation between records and answers.

pub mod absent_configuration;
pub mod acl;
pub mod attributes;
pub mod body_receiver;
pub mod bucket;
pub mod copy;
pub mod delete;
pub mod list_objects;
pub mod multipart;
pub mod part;
pub mod part_number;
pub mod read;
pub mod tagging;
pub mod upload_list;
pub mod write;

use std::collections::{BTreeMap, HashMap};

use s3s::dto::{ETag, Owner, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use time::OffsetDateTime;

/// The longest key, in bytes (S3 user guide, "Naming Amazon S3 objects").
const KEY_BYTES_MAX: usize = 1024;
/// The most user metadata, in bytes of names and values (S3 user guide, "Working with object
/// metadata").
const METADATA_BYTES_MAX: usize = 2048;
/// Id of the one owner of everything here; 64 hexadecimal digits like AWS's canonical user ids.
const OWNER_ID: &str = "7665726273337665726273337665726273337665726273337665726273337665";

/// The storage classes of S3. Here they are a label: reads never need a restore.
const STORAGE_CLASSES: [&str; 11] = [
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "GLACIER_IR",
    "SNOW",
    "EXPRESS_ONEZONE",
];

/// Returns the one owner of everything in this store.
pub fn store_owner() -> Owner {
    Owner { display_name: Some("verbs3".to_owned()), id: Some(OWNER_ID.to_owned()) }
}

/// Returns a time in whole seconds, like S3's.
pub fn s3_timestamp(ms: i64) -> Timestamp {
    OffsetDateTime::from_unix_timestamp(ms.div_euclid(1000))
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .into()
}

/// Returns the tag in strong form. `value` has no quotes.
pub fn strong_etag(value: &str) -> ETag {
    ETag::Strong(value.to_owned())
}

/// Makes S3's 501 answer. `what` completes the sentence "does not implement".
pub fn not_implemented(what: &str) -> S3Error {
    s3_error!(NotImplemented, "The embedded store does not implement {what}.")
}

/// Makes an error with a code that s3s has no name for.
pub fn custom_error(code: &str, status: http::StatusCode, message: &'static str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.to_owned().into()), message);
    error.set_status_code(status);
    error
}

/// Refuses an empty key, and one that is longer than S3 allows.
pub fn check_key(key: &str) -> S3Result<()> {
    match key.len() {
        0 => Err(s3_error!(InvalidArgument, "Object keys cannot be empty.")),
        1..=KEY_BYTES_MAX => Ok(()),
        _ => Err(s3_error!(
            KeyTooLongError,
            "Your key is too long; it may have {KEY_BYTES_MAX} bytes."
        )),
    }
}

/// Refuses every version but `null`: buckets here are unversioned.
pub fn check_version(version_id: Option<&str>) -> S3Result<()> {
    match version_id {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion, "The specified version does not exist.")),
    }
}

/// Reads a storage class of S3. `None` means STANDARD; the class has no effect.
pub fn check_storage_class(class: Option<&str>) -> S3Result<Option<String>> {
    match class {
        None | Some("STANDARD") => Ok(None),
        Some(class) if STORAGE_CLASSES.contains(&class) => Ok(Some(class.to_owned())),
        Some(_) => {
            Err(s3_error!(InvalidStorageClass, "The storage class you specified is not valid."))
        }
    }
}

/// Accepts only the canned ACLs that change nothing. Access is not decided here.
pub fn check_canned_acl(acl: Option<&str>) -> S3Result<()> {
    match acl {
        None | Some("private" | "bucket-owner-full-control" | "bucket-owner-read") => Ok(()),
        Some(other) => Err(not_implemented(&format!("the canned ACL {other}"))),
    }
}

/// Refuses headers whose promise could not be kept: encryption, locks, grants.
macro_rules! refuse_unkept_promises {
    ($input:expr; $($field:ident),* $(,)?) => {
        $(if $input.$field.is_some() {
            let field = concat!("the request field ", stringify!($field));
            return Err($crate::ops::not_implemented(field));
        })*
    };
}
pub(super) use refuse_unkept_promises;

/// Sorts the user metadata. Fails when names and values together are longer than S3 allows.
pub fn check_metadata(
    metadata: Option<HashMap<String, String>>,
) -> S3Result<BTreeMap<String, String>> {
    let metadata: BTreeMap<_, _> = metadata.unwrap_or_default().into_iter().collect();
    let bytes: usize = metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
    if bytes > METADATA_BYTES_MAX {
        return Err(s3_error!(
            MetadataTooLarge,
            "Your metadata headers exceed {METADATA_BYTES_MAX} bytes."
        ));
    }
    Ok(metadata)
}

/// Reads the attributes out of an input of PutObject, CopyObject or CreateMultipartUpload.
macro_rules! given_attributes {
    ($input:expr) => {
        $crate::index::StoredAttributes {
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $crate::ops::without_aws_chunked($input.content_encoding.take()),
            content_language: $input.content_language.take(),
            content_type: $input.content_type.take(),
            expires_s: $input
                .expires
                .take()
                .map(|t| time::OffsetDateTime::from(t).unix_timestamp()),
            website_redirect: $input.website_redirect_location.take(),
            metadata: $crate::ops::check_metadata($input.metadata.take())?,
        }
    };
}
pub(super) use given_attributes;

/// Removes `aws-chunked`. It says how the request was sent, not what the object is; S3 does not
/// store it.
pub fn without_aws_chunked(encoding: Option<String>) -> Option<String> {
    let encoding = encoding?;
    let kept: Vec<_> = encoding
        .split(',')
        .map(str::trim)
        .filter(|token| !token.is_empty() && !token.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!kept.is_empty()).then(|| kept.join(", "))
}

/// Fills the attribute fields of a GetObject or HeadObject answer.
macro_rules! put_attributes {
    ($attributes:expr => $output:expr) => {{
        let a = $attributes;
        $output.cache_control = a.cache_control;
        $output.content_disposition = a.content_disposition;
        $output.content_encoding = a.content_encoding;
        $output.content_language = a.content_language;
        $output.content_type = Some($crate::ops::content_type(a.content_type));
        $output.expires = a.expires_s.map(|s| $crate::ops::s3_timestamp(s.saturating_mul(1000)));
        $output.website_redirect_location = a.website_redirect;
        $output.metadata = (!a.metadata.is_empty()).then(|| a.metadata.into_iter().collect());
    }};
}
pub(super) use put_attributes;

/// Returns the content type. An object without one gets S3's default.
pub fn content_type(given: Option<String>) -> String {
    given.unwrap_or_else(|| "binary/octet-stream".to_owned())
}

/// Converts a size. It always fits: an object of more than 2^63 bytes cannot be written.
pub fn signed_size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
