//! Owns the turns of requests to each store: as many as its client sends at once. That client serves
//! in order of arrival and knows no tenants, so fills and checks take a turn here first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use verbs3_doors::{FairLimits, FairPlaces};
use verbs3_ufs::Ufs;

use crate::settings::WorkerFillSettings;
use crate::tenants::TenantRules;

/// How long after its last request turns are kept free for a tenant.
const RESERVED_FOR_MAX: Duration = Duration::from_secs(60);

/// How tenants share what fills and checks have under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnRules {
    rules: TenantRules,
    waiting_max: usize,
    wait_max: Duration,
}

impl TurnRules {
    pub(super) fn new(rules: TenantRules, fill: &WorkerFillSettings) -> Self {
        Self { rules, waiting_max: fill.queued_max as usize, wait_max: fill.wait_max.0 }
    }

    /// Makes places that tenants share.
    pub(super) fn share_places(self, capacity: u64) -> Arc<FairPlaces> {
        let limits = FairLimits {
            capacity,
            reserve: capacity.saturating_mul(self.rules.reserve_percent.into()).div_ceil(100),
            waiting_max: self.waiting_max,
            active_for: self.rules.active_for.min(RESERVED_FOR_MAX),
        };
        FairPlaces::new(limits, self.wait_max)
    }
}

/// The turns of each store, made when it is first asked.
pub(super) struct StoreTurns {
    rules: TurnRules,
    turns: RwLock<HashMap<String, Arc<FairPlaces>>>,
}

impl StoreTurns {
    pub(super) fn new(rules: TurnRules) -> Self {
        Self { rules, turns: RwLock::default() }
    }

    /// Returns the turns of a store. The names are of a configuration, so they are few.
    pub(super) fn turns_of(&self, ufs: &Ufs) -> Arc<FairPlaces> {
        if let Some(turns) = self.turns.read().get(ufs.ufs_name()) {
            return turns.clone();
        }
        let make = || self.rules.share_places(ufs.requests_in_flight_max().into());
        self.turns.write().entry(ufs.ufs_name().to_owned()).or_insert_with(make).clone()
    }

    /// Returns how many wait, over all stores.
    pub(super) fn waiting_count(&self) -> usize {
        self.turns.read().values().map(|turns| turns.waiting_count()).sum()
    }
}
