//! Settles the copies of writes when they are over, and those of uploads when they are completed.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use s3s::dto::ETag;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use verbs3_client::SettleRequest;
use verbs3_protocol::{ContentVersion, ObjectKey, PopulateToken, TenantTag, WorkerId};

use super::body_subject::AnsweredVersion;
use super::metrics::{GiveUpReason, PopulateMetrics};
use super::populate_memory::PopulateMemory;
use super::populate_settings::GatewayPopulateSettings;
use super::populate_shared::PopulateShared;
use super::populate_tier::PopulateTier;
use super::staged_body::{PopulateFeed, StagedBody};
use super::upload_memory::{UploadMemory, UploadName, UploadedPart};
use crate::mount::MountedBucket;

/// Populate on write, of a gateway. Clones share it.
#[derive(Clone)]
pub(crate) struct WritePopulator {
    shared: Arc<PopulateShared>,
    uploads: Arc<UploadMemory>,
}

impl WritePopulator {
    pub(crate) fn new(
        settings: &GatewayPopulateSettings,
        tier: Arc<dyn PopulateTier>,
        tasks: TaskTracker,
        metrics: PopulateMetrics,
    ) -> Self {
        let queue_max = settings.queue_max.0;
        metrics.queued_bytes_max.set(i64::try_from(queue_max).unwrap_or(i64::MAX));
        let uploads = UploadMemory::new(
            settings.uploads_max as usize,
            settings.parts_max as usize,
            [metrics.uploads.clone(), metrics.parts.clone()],
        );
        let shared = PopulateShared {
            tier,
            settings: settings.clone(),
            memory: PopulateMemory::new(queue_max, metrics.queued_bytes.clone()),
            questions: Semaphore::new(settings.questions_in_flight_max as usize),
            tasks,
            metrics,
        };
        Self { shared: Arc::new(shared), uploads: Arc::new(uploads) }
    }

    /// Guesses where a part that begins lies in its object; `None`: it can't be remembered.
    pub(super) fn guess_offset(&self, name: &UploadName, number: i32, bytes: u64) -> Option<u64> {
        let (offset, forgotten) = self.uploads.guess_offset(name, number, bytes)?;
        give_up_parts(forgotten);
        Some(offset)
    }

    /// Begins the copy of a body of `bytes` at `offset` of its object.
    pub(super) fn begin_body(
        &self,
        object: ObjectKey,
        tenant: Option<TenantTag>,
        offset: u64,
        bytes: u64,
    ) -> (StagedBody, PopulateFeed) {
        StagedBody::begin(self.shared.clone(), Arc::new(object), tenant, offset, bytes)
    }

    /// Remembers a part that the store has, until its upload is completed.
    pub(super) fn remember_part(&self, name: &UploadName, number: i32, part: UploadedPart) {
        give_up_parts(self.uploads.remember_part(name, number, part));
    }

    /// Makes the pages of a completed upload readable, as far as its parts went through here.
    /// `listed` are the parts of the object, in order. Call it only when the store has answered with
    /// success and the home has acknowledged the report.
    pub(crate) async fn finish_upload(
        &self,
        mount: &MountedBucket,
        object: ObjectKey,
        upload: String,
        listed: &[(i32, ETag)],
        answered: AnsweredVersion,
    ) {
        let Some(remembered) = self.uploads.take_upload(&UploadName { object, upload }) else {
            return;
        };
        let placed = remembered.place_parts(listed);
        give_up_parts(placed.left_out);
        for body in placed.misplaced {
            body.give_up(GiveUpReason::Misplaced);
        }
        let version = placed.bytes.and_then(|bytes| answered.content_version(bytes));
        let bytes_max = mount.populate_bytes_max.filter(|_| mount.cached).unwrap_or(0);
        match version.filter(|version| version.bytes <= bytes_max) {
            Some(version) => self.commit_bodies(placed.bodies, version).await,
            None => {
                placed.bodies.into_iter().for_each(|body| body.give_up(GiveUpReason::Uncacheable))
            }
        }
    }

    /// Gives up the pages of an upload that was aborted.
    pub(crate) fn forget_upload(&self, object: ObjectKey, upload: String) {
        if let Some(remembered) = self.uploads.take_upload(&UploadName { object, upload }) {
            give_up_parts(remembered.into_bodies());
        }
    }

    /// Makes the pages of bodies of one object those of a version. What is not done in time is given
    /// up.
    pub(super) async fn commit_bodies(&self, bodies: Vec<StagedBody>, version: ContentVersion) {
        let Some(object) = bodies.first().map(StagedBody::object) else { return };
        let until = Instant::now() + self.shared.settings.commit_wait_max.0;
        // All at once: one that is late must not make the others late.
        let waited = bodies.into_iter().map(|body| async move {
            let staged = body.wait_until_staged(until).await;
            (body, staged)
        });
        let mut tokens: HashMap<WorkerId, (Vec<PopulateToken>, u64)> = HashMap::new();
        for (body, staged) in join_all(waited).await {
            if !staged {
                body.give_up(GiveUpReason::Late);
                continue;
            }
            let token = body.token();
            for (worker, owner) in body.take_owners() {
                let (tokens, pages) = tokens.entry(worker).or_default();
                tokens.push(token);
                *pages += owner.pages;
            }
        }
        let version = Arc::new(version);
        let settled = tokens.into_iter().map(|(worker, (tokens, pages))| {
            let (object, version) = (object.clone(), Some(version.clone()));
            let request = SettleRequest { worker, object, tokens, version };
            self.shared.settle_counted(request, pages, until)
        });
        join_all(settled).await;
    }
}

fn give_up_parts(bodies: Vec<StagedBody>) {
    for body in bodies {
        body.give_up(GiveUpReason::Forgotten);
    }
}
