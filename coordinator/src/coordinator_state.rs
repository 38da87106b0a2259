//! Owns what the parts of a coordinator share, and decides who may act as leader.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_coordinator_client::lease_clock::{LeaseInstant, SharedLeaseClock};
use verbs3_coordinator_client::proof::{ClusterSecret, ProofRecipient, ReplayGuard};
use verbs3_coordinator_client::{ClusterSecrets, CoordinatorTls};
use verbs3_preload::{ObjectAdmin, PreloadEngine};

use crate::activity_board::ActivityBoard;
use crate::console_access::{Console, ConsoleUsers};
use crate::hot_block_table::HotBlockTable;
use crate::membership::MembershipController;
use crate::metrics::CoordinatorMetrics;
use crate::published_map::{HotPublished, PublishedMap};
use crate::relay_dispatcher::RelayDispatcher;
use crate::settings::CoordinatorSettings;
use crate::store::{LeadershipGuard, SharedClusterStore};

/// What one coordinator is made of: its cluster, secrets and address, and its settings.
#[derive(Debug, Clone)]
pub struct CoordinatorOptions {
    pub name: String,
    pub secrets: ClusterSecrets,
    /// Certificates of this coordinator, and whether plain connections are taken beside TLS. `None`:
    /// all are plain.
    pub tls: Option<CoordinatorTls>,
    /// Token that stores show when they send notifications. `None`: they need the proof, too.
    pub notification_token: Option<ClusterSecret>,
    /// URL at which other processes reach this coordinator: `http://host:port`, or `https://…`.
    pub advertise: String,
    /// Workers that may serve a block.
    pub replicas: u16,
    /// `None`: there is no console.
    pub console_users: Option<ConsoleUsers>,
    pub settings: CoordinatorSettings,
}

/// State that exists only while this coordinator leads.
pub(crate) struct LeaderState {
    pub(crate) cluster: MembershipController,
    pub(crate) leadership: Arc<LeadershipGuard>,
    pub(crate) hot: HotBlockTable,
}

/// Last answer about the leader: when it was asked, and who leads or why that is unknown.
pub(crate) type CachedLeaderHint = (LeaseInstant, Result<Option<String>, String>);

/// The preload engine while this coordinator leads, and the object administration.
#[derive(Default)]
pub(crate) struct PreloadHandles {
    pub(crate) engine: Mutex<Option<Arc<PreloadEngine>>>,
    /// Available whichever coordinator leads.
    pub(crate) objects: OnceLock<ObjectAdmin>,
}

/// What the parts of one coordinator share: the API, the part in the election, and the jobs.
pub(crate) struct CoordinatorState {
    pub(crate) options: CoordinatorOptions,
    pub(crate) store: SharedClusterStore,
    pub(crate) clock: SharedLeaseClock,
    pub(crate) metrics: CoordinatorMetrics,
    pub(crate) seen: ReplayGuard,
    /// Name of this run of this coordinator; proofs are addressed to it.
    pub(crate) recipient: ProofRecipient,
    pub(crate) published: PublishedMap,
    pub(crate) hot_published: HotPublished,
    /// `None`: another coordinator leads, or nobody does.
    pub(crate) leading: Mutex<Option<LeaderState>>,
    /// Wakes the leader's loop after an event.
    pub(crate) happened: Notify,
    /// Counts the events that workers may wait for.
    pub(crate) news: watch::Sender<u64>,
    /// Cached answer about the leader.
    pub(crate) hint: tokio::sync::Mutex<Option<CachedLeaderHint>>,
    pub(crate) preloading: PreloadHandles,
    /// What gateways and workers report, for the console.
    pub(crate) activity: Mutex<ActivityBoard>,
    pub(crate) console: Option<Console>,
    /// Relays write notices to workers.
    pub(crate) desk: RelayDispatcher,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl CoordinatorState {
    pub(crate) fn is_leader(&self) -> bool {
        self.leading.lock().is_some()
    }

    pub(crate) fn preload_engine(&self) -> Option<Arc<PreloadEngine>> {
        self.preloading.engine.lock().clone()
    }

    /// Runs `act` as leader. Returns `None` if this coordinator does not lead, or is not certain
    /// to.
    pub(crate) fn as_leader<T>(
        &self,
        act: impl FnOnce(&mut MembershipController, LeaseInstant) -> T,
    ) -> Option<T> {
        self.with_leader_state(|leading, now| act(&mut leading.cluster, now))
    }

    /// Runs `act` with the leader's whole state. See [`CoordinatorState::as_leader`].
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
}
