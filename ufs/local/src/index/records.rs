//! Owns the records of the index and their encoding: a version byte, then postcard. Knows no table
//! and no file.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::blob::{BlobExtent, BlobId};
use crate::checksum::{ChecksumKind, ChecksumSet, S3ChecksumAlgorithm};

/// The first byte of every value. A change of any record's shape needs a new number, and code that
/// reads the old one.
const RECORD_VERSION: u8 = 1;

/// A sequence number of every object record ever written, so that two records of the same content
/// differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectSeq(pub u64);

/// The id that tells a bucket from an earlier one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketId(pub u64);

/// A bucket. Key: its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BucketRecord {
    pub id: BucketId,
    pub created_ms: i64,
    pub location: Option<String>,
    pub tags: Vec<(String, String)>,
}

/// Attributes that a client gives an object besides its bytes, and gets back with them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAttributes {
    pub cache_control: Option<String>,
    pub content_disposition: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    pub content_type: Option<String>,
    pub expires_s: Option<i64>,
    pub website_redirect: Option<String>,
    pub metadata: BTreeMap<String, String>,
}

/// The place of an object's bytes. Long lists are in a table of their own, so that listings stay
/// cheap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectLayout {
    Empty,
    One(BlobExtent),
    /// The list is in the layouts table, under the record's [`ObjectSeq`].
    Many,
}

/// An object's version. Key: bucket id and key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObjectRecord {
    pub seq: ObjectSeq,
    pub size: u64,
    pub etag: String,
    pub modified_ms: i64,
    pub storage_class: Option<String>,
    pub layout: ObjectLayout,
    /// 0 for an object that was not uploaded in parts.
    pub parts_count: u32,
    pub checksums: ChecksumSet,
    pub attributes: StoredAttributes,
    pub tags: Vec<(String, String)>,
}

/// A summary of one part of a completed object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PartSummary {
    pub number: u16,
    pub size: u64,
    pub checksums: ChecksumSet,
}

/// The long form of [`ObjectLayout::Many`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LayoutRecord {
    pub extents: Vec<BlobExtent>,
    pub parts: Vec<PartSummary>,
}

/// An unfinished multipart upload. Key: bucket id, key, upload id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UploadRecord {
    pub initiated_ms: i64,
    pub storage_class: Option<String>,
    pub attributes: StoredAttributes,
    pub tags: Vec<(String, String)>,
    pub algorithm: S3ChecksumAlgorithm,
    pub kind: ChecksumKind,
    /// True if the client named the algorithm. Otherwise S3 does not mention it in the upload's
    /// answers.
    pub algorithm_named: bool,
}

/// An uploaded part. Key: upload id and part number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PartRecord {
    pub size: u64,
    pub md5: [u8; 16],
    pub modified_ms: i64,
    pub extents: Vec<BlobExtent>,
    pub checksums: ChecksumSet,
}

/// Error for a value that could not be decoded.
#[derive(Debug, thiserror::Error)]
#[error(
    "an index record is damaged or of an unknown version ({what}); restore the store from a backup"
)]
pub struct RecordError {
    what: &'static str,
    #[source]
    source: Option<postcard::Error>,
}

impl RecordError {
    /// Makes the error for a missing row that another row refers to.
    pub fn missing_record(what: &'static str) -> Self {
        RecordError { what, source: None }
    }
}

/// Encodes a record: the version byte, then postcard.
pub fn encode_record<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![RECORD_VERSION])
        .expect("records hold nothing that postcard cannot write to memory")
}

/// Reads a record back. Fails on another version or a wrong form; `what` names the record in the
/// error.
pub fn decode_record<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, RecordError> {
    let Some((&RECORD_VERSION, body)) = bytes.split_first() else {
        return Err(RecordError { what, source: None });
    };
    postcard::from_bytes(body).map_err(|source| RecordError { what, source: Some(source) })
}

impl LayoutRecord {
    /// Returns the blobs of all extents, in order. A blob may come several times.
    pub fn blob_ids(&self) -> impl Iterator<Item = BlobId> + '_ {
        self.extents.iter().map(|e| e.blob)
    }
}
