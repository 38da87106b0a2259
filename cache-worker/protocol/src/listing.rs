//! Tells homes what a listing showed of their keys.

use serde::{Deserialize, Serialize};

use crate::ids::ObjectVolume;
use crate::object_open::HeadAttributes;

/// Tells a home what a listing showed of its keys. The home drops cached attributes that contradict
/// the listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingMessage {
    pub volume: ObjectVolume,
    pub entries: Vec<ListedEntry>,
}

/// Key of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedEntry {
    pub key: String,
    /// `None`: the object does not exist; its newest version is a delete marker.
    pub shown: Option<ListedAttributes>,
}

/// Attributes of an object in a listing. An absent field contradicts nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListedAttributes {
    /// Strong, quotes included.
    pub etag: Option<String>,
    pub bytes: Option<u64>,
    /// Milliseconds since 1970: listings are finer than `Last-Modified` is in some stores.
    pub last_modified_ms: Option<i64>,
}

impl ListedAttributes {
    /// Returns whether these attributes are of another state of the object. `Last-Modified` counts
    /// seconds: a store may have cut or rounded.
    pub fn contradicts_attributes(&self, attributes: &HeadAttributes) -> bool {
        let version = &attributes.version;
        let other_time = |(listed_ms, known): (i64, i64)| {
            let second = listed_ms.div_euclid(1000);
            known != second && !(known == second + 1 && listed_ms.rem_euclid(1000) > 0)
        };
        self.etag.as_ref().is_some_and(|etag| *etag != version.etag)
            || self.bytes.is_some_and(|bytes| bytes != version.bytes)
            || self.last_modified_ms.zip(attributes.last_modified).is_some_and(other_time)
    }
}
