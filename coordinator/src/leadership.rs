//! Owns who leads the cluster, as this coordinator knows it: the leader's state while it leads
//! itself, and the name of whoever else does. Everything that only the leader may do passes through
//! here. [`leader_election`] stands for election and runs the leader's loop.

mod leader_election;
mod leader_hint;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::api::CoordinatorRefusal;
use verbs3_coordinator_client::lease_clock::{LeaseInstant, SharedLeaseClock};

use crate::hot_block_table::HotBlockTable;
use crate::membership::MembershipController;
use crate::published_map::HotPublished;
use crate::store::{FencingToken, LeadershipGuard, SharedClusterStore};
pub(crate) use leader_election::LeaderElection;
use leader_hint::LeaderHint;

/// State that exists only while this coordinator leads.
pub(crate) struct LeaderState {
    pub(crate) cluster: MembershipController,
    pub(crate) hot: HotBlockTable,
    leadership: Arc<LeadershipGuard>,
}

/// Whether this coordinator leads, and who does otherwise.
pub(crate) struct ClusterLeadership {
    clock: SharedLeaseClock,
    /// `None`: another coordinator leads, or nobody does.
    leading: Mutex<Option<LeaderState>>,
    /// Wakes the leader's loop after an event.
    happened: Notify,
    /// Counts the events that workers may wait for.
    news: watch::Sender<u64>,
    hot_published: HotPublished,
    hint: LeaderHint,
}

impl ClusterLeadership {
    /// Begins as one that does not lead. `advertise` is this coordinator's name among leaders.
    pub(crate) fn new(
        store: SharedClusterStore,
        clock: SharedLeaseClock,
        advertise: String,
    ) -> Self {
        Self {
            leading: Mutex::new(None),
            happened: Notify::new(),
            news: watch::channel(0).0,
            hot_published: HotPublished::new(),
            hint: LeaderHint::new(store, clock.clone(), advertise),
            clock,
        }
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.leading.lock().is_some()
    }

    /// Runs `act` as leader. Returns `None` if this coordinator does not lead, or is not certain
    /// to.
    pub(crate) fn as_leader<T>(
        &self,
        act: impl FnOnce(&mut MembershipController, LeaseInstant) -> T,
    ) -> Option<T> {
        self.with_leader_state(|leading, now| act(&mut leading.cluster, now))
    }

    /// Runs `act` with the leader's whole state. See [`ClusterLeadership::as_leader`].
    pub(crate) fn with_leader_state<T>(
        &self,
        act: impl FnOnce(&mut LeaderState, LeaseInstant) -> T,
    ) -> Option<T> {
        let mut leading = self.leading.lock();
        // The clock is read under the lock, so that a grant always precedes the leadership's end.
        let (now, latest) = (self.clock.now(), self.clock.latest_now());
        let leading = leading.as_mut().filter(|leading| !leading.leadership.is_lost())?;
        (leading.leadership.certain_until() > latest).then(|| act(leading, now))
    }

    /// Returns the token that writes of this leadership carry, and what tells of its end. `None`:
    /// this coordinator does not lead.
    pub(crate) fn current_fence(&self) -> Option<(FencingToken, CancellationToken)> {
        let leading = self.leading.lock();
        let leadership =
            &leading.as_ref().filter(|leading| !leading.leadership.is_lost())?.leadership;
        Some((leadership.fencing_token().clone(), leadership.lost.clone()))
    }

    /// Has the leader's loop decide again.
    pub(crate) fn wake_loop(&self) {
        self.happened.notify_one();
    }

    /// Returns what changes with each event that workers may wait for: another map, and the
    /// beginning and the end of a leadership.
    pub(crate) fn subscribe_news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Returns the list of hot blocks, which only the leader publishes.
    pub(crate) fn hot_list(&self) -> &HotPublished {
        &self.hot_published
    }

    /// Says that another coordinator leads, or none, and names the leader if that is known.
    pub(crate) async fn explain_refusal(&self) -> CoordinatorRefusal {
        self.hint.explain_refusal().await
    }

    fn count_event(&self) {
        self.news.send_modify(|news| *news += 1);
    }
}
