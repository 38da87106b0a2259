//! What a worker process does for its lease: the part that [`WorkerLeaseKeeper`] is handed in.
//!
//! [`WorkerLeaseKeeper`]: crate::WorkerLeaseKeeper

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use verbs3_protocol::{ClusterMember, NoticeAnswer, PlacementMap, TenantNotice, WorkerId};

use crate::api::{DrainProgress, OpenWriteReport};
use crate::hot_blocks::{HotBlockRate, HotWish};
use crate::lease_clock::{BootLeaseClock, LeaseClock, LeaseInstant};

/// Worker whose right to answer is a lease of the coordinators.
#[async_trait]
pub trait LeasedWorker: Send + Sync {
    /// Assumes that another process of this name was here a moment ago. Called once, before
    /// anything is said to the coordinators.
    fn expect_predecessor(&self);

    /// Stops answering under the present epoch, and recalls the gateways' leases. Returns the open
    /// writes; `None`: they are more than `writes_max`.
    fn give_up_epoch(&self, writes_max: usize) -> Option<Vec<OpenWriteReport>>;

    /// Waits until no gateway answers by a recalled lease. May be cancelled at any time.
    async fn wait_for_recalls(&self);

    /// Stops granting leases to gateways, because the worker ends.
    fn end_leases(&self);

    /// Returns for how long there may be writes that the worker was not told of.
    fn uncertain_for(&self) -> Duration;

    /// Answers from what is known until the lease ends.
    fn hold_lease(&self, term: WorkerLeaseTerm);

    /// Answers under another map from here on.
    fn activate_map(&self, activation: PlacementActivation<'_>);

    /// Hears the notice of a writer that can't reach this worker. Never waits.
    fn apply_relayed_word(&self, notice: &TenantNotice) -> NoticeAnswer;

    /// Returns how far a worker that drains has handed over its hot blocks.
    fn drain_progress(&self) -> Option<DrainProgress>;

    /// Returns the blocks that the worker served most since the last call, which was `since` ago.
    /// `None`: it would have no use for others' copies.
    fn collect_hot_blocks(&self, wish: HotWish, since: Duration) -> Option<Vec<HotBlockRate>>;

    /// Returns the addresses of the rails in their order, `""` for one that is down.
    fn rail_addresses(&self) -> Vec<String>;

    /// Asks these members from here on for what has moved here from them. Returns once all have an
    /// address. May be cancelled at any time.
    async fn find_neighbours(&self, members: Vec<ClusterMember>);
}

/// The time of a lease, by this host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLeaseTerm {
    pub(crate) until: LeaseInstant,
    pub(crate) outage_until: LeaseInstant,
}

/// What is left of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLeaseRest {
    /// For answers from what is known.
    pub lease: Duration,
    /// For writes that all members of the map support.
    pub outage: Duration,
}

impl WorkerLeaseTerm {
    /// Returns what is left now. A worker that stops after this call has less left, never more.
    pub fn time_left(&self) -> WorkerLeaseRest {
        let now = BootLeaseClock.latest_now();
        WorkerLeaseRest {
            lease: self.until.saturating_duration_since(now),
            outage: self.outage_until.saturating_duration_since(now),
        }
    }
}

/// Map that came into force, computed, and what the worker must know of the one before.
pub struct PlacementActivation<'a> {
    pub map: &'a PlacementMap,
    /// The worker itself.
    pub worker: &'a WorkerId,
    /// The map before it. `None`: there was none.
    pub former: Option<&'a PlacementMap>,
    /// Members of the former map that handed over their open writes.
    pub handed_over: HashSet<WorkerId>,
    pub open_writes: Vec<OpenWriteReport>,
    /// See [`MembershipActivation::resumes`](crate::api::MembershipActivation::resumes).
    pub resumes: Option<Vec<OpenWriteReport>>,
    /// For this long there may be writes that nobody could report.
    pub uncertain: Duration,
    /// Another process of this worker may have answered under this very map.
    pub restarted: bool,
}
