//! Owns places that tenants share and that nobody waits for: those of announced writes, of doubts and
//! of checks. The rules are those of all that is scarce ([`FairQueue`]).
//!
//! A tenant that is alone leaves a part of the reserve free, too. What it holds may stay for an hour,
//! and somebody who comes meanwhile must find a place.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use verbs3_doors::{FairLimits, FairParty, FairQueue};

use crate::clock::WorkerInstant;
use crate::tenants::{TenantAccount, TenantAccounts};

/// How long after it asked last places are kept free for a tenant.
const RESERVED_FOR_MAX: Duration = Duration::from_secs(60);

/// Whether somebody takes what is kept for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceReserve {
    StaysFree,
    /// For what nobody can be refused for.
    MayBeUsed,
}

/// The places, and how many each account holds.
pub(super) struct AccountPlaces {
    queue: Mutex<FairQueue<Infallible>>,
    tenants: Arc<TenantAccounts>,
    capacity: u64,
    /// What the worker's clock counts from. Its moments become those of the queue.
    began: Instant,
}

impl AccountPlaces {
    pub(super) fn new(capacity: usize, tenants: Arc<TenantAccounts>) -> Self {
        let (capacity, rules) = (capacity as u64, tenants.rules());
        let limits = FairLimits {
            capacity,
            // Rounded down: few places are not worth a reserve.
            reserve: capacity.saturating_mul(rules.reserve_percent.into()) / 100,
            waiting_max: 0,
            active_for: rules.active_for.min(RESERVED_FOR_MAX),
        };
        let queue = Mutex::new(FairQueue::new(limits));
        Self { queue, tenants, capacity, began: Instant::now() }
    }

    /// Takes places, all or none, if they are free and the reserve allows it.
    pub(super) fn try_take(
        &self,
        account: TenantAccount,
        places: usize,
        reserve: PlaceReserve,
        now: WorkerInstant,
    ) -> bool {
        let is_alone = reserve == PlaceReserve::MayBeUsed;
        let party = FairParty { is_alone, ..self.tenants.party_of(account) };
        let at = self.began.checked_add(Duration::from_nanos(now.as_nanos()));
        // A queue has one place at least.
        let is_taken = places == 0
            || (places as u64 <= self.capacity
                && self.queue.lock().try_take(party, places as u64, at.unwrap_or(self.began)));
        if is_taken {
            self.tenants.add_notes(account, places);
        }
        is_taken
    }

    pub(super) fn give_back(&self, account: TenantAccount, places: usize) {
        if places > 0 {
            self.queue.lock().give_back(self.tenants.party_of(account), places as u64);
            self.tenants.remove_notes(account, places);
        }
    }

    /// Returns how many are held.
    pub(super) fn used(&self) -> usize {
        usize::try_from(self.queue.lock().used_units()).unwrap_or(usize::MAX)
    }
}
