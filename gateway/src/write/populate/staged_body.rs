//! Owns the copy of one body at the workers: what is on its way, who has taken pages, and what
//! becomes of them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verbs3_client::{QuestionError, StageRequest};
use verbs3_protocol::{ObjectKey, PopulateToken, TenantTag, WorkerId};

use super::metrics::GiveUpReason;
use super::page_cutter::{PageCutter, PageRun, QueueFull};
use super::populate_shared::PopulateShared;

/// A worker that was asked to keep pages of a body.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AskedOwner {
    /// Pages that it keeps.
    pub(super) pages: u64,
    /// Why it is asked no more in this write: it did so once.
    left_for: Option<GiveUpReason>,
}

/// What the copy of a body and its questions share.
pub(super) struct BodyStaging {
    shared: Arc<PopulateShared>,
    object: Arc<ObjectKey>,
    token: PopulateToken,
    tenant: Option<TenantTag>,
    owners: Mutex<HashMap<WorkerId, AskedOwner>>,
    /// Questions under way.
    under_way: watch::Sender<usize>,
    /// Ends them.
    stop: CancellationToken,
}

/// The copy of one body. Dropping it gives its pages up, unless they were settled.
pub(crate) struct StagedBody {
    staging: Arc<BodyStaging>,
    settled: bool,
}

/// Where a body's bytes go in, in order.
pub(crate) struct PopulateFeed {
    staging: Arc<BodyStaging>,
    /// `None`: the rest of the body is not copied.
    cutter: Option<PageCutter>,
}

impl StagedBody {
    /// Makes the copy of a body that lies at `offset` of its object.
    pub(super) fn begin(
        shared: Arc<PopulateShared>,
        object: Arc<ObjectKey>,
        tenant: Option<TenantTag>,
        offset: u64,
        bytes: u64,
    ) -> (Self, PopulateFeed) {
        let cutter =
            PageCutter::new(shared.tier.block_geometry(), shared.memory.clone(), offset, bytes);
        let staging = Arc::new(BodyStaging {
            shared,
            object,
            token: PopulateToken(rand::random()),
            tenant,
            owners: Mutex::default(),
            under_way: watch::Sender::new(0),
            stop: CancellationToken::new(),
        });
        let body = Self { staging: staging.clone(), settled: false };
        (body, PopulateFeed { staging, cutter: Some(cutter) })
    }

    pub(super) fn object(&self) -> Arc<ObjectKey> {
        self.staging.object.clone()
    }

    pub(super) fn token(&self) -> PopulateToken {
        self.staging.token
    }

    /// Waits until no question is under way. Returns false if that takes longer than `until`.
    pub(super) async fn wait_until_staged(&self, until: Instant) -> bool {
        let mut under_way = self.staging.under_way.subscribe();
        // The sender is in `self`, so the channel can't be closed.
        tokio::time::timeout_at(until, under_way.wait_for(|count| *count == 0)).await.is_ok()
    }

    /// Returns the workers that were asked, and what they keep. The caller settles the pages.
    pub(super) fn take_owners(mut self) -> HashMap<WorkerId, AskedOwner> {
        self.settled = true;
        self.staging.take_owners()
    }

    /// Gives the pages up, for this reason.
    pub(super) fn give_up(mut self, reason: GiveUpReason) {
        self.settled = true;
        self.staging.give_up(reason);
    }
}

impl Drop for StagedBody {
    fn drop(&mut self) {
        if !self.settled {
            self.staging.give_up(GiveUpReason::Unconfirmed);
        }
    }
}

impl BodyStaging {
    /// Ends the questions under way: what they bring from now on is nobody's, and runs out at the
    /// workers.
    fn take_owners(&self) -> HashMap<WorkerId, AskedOwner> {
        self.stop.cancel();
        let mut owners = std::mem::take(&mut *self.owners.lock());
        // Of others that failed nobody knows whether they keep some.
        owners.retain(|_, owner| owner.pages > 0 || owner.left_for != Some(GiveUpReason::Refused));
        owners
    }

    fn give_up(&self, reason: GiveUpReason) {
        let owners = self.take_owners();
        let pages = owners.values().map(|owner| owner.pages).sum();
        self.shared.count_given_up(reason, pages);
        let tokens = owners.into_keys().map(|worker| (worker, vec![self.token])).collect();
        self.shared.discard_pages(self.object.clone(), tokens);
    }

    /// Pushes a run to the owner of its block, in the background.
    fn stage_run(self: &Arc<Self>, run: PageRun) {
        let pages = run.pages.len() as u64;
        let Some(worker) = self.shared.tier.stage_owner(&self.object, run.block) else {
            return self.shared.count_given_up(GiveUpReason::NoOwner, pages);
        };
        if let Some(reason) = self.owners.lock().entry(worker.clone()).or_default().left_for {
            return self.shared.count_given_up(reason, pages);
        }
        self.under_way.send_modify(|count| *count += 1);
        let asking = QuestionUnderWay(self.clone());
        self.shared.tasks.spawn(async move {
            let staging = &asking.0;
            tokio::select! {
                biased;
                () = staging.stop.cancelled() => {}
                () = staging.push_run(worker, run) => {}
            }
        });
    }

    async fn push_run(&self, worker: WorkerId, run: PageRun) {
        let PageRun { block, first_page, pages } = run;
        let count = pages.len() as u64;
        let (object, token, tenant) = (self.object.clone(), self.token, self.tenant);
        let request = StageRequest { object, token, block, first_page, pages, tenant };
        // It is never closed.
        let _turn = self.shared.questions.acquire().await;
        let left_for = self.owners.lock().get(&worker).and_then(|owner| owner.left_for);
        if let Some(reason) = left_for {
            return self.shared.count_given_up(reason, count);
        }
        let until = Instant::now() + self.shared.settings.stage_wait_max.0;
        let staged = self.shared.tier.stage_pages(&worker, request, until).await;
        let mut owners = self.owners.lock();
        let owner = owners.entry(worker).or_default();
        match staged {
            Ok(()) => owner.pages += count,
            Err(error) => {
                tracing::debug!(%error, "pages of a write are not kept");
                let reason = match error {
                    QuestionError::Refused(_) => GiveUpReason::Refused,
                    _ => GiveUpReason::Failed,
                };
                // Of one that failed nobody knows what it keeps, whatever it says later.
                if owner.left_for != Some(GiveUpReason::Failed) {
                    owner.left_for = Some(reason);
                }
                self.shared.count_given_up(reason, count);
            }
        }
    }
}

/// A question under way. Counts down when it is over, however it ends.
struct QuestionUnderWay(Arc<BodyStaging>);

impl Drop for QuestionUnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

impl PopulateFeed {
    /// Copies the next bytes of the body. Never waits.
    pub(super) fn copy_bytes(&mut self, bytes: &[u8]) {
        let Some(cutter) = &mut self.cutter else { return };
        if let Err(QueueFull) = cutter.cut_bytes(bytes, |run| self.staging.stage_run(run)) {
            self.staging.shared.count_given_up(GiveUpReason::QueueFull, cutter.pages_left());
            // What is left out at the end would cost many small reads if it were in between.
            self.cutter = None;
        }
    }
}
