//! The entry points through which the coordinators' client drives a worker: its lease, and the map
//! that it answers under.
//!
//! Owns the entry points only. [`crate::standing`] decides what follows from them.

use std::collections::HashSet;
use std::time::Duration;

use verbs3_protocol::{KeyHash, PlacementMap, WorkerId, WriteId};

use crate::attributes::{HandedWrite, RecallScope};
use crate::standing::{CoordinatedStanding, MapHandover, WorkerStanding};
use crate::worker::CacheWorker;

/// A write that is announced and not reported, handed over from one home to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedWrite {
    pub hash: KeyHash,
    pub write: WriteId,
    /// How long the write may still be under way.
    pub remaining: Duration,
    /// Hash of the name of the tenant whose client writes. The next home counts the write for it.
    pub tenant: u64,
}

/// A map that comes into force, and what was handed over with it.
pub struct MapActivation<'a> {
    pub map: &'a PlacementMap,
    pub me: &'a WorkerId,
    /// The previous map; `None`: there was none.
    pub former: Option<&'a PlacementMap>,
    /// Members of the former map that have handed over all their open writes.
    pub handed_over: HashSet<WorkerId>,
    /// The open writes that those members handed over.
    pub open_writes: Vec<NotedWrite>,
    /// The open writes of the previous process, if it ended in order under this very map.
    pub resumes: Option<Vec<NotedWrite>>,
    /// How long unreported writes may still exist in slots that were handed over or resumed.
    pub uncertain: Duration,
    /// Another process of this worker may have answered under this very map.
    pub restarted: bool,
}

impl CacheWorker {
    /// Sets for how long the worker may answer from its cache, and for how long it takes part in
    /// writes. `left` is called after this worker's clock is read. A process that is stopped
    /// between the two thus holds the lease for a shorter time, never for a longer one.
    pub fn hold_lease(&self, left: impl FnOnce() -> (Duration, Duration)) {
        let latest = self.clock.read_times().latest;
        let (lease, outage) = left();
        self.with_standing(|standing| {
            standing.set_lease(latest.saturating_add(lease), latest.saturating_add(outage))
        });
    }

    /// Stops answering under the present epoch, and recalls the gateways' leases. Nobody may be
    /// told of it before [`CacheWorker::leases_over`] returns. Returns the open writes for the next
    /// homes, or `None` if there are more than `max`.
    pub fn give_up_epoch(&self, max: usize) -> Option<Vec<NotedWrite>> {
        self.with_standing(CoordinatedStanding::give_up_epoch);
        self.home.grants.recall_all();
        let list = self.home.coherence.open_list(max, self.clock.now())?;
        Some(
            list.into_iter()
                .map(|HandedWrite { hash, write, remaining, account }| {
                    let tenant = self.tenants.stored_hash(account);
                    NotedWrite { hash, write, remaining, tenant }
                })
                .collect(),
        )
    }

    /// Waits until no gateway answers by a recalled lease, at most as long as leases last. May be
    /// cancelled.
    pub async fn leases_over(&self) {
        self.home.grants.wait_for_recalls(&RecallScope::All, &*self.clock).await;
    }

    /// Stops granting leases and answering recall polls, because the worker ends.
    pub fn end_leases(&self) {
        self.home.grants.close_polls();
    }

    /// Assumes that another process of this worker's name was killed a moment ago, and that its
    /// leases live on. No write is acknowledged and no epoch given up until
    /// [`MapActivation::restarted`] says otherwise, or until those leases must be over. Call it
    /// once, before the first request to the coordinators.
    pub fn follows_another(&self) {
        self.home.grants.follow_another(self.clock.now());
    }

    /// Returns for how long some of this worker's slots may have writes that it was not told of.
    /// The receiver of the open writes has to know this too.
    pub fn uncertain_for(&self) -> Duration {
        match &self.home.standing {
            WorkerStanding::Coordinated(standing) => standing.uncertain_for(self.clock.now()),
            WorkerStanding::Fixed(_) => Duration::ZERO,
        }
    }

    /// Starts answering under this map.
    pub fn activate_map(&self, activation: MapActivation<'_>) {
        let MapActivation {
            map,
            me,
            former,
            mut handed_over,
            open_writes,
            resumes,
            uncertain,
            restarted,
        } = activation;
        let now = self.clock.now();
        if !restarted || resumes.is_some() {
            // A worker that handed over has waited for its leases. The coordinators waited for any
            // other.
            self.home.grants.follow_none();
        }
        let resumes = resumes.is_some_and(|writes| self.take_over(&writes));
        if !self.take_over(&open_writes) {
            // Some writes did not fit in the table. Their slots count as not handed over.
            handed_over.clear();
        }
        self.pages.former.adopt_map(map, former, me, now);
        let (silent, inherited) = (self.home.uncertain_max, uncertain.min(self.home.uncertain_max));
        let handover = MapHandover {
            map,
            me,
            former,
            handed_over: &handed_over,
            resumes,
            restarted,
            inherited,
            silent,
        };
        self.with_standing(|standing| standing.activate_map(&handover, now));
        let draining = map.map_members().iter().any(|member| member.id == *me && member.draining);
        self.leaver.set_draining(draining, now.as_secs());
    }

    fn take_over(&self, writes: &[NotedWrite]) -> bool {
        let now = self.clock.now();
        let mut all = writes.iter();
        all.all(|&NotedWrite { hash, write, remaining, tenant }| {
            let account = self.tenants.account_of_hash(tenant);
            let handed = HandedWrite { hash, write, remaining, account };
            self.home.coherence.inherit_write(handed, self.home.uncertain_max, now).is_ok()
        })
    }

    /// A worker with a fixed map ignores the call.
    fn with_standing(&self, tell: impl FnOnce(&CoordinatedStanding)) {
        match &self.home.standing {
            WorkerStanding::Coordinated(standing) => tell(standing),
            WorkerStanding::Fixed(_) => {}
        }
    }
}
