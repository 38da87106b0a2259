//! What handlers answer from: the parts of the coordinator that the API shows.

use std::sync::Arc;
use std::time::Duration;

use verbs3_coordinator_client::hot_blocks::HotWish;

use crate::activity_reports::ActivityReports;
use crate::leader_preload::LeaderPreload;
use crate::leadership::ClusterLeadership;
use crate::map_publication::MapPublication;
use crate::relay_dispatcher::RelayDispatcher;

/// What answers say of this coordinator and of its settings.
pub(crate) struct ApiOptions {
    pub(crate) cluster_name: String,
    /// URL at which other processes reach this coordinator.
    pub(crate) advertise: String,
    /// Longest time that a request may wait for news.
    pub(crate) wait_max: Duration,
    /// What workers should report of hot blocks. `None`: nothing.
    pub(crate) hot_wish: Option<HotWish>,
}

/// The parts that handlers ask. Each owns its state.
pub(crate) struct ApiContext {
    pub(crate) options: ApiOptions,
    pub(crate) leadership: Arc<ClusterLeadership>,
    pub(crate) maps: Arc<MapPublication>,
    pub(crate) relays: Arc<RelayDispatcher>,
    pub(crate) preload: Arc<LeaderPreload>,
    pub(crate) activity: Arc<ActivityReports>,
}

impl ApiContext {
    /// Bounds how long a request may wait for news.
    pub(super) fn clamp_wait(&self, wait_ms: Option<u64>) -> Duration {
        Duration::from_millis(wait_ms.unwrap_or_default()).min(self.options.wait_max)
    }
}
