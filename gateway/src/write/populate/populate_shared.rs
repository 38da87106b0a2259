//! What all copied writes of a gateway share: the tier, the bounds, and what is counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use verbs3_client::SettleRequest;
use verbs3_protocol::{ObjectKey, PopulateToken, WorkerId};

use super::metrics::{GiveUpReason, PopulateMetrics};
use super::populate_memory::PopulateMemory;
use super::populate_settings::GatewayPopulateSettings;
use super::populate_tier::PopulateTier;

/// Longest time that a worker is told that pages are given up. If it does not hear it, they run out.
const DISCARD_WAIT_MAX: Duration = Duration::from_secs(1);

/// What all copied writes of a gateway share.
pub(super) struct PopulateShared {
    pub(super) tier: Arc<dyn PopulateTier>,
    pub(super) settings: GatewayPopulateSettings,
    pub(super) memory: Arc<PopulateMemory>,
    /// Turns of questions that push pages.
    pub(super) questions: Semaphore,
    /// Owns all questions. They may be cancelled at any time.
    pub(super) tasks: TaskTracker,
    pub(super) metrics: PopulateMetrics,
}

impl PopulateShared {
    pub(super) fn count_given_up(&self, reason: GiveUpReason, pages: u64) {
        self.metrics.given_up[reason].inc_by(pages);
    }

    /// Has a worker make its pages those of a version.
    pub(super) async fn settle_counted(&self, request: SettleRequest, pages: u64, until: Instant) {
        let populated = match self.tier.settle_pages(&request, until).await {
            Ok(populated) => populated,
            Err(error) => {
                tracing::debug!(%error, worker = %request.worker, "pages of a write are not kept");
                0
            }
        };
        self.metrics.pages.inc_by(populated);
        self.count_given_up(GiveUpReason::Late, pages.saturating_sub(populated));
    }

    /// Tells workers in the background that pages are given up.
    pub(super) fn discard_pages(
        self: &Arc<Self>,
        object: Arc<ObjectKey>,
        tokens: HashMap<WorkerId, Vec<PopulateToken>>,
    ) {
        // Where the process ends, nobody is left to tell them.
        if tokens.is_empty() || Handle::try_current().is_err() {
            return;
        }
        let tier = self.tier.clone();
        self.tasks.spawn(async move {
            let until = Instant::now() + DISCARD_WAIT_MAX;
            let told = tokens.into_iter().map(|(worker, tokens)| {
                let (object, tier) = (object.clone(), tier.clone());
                async move {
                    let request = SettleRequest { worker, object, tokens, version: None };
                    // A worker that is not told lets them run out.
                    let _ = tier.settle_pages(&request, until).await;
                }
            });
            join_all(told).await;
        });
    }
}
