//! By what right this worker answers for attributes: the map that it answers under, its lease, and
//! since when it is the home of each slot. Pure but for its atomics; the coordinators' client tells
//! it, requests ask it.
//!
//! # Why nothing stale is answered
//! A coordinated worker answers from what it knows only (1) to askers of its own epoch, (2) while
//! its lease lasts, and (3) what it asked the UFS since it became the home of the key's slot.
//! Another home can come into force only after this worker has given up the epoch (`give_up_epoch`), or
//! its lease is over by the coordinator's clock, which is later than by its own. So every write
//! that was acknowledged before a read began was reported to this worker, or to a home before it,
//! before what it answers was asked. Leases of gateways end with this worker's own, at the latest,
//! and are waited for before an epoch is said to be given up. Both are judged when a request
//! arrives: a read that began before may be overtaken by a write anyway.
//!
//! A slot that came from a home which could not hand over its open writes is asked at the UFS until
//! those must be over: by its next home, and by whoever is it after that one. A process that was
//! started again knows of no writes, as if it had been silent.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use verbs3_protocol::{Epoch, HashSlot, PlacementMap, SLOTS, WorkerId};

use crate::clock::{ClockReading, WorkerInstant};

/// Stands for no epoch: nobody asks under it.
const NONE: u64 = 0;
/// A slot of which this worker is not the home.
const NEVER: u64 = u64::MAX;

/// What may be answered to an asker that arrives now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerRight {
    /// Whatever is known.
    All,
    /// What was asked for no longer ago.
    Since(Duration),
    /// Only what the UFS says now.
    Ask,
}

impl AnswerRight {
    /// Nothing that was asked longer ago than that.
    pub(crate) fn limit_to_age(self, since: Option<Duration>) -> Self {
        match (self, since) {
            (right, None) | (right @ Self::Ask, _) => right,
            (Self::All, Some(since)) => Self::Since(since),
            (Self::Since(own), Some(since)) => Self::Since(own.min(since)),
        }
    }
}

/// By which right a write is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteLeaseState {
    Leased,
    /// The lease is over: the writer has to make sure that every member of the map stands by it.
    Unleased,
}

/// Why nothing is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandingError {
    /// Asked under another epoch than this one (0: between two).
    Epoch(Epoch),
    /// Cut off from the coordinators for too long to take part in writes.
    Lease,
}

/// A map that comes into force, and what it says of the one before.
pub struct MapHandover<'a> {
    pub map: &'a PlacementMap,
    pub me: &'a WorkerId,
    /// `None`: there was none.
    pub former: Option<&'a PlacementMap>,
    /// Members of the former map whose open writes have been handed over, and were taken over here.
    pub handed_over: &'a HashSet<WorkerId>,
    /// The process before this one ended in order, under this very map.
    pub resumes: bool,
    /// A process before this one, of which nothing is known, may have answered under this very map.
    pub restarted: bool,
    /// How long writes that those who handed over were not told of may stay open.
    pub inherited: Duration,
    /// How long writes that nobody handed over may stay open.
    pub silent: Duration,
}

/// The worker's standing in its cluster.
pub(crate) enum WorkerStanding {
    /// Of a map that never changes; `None`: whatever the asker's epoch is.
    Fixed(Option<Epoch>),
    Coordinated(Box<CoordinatedStanding>),
}

pub(crate) struct CoordinatedStanding {
    epoch: AtomicU64,
    /// Nanoseconds, as [`ClockReading::latest`] counts.
    lease_until: AtomicU64,
    outage_until: AtomicU64,
    /// For each slot, the moment from which on what was asked is good.
    valid_from: Box<[AtomicU64]>,
    /// The last epoch under which this process answered.
    last: Mutex<Epoch>,
    /// Held while a write is noted, so that what is handed over is complete.
    noting: RwLock<()>,
}

impl WorkerStanding {
    pub(crate) fn new_coordinated() -> Self {
        let valid_from = (0..SLOTS).map(|_| AtomicU64::new(NEVER)).collect();
        Self::Coordinated(Box::new(CoordinatedStanding {
            epoch: AtomicU64::new(NONE),
            lease_until: AtomicU64::new(0),
            outage_until: AtomicU64::new(0),
            valid_from,
            last: Mutex::new(Epoch(NONE)),
            noting: RwLock::new(()),
        }))
    }

    /// For a question about attributes that arrives at `now`.
    pub(crate) fn to_answer(
        &self,
        asked: Epoch,
        slot: HashSlot,
        times: impl Into<ClockReading>,
    ) -> Result<AnswerRight, StandingError> {
        let ClockReading { now, latest } = times.into();
        let own = match self {
            Self::Fixed(None) => return Ok(AnswerRight::All),
            Self::Fixed(Some(own)) if *own == asked => return Ok(AnswerRight::All),
            Self::Fixed(Some(own)) => return Err(StandingError::Epoch(*own)),
            Self::Coordinated(own) => own,
        };
        own.is_at(asked)?;
        if own.lease_until.load(Ordering::SeqCst) <= latest.as_nanos() {
            return Ok(AnswerRight::Ask);
        }
        let since = own.valid_from[usize::from(slot.0)].load(Ordering::SeqCst);
        Ok(match now.as_nanos().checked_sub(since) {
            Some(age) => AnswerRight::Since(Duration::from_nanos(age)),
            None => AnswerRight::Ask,
        })
    }

    /// For a write that is announced or reported at `now`: runs `note`, which no handover
    /// overlooks.
    pub(crate) fn to_note<T>(
        &self,
        asked: Epoch,
        times: impl Into<ClockReading>,
        note: impl FnOnce() -> T,
    ) -> Result<(T, WriteLeaseState), StandingError> {
        let latest = times.into().latest;
        let own = match self {
            Self::Fixed(None) => return Ok((note(), WriteLeaseState::Leased)),
            Self::Fixed(Some(own)) if *own == asked => {
                return Ok((note(), WriteLeaseState::Leased));
            }
            Self::Fixed(Some(own)) => return Err(StandingError::Epoch(*own)),
            Self::Coordinated(own) => own,
        };
        let _noting = own.noting.read();
        own.is_at(asked)?;
        let hold = if own.lease_until.load(Ordering::SeqCst) > latest.as_nanos() {
            WriteLeaseState::Leased
        } else if own.outage_until.load(Ordering::SeqCst) > latest.as_nanos() {
            WriteLeaseState::Unleased
        } else {
            return Err(StandingError::Lease);
        };
        Ok((note(), hold))
    }

    /// For a lease to whoever asked at `asked`: runs `grant` with the end of this worker's own
    /// lease, and so that no handover overlooks what was granted. `None`: a worker of a map that
    /// never changes grants none, because the process that follows it would not know of it; nor
    /// does one without a lease.
    pub(crate) fn to_grant<T>(
        &self,
        asked: Epoch,
        times: impl Into<ClockReading>,
        grant: impl FnOnce(WorkerInstant) -> Option<T>,
    ) -> Option<T> {
        let Self::Coordinated(own) = self else { return None };
        let ClockReading { now, latest } = times.into();
        let _noting = own.noting.read();
        own.is_at(asked).ok()?;
        let until = WorkerInstant::from_nanos(own.lease_until.load(Ordering::SeqCst));
        (until > latest).then(|| grant(now.saturating_add(until.duration_since(latest)))).flatten()
    }

    /// For what is no question of coherence, but of who owns what.
    pub(crate) fn is_at(&self, asked: Epoch) -> Result<(), StandingError> {
        match self {
            Self::Fixed(None) => Ok(()),
            Self::Fixed(Some(own)) if *own == asked => Ok(()),
            Self::Fixed(Some(own)) => Err(StandingError::Epoch(*own)),
            Self::Coordinated(own) => own.is_at(asked),
        }
    }

    /// The epoch under which this worker answers now; 0: none.
    pub(crate) fn current_epoch(&self) -> Epoch {
        match self {
            Self::Fixed(epoch) => epoch.unwrap_or_default(),
            Self::Coordinated(own) => Epoch(own.epoch.load(Ordering::SeqCst)),
        }
    }

    pub(crate) fn is_leased(&self, times: impl Into<ClockReading>) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Coordinated(own) => {
                own.lease_until.load(Ordering::SeqCst) > times.into().latest.as_nanos()
            }
        }
    }
}

impl CoordinatedStanding {
    fn is_at(&self, asked: Epoch) -> Result<(), StandingError> {
        match self.epoch.load(Ordering::SeqCst) {
            own if own == asked.0 && own != NONE => Ok(()),
            own => Err(StandingError::Epoch(Epoch(own))),
        }
    }

    /// Both as [`ClockReading::latest`] counts.
    pub(crate) fn set_lease(&self, until: WorkerInstant, outage_until: WorkerInstant) {
        self.outage_until.store(outage_until.as_nanos(), Ordering::SeqCst);
        self.lease_until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// From here on nothing is answered under the present epoch; every write that was noted under
    /// it is over and done, and every lease that was granted is in the table.
    pub(crate) fn give_up_epoch(&self) {
        let _all_noted = self.noting.write();
        self.epoch.store(NONE, Ordering::SeqCst);
    }

    /// How long slots of this worker are asked at the UFS because of writes that it was not told
    /// of.
    pub(crate) fn uncertain_for(&self, now: WorkerInstant) -> Duration {
        let own = self
            .valid_from
            .iter()
            .map(|from| from.load(Ordering::SeqCst))
            .filter(|&from| from != NEVER);
        own.max().map_or(Duration::ZERO, |latest| {
            Duration::from_nanos(latest.saturating_sub(now.as_nanos()))
        })
    }

    /// Answers under another map from `now` on.
    pub(crate) fn activate_map(&self, handover: &MapHandover<'_>, now: WorkerInstant) {
        let MapHandover { map, me, former, handed_over, resumes, restarted, inherited, silent } =
            handover;
        let mut last = self.last.lock();
        // The same map again: nobody else was a home meanwhile.
        if *last != map.map_epoch() {
            let own = |map: &PlacementMap, slot: HashSlot| map.first_owner(slot).id == **me;
            let continuous = former.is_some_and(|former| former.map_epoch() == *last);
            let (inherited, silent) =
                (now.saturating_add(*inherited).as_nanos(), now.saturating_add(*silent).as_nanos());
            for (at, valid_from) in self.valid_from.iter().enumerate() {
                let slot = HashSlot(at as u16);
                let before = former.map(|former| &former.first_owner(slot).id);
                let from = match before {
                    _ if !own(map, slot) => NEVER,
                    // As it was.
                    Some(before) if before == *me && continuous => continue,
                    _ if *resumes => inherited,
                    _ if *restarted => silent,
                    None if last.0 == NONE => now.as_nanos(),
                    Some(before) if before != *me && handed_over.contains(before) => inherited,
                    // Silent, or of a cluster whose coordinators lost what they knew.
                    _ => silent,
                };
                valid_from.store(from, Ordering::SeqCst);
            }
            *last = map.map_epoch();
        }
        // Last: who is answered under it finds all of the above.
        self.epoch.store(map.map_epoch().0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
