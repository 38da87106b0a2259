//! One write that is copied to workers: a PUT of an object, or of a part of an upload.

use s3s::dto::ETag;
use verbs3_protocol::{ContentVersion, ObjectKey, StatedVersion};

use super::metrics::GiveUpReason;
use super::staged_body::{PopulateFeed, StagedBody};
use super::upload_memory::{UploadName, UploadedPart};
use super::write_populator::WritePopulator;

/// What a body is, as its request says.
#[derive(Debug, Clone)]
pub(crate) struct BodySubject {
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

/// What a finished body becomes.
pub(super) enum PopulateTarget {
    Object,
    Part { name: UploadName, number: i32, offset: u64 },
}

/// A write that is copied. Dropping it before [`PopulatedWrite::finish_write`] gives its pages up.
pub(crate) struct PopulatedWrite {
    pub(super) populator: WritePopulator,
    pub(super) target: PopulateTarget,
    pub(super) bytes: u64,
    /// `None`: of this part only the length is remembered.
    pub(super) body: Option<StagedBody>,
    pub(super) feed: Option<PopulateFeed>,
}

impl PopulatedWrite {
    /// Takes the place where the body's bytes go in; once.
    pub(crate) fn take_feed(&mut self) -> Option<PopulateFeed> {
        self.feed.take()
    }

    /// Makes the pages readable, or remembers them for the end of the upload. Call it only when the
    /// store has stored the body and the home has acknowledged the report. Bounded by
    /// `gateway.populate.commit_wait_max`.
    pub(crate) async fn finish_write(self, answered: AnsweredVersion) {
        let Self { populator, target, bytes, body, feed: _ } = self;
        match target {
            PopulateTarget::Part { name, number, offset } => {
                if let Some(etag) = answered.etag {
                    let part = UploadedPart { etag, bytes, offset, body };
                    populator.remember_part(&name, number, part);
                }
            }
            PopulateTarget::Object => {
                let Some(body) = body else { return };
                match answered.content_version(bytes) {
                    Some(version) => populator.commit_bodies(vec![body], version).await,
                    None => body.give_up(GiveUpReason::Uncacheable),
                }
            }
        }
    }
}

/// Names an upload of an object.
pub(super) fn upload_name(object: ObjectKey, upload: String) -> UploadName {
    UploadName { object, upload }
}
