//! The right of this worker to answer for attributes: its map, its lease, and since when it is the
//! home of each slot. Pure but for its atomics: the coordinators' client updates it, and requests
//! read it.
//!
//! # Why nothing stale is answered
//! A coordinated worker answers from its cache only under three conditions. (1) The caller has the
//! same epoch. (2) The worker's lease lasts. (3) The answer was requested from the UFS after the
//! worker became the home of the key's slot. Another home can come into force only after this
//! worker has given up the epoch (`give_up_epoch`), or after its lease is over by the coordinator's
//! clock. The coordinator's end of a lease is later than the worker's own. So every write that was
//! acknowledged before a read began was reported to this worker, or to a home before it. The cached
//! answer was requested after that report. Leases of gateways end with this worker's own at the
//! latest, and are waited for before an epoch is reported as given up. Epoch and lease are judged
//! when a request arrives: a read that began before may be overtaken by a write anyway.
//!
//! A slot may come from a home that could not hand over its open writes. Reads of it then go to the
//! UFS until those writes must be over, at the next home and at all later ones. A restarted process
//! knows of no writes, so it counts as a silent home.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use verbs3_protocol::{Epoch, HashSlot, PlacementMap, SLOTS, WorkerId, WriteLeaseState};

use crate::clock::{ClockReading, WorkerInstant};

/// Stands for no epoch: no caller uses it.
const NONE: u64 = 0;
/// Marks a slot whose home is another worker.
const NEVER: u64 = u64::MAX;

/// What may be answered to a caller that arrives now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerRight {
    /// Anything that is known.
    All,
    /// Only what was requested from the UFS within this time.
    Since(Duration),
    /// Only what the UFS answers now.
    Ask,
}

impl AnswerRight {
    /// Narrows the right to answers that were requested within `since`.
    pub(crate) fn limit_to_age(self, since: Option<Duration>) -> Self {
        match (self, since) {
            (right, None) | (right @ Self::Ask, _) => right,
            (Self::All, Some(since)) => Self::Since(since),
            (Self::Since(own), Some(since)) => Self::Since(own.min(since)),
        }
    }
}

/// The reasons why the worker may not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandingError {
    /// The caller's epoch differs from this worker's (0: between two epochs).
    Epoch(Epoch),
    /// The worker was cut off from the coordinators for too long to take part in writes.
    Lease,
}

/// A map that comes into force, and the state of the handover from the one before.
pub struct MapHandover<'a> {
    pub map: &'a PlacementMap,
    pub me: &'a WorkerId,
    /// The previous map; `None`: there was none.
    pub former: Option<&'a PlacementMap>,
    /// Members of the former map whose open writes were handed over, and were recorded here.
    pub handed_over: &'a HashSet<WorkerId>,
    /// The previous process ended in order, under this very map.
    pub resumes: bool,
    /// An unknown earlier process may have answered under this very map.
    pub restarted: bool,
    /// How long writes that were unknown to the homes that handed over may stay open.
    pub inherited: Duration,
    /// How long writes that nobody handed over may stay open.
    pub silent: Duration,
}

/// The worker's standing in its cluster.
pub(crate) enum WorkerStanding {
    /// A map that never changes. `None`: all callers are of this process, and of any epoch.
    Fixed(Option<Epoch>),
    Coordinated(Box<CoordinatedStanding>),
}

pub(crate) struct CoordinatedStanding {
    epoch: AtomicU64,
    /// Nanoseconds, as [`ClockReading::latest`] counts.
    lease_until: AtomicU64,
    outage_until: AtomicU64,
    /// For each slot, the moment from which on requested answers may be used.
    valid_from: Box<[AtomicU64]>,
    /// The last epoch under which this process answered.
    last: Mutex<Epoch>,
    /// Held while a write is recorded, so that a handover is complete.
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

    /// Returns the right to answer a request about attributes that arrives at `now`.
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

    /// Records a write that is announced or reported at `now`: runs `note` so that no handover
    /// misses it.
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

    /// Grants a lease to a caller of the epoch `asked`. Runs `grant` with the end of this worker's
    /// own lease, so that no handover misses the grant. Returns `None` without a lease of the
    /// worker's own. A worker with a list of workers also grants none, because its next process
    /// would not know of it. Where only this process asks, leases end with it.
    pub(crate) fn to_grant<T>(
        &self,
        asked: Epoch,
        times: impl Into<ClockReading>,
        grant: impl FnOnce(WorkerInstant) -> Option<T>,
    ) -> Option<T> {
        let ClockReading { now, latest } = times.into();
        let own = match self {
            Self::Fixed(None) => return grant(now.saturating_add(Duration::MAX)),
            Self::Fixed(Some(_)) => return None,
            Self::Coordinated(own) => own,
        };
        let _noting = own.noting.read();
        own.is_at(asked).ok()?;
        let until = WorkerInstant::from_nanos(own.lease_until.load(Ordering::SeqCst));
        (until > latest).then(|| grant(now.saturating_add(until.duration_since(latest)))).flatten()
    }

    /// Checks only the epoch: for requests that depend on ownership and not on coherence.
    pub(crate) fn is_at(&self, asked: Epoch) -> Result<(), StandingError> {
        match self {
            Self::Fixed(None) => Ok(()),
            Self::Fixed(Some(own)) if *own == asked => Ok(()),
            Self::Fixed(Some(own)) => Err(StandingError::Epoch(*own)),
            Self::Coordinated(own) => own.is_at(asked),
        }
    }

    /// Returns the epoch under which this worker answers now; 0: none.
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

    /// Sets the ends of the lease. Both count as [`ClockReading::latest`] does.
    pub(crate) fn set_lease(&self, until: WorkerInstant, outage_until: WorkerInstant) {
        self.outage_until.store(outage_until.as_nanos(), Ordering::SeqCst);
        self.lease_until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// Stops answering under the present epoch. On return, every write recorded under it is
    /// complete, and every granted lease is in the table.
    pub(crate) fn give_up_epoch(&self) {
        let _all_noted = self.noting.write();
        self.epoch.store(NONE, Ordering::SeqCst);
    }

    /// Returns how long reads of some of this worker's slots go to the UFS, because of writes that
    /// it was not told of.
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

    /// Starts answering under another map from `now` on.
    pub(crate) fn activate_map(&self, handover: &MapHandover<'_>, now: WorkerInstant) {
        let MapHandover { map, me, former, handed_over, resumes, restarted, inherited, silent } =
            handover;
        let mut last = self.last.lock();
        // This is the same map again, so no other worker was a home meanwhile.
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
                    // The slot keeps its moment.
                    Some(before) if before == *me && continuous => continue,
                    _ if *resumes => inherited,
                    _ if *restarted => silent,
                    None if last.0 == NONE => now.as_nanos(),
                    Some(before) if before != *me && handed_over.contains(before) => inherited,
                    // The former home was silent, or the coordinators lost their state.
                    _ => silent,
                };
                valid_from.store(from, Ordering::SeqCst);
            }
            *last = map.map_epoch();
        }
        // This comes last: a caller that is answered under the new epoch sees all of the above.
        self.epoch.store(map.map_epoch().0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
