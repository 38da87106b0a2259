//! Owns the bound on the memory of all requests' bodies, which tenants share fairly. A body takes
//! its memory before its first byte is read, and gives it back with the request's end. Over the bound
//! it waits for its turn.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus::IntGauge;
use verbs3_doors::FairRefusal;

use crate::request_context::RequestContext;
use crate::tenant_metrics::SharedResource;
use crate::tenant_places::{SharingRules, TenantPlace, TenantPlaces};

/// The memory for bodies of a gateway.
pub(crate) struct BodyBudget {
    memory: TenantPlaces,
}

/// Taken memory. Dropping it gives it back.
pub(crate) type BodyPlace = TenantPlace;

impl BodyBudget {
    /// Makes a budget. `held` counts the taken bytes. The bound is counted in KiB, and is at least
    /// 1 KiB.
    pub fn new(
        resource: SharedResource,
        bytes_max: u64,
        rules: &SharingRules,
        held: IntGauge,
    ) -> Arc<Self> {
        Arc::new(Self { memory: TenantPlaces::of_memory(resource, bytes_max, rules, held) })
    }

    /// Takes memory for a request. `None`: not enough is left. A body larger than the budget takes
    /// all of it.
    pub fn take_memory(&self, cx: &RequestContext, bytes: u64) -> Option<BodyPlace> {
        self.memory.try_take_place(cx.tenant(), bytes, Instant::now())
    }
}

/// One request's part of the budget.
pub(crate) struct BodyReservation {
    budget: Arc<BodyBudget>,
    cx: Arc<RequestContext>,
    bytes: u64,
    place: Mutex<Option<BodyPlace>>,
}

impl BodyReservation {
    /// Makes a reservation that takes nothing yet: an unproven caller holds no memory.
    pub fn new(budget: Arc<BodyBudget>, cx: Arc<RequestContext>, bytes: u64) -> Arc<Self> {
        Arc::new(Self { budget, cx, bytes, place: Mutex::new(None) })
    }

    /// Takes the memory if the body has none yet. Returns whether it has it now.
    pub fn ensure_place(&self) -> bool {
        let mut place = self.place.lock();
        if place.is_none() {
            *place = self.budget.take_memory(&self.cx, self.bytes);
        }
        place.is_some()
    }

    /// Takes the memory if the body has none yet, or waits for its turn.
    pub async fn wait_for_place(&self) -> Result<(), FairRefusal> {
        if self.place.lock().is_some() {
            return Ok(());
        }
        let (tenant, now) = (self.cx.tenant(), Instant::now());
        let place = self.budget.memory.take_place(tenant, self.bytes, now).await?;
        *self.place.lock() = Some(place);
        Ok(())
    }

    /// Gives the memory back, because the body is gone.
    pub fn release_place(&self) {
        *self.place.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::request_context::RequestId;

    #[test]
    fn over_the_bound_there_is_no_place_until_one_is_given_back() {
        let held = IntGauge::new("held", "held").unwrap();
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let rules = SharingRules {
            reserve_percent: 0,
            waiting_max: 8,
            active_for: minute,
            wait_max: second,
        };
        let budget = BodyBudget::new(SharedResource::BodyBytes, 8 << 10, &rules, held.clone());
        let cx = Arc::new(RequestContext::new(RequestId::generate(), Instant::now()));
        let first = BodyReservation::new(budget.clone(), cx.clone(), 6 << 10);
        let second = BodyReservation::new(budget.clone(), cx.clone(), 3 << 10);
        assert!(
            held.get() == 0
                && first.ensure_place()
                && first.ensure_place()
                && !second.ensure_place()
        );
        assert_eq!(held.get(), 6 << 10);
        first.release_place();
        assert!(second.ensure_place());
        drop((first, second));
        assert_eq!(held.get(), 0);
        assert!(
            budget.take_memory(&cx, u64::MAX).is_some(),
            "what is larger than all is taken alone"
        );
    }
}
