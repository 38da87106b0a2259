//! Owns what tenants share of a gateway: places and memory, in a fair queue each ([`FairPlaces`]),
//! with the metrics of who holds what. Does not know what is done with them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::IntGauge;
use verbs3_doors::{FairLimits, FairParty, FairPermit, FairPlaces, FairRefusal};

use crate::auth::Tenant;
use crate::settings::GatewaySettings;
use crate::tenant_metrics::SharedResource;

/// How all that is shared is shared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharingRules {
    /// Part of each capacity that is kept from tenants above their share.
    pub reserve_percent: u32,
    /// Most who wait, for each.
    pub waiting_max: usize,
    /// How long a tenant counts as active after its last request.
    pub active_for: Duration,
    /// How long one may wait for its turn.
    pub wait_max: Duration,
}

impl SharingRules {
    /// The same for reads: all requests under way may wait for their bytes.
    pub fn of_reads(settings: &GatewaySettings) -> Self {
        let rules = Self::from_settings(settings);
        let requests_max = settings.limits.requests_in_flight_max as usize;
        Self { waiting_max: rules.waiting_max.max(requests_max), ..rules }
    }

    /// Reads them from the settings.
    pub fn from_settings(settings: &GatewaySettings) -> Self {
        Self {
            reserve_percent: settings.limits.tenant_reserve_percent,
            waiting_max: settings.limits.turns_waiting_max as usize,
            active_for: settings.timeouts.tenant_active.0,
            wait_max: settings.timeouts.turn_wait.0,
        }
    }
}

/// One thing that tenants share. Clones share it, too.
#[derive(Clone)]
pub(crate) struct TenantPlaces {
    /// `None`: there is nothing.
    places: Option<Arc<FairPlaces>>,
    resource: SharedResource,
    /// Bytes of one unit; 1 for what is counted.
    unit_bytes: u64,
    /// What all tenants hold.
    held: IntGauge,
}

/// What one request holds of it. Dropping it gives it back.
pub(crate) struct TenantPlace {
    permit: FairPermit,
    tenant: Arc<Tenant>,
    resource: SharedResource,
    unit_bytes: u64,
    held: IntGauge,
}

/// Unit in which memory is counted: far below any landing, and large enough to count a request as
/// more than nothing.
const MEMORY_UNIT_BYTES: u64 = 1 << 10;

impl TenantPlaces {
    /// Makes places that are counted. `held` shows how many are taken.
    pub fn of_count(
        resource: SharedResource,
        places_max: usize,
        rules: &SharingRules,
        held: IntGauge,
    ) -> Self {
        let places = (places_max > 0).then(|| share_capacity(places_max as u64, rules));
        Self { places, resource, unit_bytes: 1, held }
    }

    /// Makes memory, which is counted by the KiB. `held` shows how many bytes are taken.
    pub fn of_memory(
        resource: SharedResource,
        bytes_max: u64,
        rules: &SharingRules,
        held: IntGauge,
    ) -> Self {
        let places = Some(share_capacity((bytes_max / MEMORY_UNIT_BYTES).max(1), rules));
        Self { places, resource, unit_bytes: MEMORY_UNIT_BYTES, held }
    }

    /// Takes places or bytes for a tenant, or waits for its turn. More than there are count as all.
    pub async fn take_place(
        &self,
        tenant: &Arc<Tenant>,
        amount: u64,
        now: Instant,
    ) -> Result<TenantPlace, FairRefusal> {
        let taken = match &self.places {
            Some(places) => places.take_permit(party_of(tenant), self.units_of(amount), now).await,
            None => Err(FairRefusal { is_above_share: false }),
        };
        let permit = taken.inspect_err(|_| self.count_refusal(tenant))?;
        if permit.has_waited() {
            tenant.metrics().waits[self.resource].inc();
        }
        Ok(self.hold_permit(permit, tenant))
    }

    /// Takes places or bytes that are free now, if it is nobody else's turn.
    pub fn try_take_place(
        &self,
        tenant: &Arc<Tenant>,
        amount: u64,
        now: Instant,
    ) -> Option<TenantPlace> {
        let (party, units) = (party_of(tenant), self.units_of(amount));
        let permit =
            self.places.as_ref().and_then(|places| places.try_take_permit(party, units, now));
        if permit.is_none() {
            self.count_refusal(tenant);
        }
        permit.map(|permit| self.hold_permit(permit, tenant))
    }

    /// Returns what is shown to be held by all.
    #[cfg(test)]
    pub fn shown_amount(&self) -> i64 {
        self.held.get()
    }

    fn units_of(&self, amount: u64) -> u64 {
        amount.div_ceil(self.unit_bytes).max(1)
    }

    fn count_refusal(&self, tenant: &Tenant) {
        tenant.metrics().refusals[self.resource].inc();
    }

    fn hold_permit(&self, permit: FairPermit, tenant: &Arc<Tenant>) -> TenantPlace {
        let (tenant, held) = (tenant.clone(), self.held.clone());
        let (resource, unit_bytes) = (self.resource, self.unit_bytes);
        let place = TenantPlace { permit, tenant, resource, unit_bytes, held };
        place.show_change(place.held_amount());
        place
    }
}

impl TenantPlace {
    /// Changes what is held: gives the rest back, or takes what is missing, if that is free now.
    /// Returns whether so much is held.
    pub fn resize_place(&mut self, amount: u64, now: Instant) -> bool {
        let before = self.held_amount();
        let resized = self.permit.resize_permit(amount.div_ceil(self.unit_bytes).max(1), now);
        let after = self.held_amount();
        if after != before {
            self.show_change(after - before);
        }
        resized
    }

    /// Takes what is missing to `amount`, if that is free now. Counts a refusal where it is not.
    pub fn grow_place(&mut self, amount: u64, now: Instant) -> bool {
        let grown = self.resize_place(amount, now);
        if !grown {
            self.tenant.metrics().refusals[self.resource].inc();
        }
        grown
    }

    fn held_amount(&self) -> i64 {
        let amount = self.permit.held_units().saturating_mul(self.unit_bytes);
        i64::try_from(amount).unwrap_or(i64::MAX)
    }

    fn show_change(&self, change: i64) {
        self.held.add(change);
        self.tenant.metrics().held[self.resource].add(change);
    }
}

impl Drop for TenantPlace {
    fn drop(&mut self) {
        self.show_change(-self.held_amount());
    }
}

fn share_capacity(capacity: u64, rules: &SharingRules) -> Arc<FairPlaces> {
    let limits = FairLimits {
        capacity,
        reserve: capacity.saturating_mul(rules.reserve_percent.into()).div_ceil(100),
        waiting_max: rules.waiting_max,
        active_for: rules.active_for,
    };
    FairPlaces::new(limits, rules.wait_max)
}

/// Returns a tenant as a party to a queue.
pub(crate) fn party_of(tenant: &Tenant) -> FairParty {
    FairParty {
        number: tenant.tenant_number(),
        weight: tenant.tenant_weight(),
        is_alone: tenant.is_alone(),
    }
}
