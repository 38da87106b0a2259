//! What a body is, and what a store's answer says of it.

use s3s::dto::ETag;
use verbs3_protocol::{ContentVersion, StatedVersion};

/// What a body is, as its request says.
#[derive(Debug, Clone)]
pub(crate) struct BodySubject {
    /// The object, as the UFS names it.
    pub(crate) key: String,
    /// `None`: an object.
    pub(crate) part: Option<PartName>,
    /// The store keeps the body's bytes as they are, as an object's or a part's whole content, and
    /// gives them to whoever may read. Not so with a client's key, or at an offset.
    pub(crate) is_plain: bool,
}

/// A part of an upload.
#[derive(Debug, Clone)]
pub(crate) struct PartName {
    pub(crate) upload: String,
    pub(crate) number: i32,
}

/// What the store's answer says that it has stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnsweredVersion {
    pub(crate) etag: Option<ETag>,
    pub(crate) version_id: Option<String>,
}

impl AnsweredVersion {
    /// Returns the version of an object of `bytes`, if it can be cached. The ETag is a header's, as
    /// readers will see it.
    pub(super) fn content_version(&self, bytes: u64) -> Option<ContentVersion> {
        let etag = self.etag.as_ref()?.as_strong().map(|value| format!("\"{value}\""));
        let stated = StatedVersion {
            etag: etag.as_deref(),
            bytes,
            version_id: self.version_id.as_deref(),
            has_client_key: false,
        };
        stated.cacheable_version(None).ok()
    }
}
