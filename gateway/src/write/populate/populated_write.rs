//! One write that is copied to workers: a PUT of an object, or of a part of an upload. Decides
//! whether it is copied.

use verbs3_protocol::{ObjectKey, TenantTag};

use super::body_subject::{AnsweredVersion, BodySubject, PartName};
use super::metrics::GiveUpReason;
use super::staged_body::{PopulateFeed, StagedBody};
use super::upload_memory::{UploadName, UploadedPart};
use super::write_populator::WritePopulator;
use crate::mount::MountedBucket;

/// What a finished body becomes.
enum PopulateTarget {
    Object,
    Part { name: UploadName, number: i32, offset: u64 },
}

/// A write that is copied. Dropping it before [`PopulatedWrite::finish_write`] gives its pages up.
pub(crate) struct PopulatedWrite {
    populator: WritePopulator,
    target: PopulateTarget,
    bytes: u64,
    /// `None`: of this part only the length is remembered.
    body: Option<StagedBody>,
    feed: Option<PopulateFeed>,
}

impl PopulatedWrite {
    /// Begins the copy of a body of `bytes`. `None`: this write is not copied.
    pub(crate) fn begin_write(
        populator: &WritePopulator,
        mount: &MountedBucket,
        subject: BodySubject,
        bytes: u64,
        tenant: Option<TenantTag>,
    ) -> Option<Self> {
        let bytes_max = mount.populate_bytes_max.filter(|_| mount.cached && subject.is_plain)?;
        let object = ObjectKey { volume: mount.volume.clone(), key: subject.key };
        let (target, offset) = match subject.part {
            None => (PopulateTarget::Object, 0),
            Some(PartName { upload, number }) => {
                let name = UploadName { object: object.clone(), upload };
                let offset = populator.guess_offset(&name, number, bytes)?;
                (PopulateTarget::Part { name, number, offset }, offset)
            }
        };
        let fits = bytes > 0 && offset.checked_add(bytes).is_some_and(|end| end <= bytes_max);
        let (body, feed) =
            fits.then(|| populator.begin_body(object, tenant, offset, bytes)).unzip();
        if body.is_none() && matches!(target, PopulateTarget::Object) {
            return None;
        }
        Some(Self { populator: populator.clone(), target, bytes, body, feed })
    }

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
