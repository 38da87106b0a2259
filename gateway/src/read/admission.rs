//! Owns the bounds of a gateway's reads: bytes in flight, and reads that go to the UFS past the
//! tier. Tenants share them fairly.
//!
//! A request waits for its first bytes before it holds any memory, and only for a bounded time. It
//! tries to grow, but never waits for that.
//!
//! A read of data that is not cached holds its memory for as long as the store takes. So tenants
//! that read such data have a budget of their own within the bound: what it leaves is for hits. A
//! read does not know before whether it will hit; its tenant's last reads say what is likely.

use std::time::{Duration, Instant};

use prometheus::IntGauge;

use crate::request_context::RequestContext;
use crate::settings::GatewayReadSettings;
use crate::tenant_metrics::SharedResource;
use crate::tenant_places::{SharingRules, TenantPlace, TenantPlaces};

/// The bound on bytes in flight of all reads.
pub(super) struct ReadAdmission {
    bytes: TenantPlaces,
    /// The part of them for tenants whose reads miss.
    cold: TenantPlaces,
}

/// Admitted bytes. Dropping it gives them back.
pub(super) struct ReadBytesPermit {
    bytes: TenantPlace,
    cold: Option<TenantPlace>,
}

impl ReadAdmission {
    /// Makes the bound of `bytes_max` bytes. `in_flight` shows how many are admitted.
    pub(super) fn new(
        bytes_max: u64,
        settings: &GatewayReadSettings,
        rules: &SharingRules,
        in_flight: IntGauge,
    ) -> Self {
        let rules = SharingRules { wait_max: settings.admission_wait_max.0, ..*rules };
        let cold_max = bytes_max.saturating_mul(settings.cold_share_percent.into()) / 100;
        let unshown = IntGauge::new("cold", "not shown").expect("it is a plain name");
        Self {
            bytes: TenantPlaces::of_memory(SharedResource::ReadBytes, bytes_max, &rules, in_flight),
            cold: TenantPlaces::of_memory(SharedResource::ColdReadBytes, cold_max, &rules, unshown),
        }
    }

    /// Admits bytes; waits up to the configured time. `None`: overloaded.
    pub(super) async fn admit_bytes(
        &self,
        cx: &RequestContext,
        bytes: u64,
    ) -> Option<ReadBytesPermit> {
        let (tenant, now) = (cx.tenant(), cx.started_at());
        let cold = match tenant.reads_cold_data() {
            true => Some(self.cold.take_place(tenant, bytes, now).await.ok()?),
            false => None,
        };
        let bytes = self.bytes.take_place(tenant, bytes, now).await.ok()?;
        Some(ReadBytesPermit { bytes, cold })
    }

    /// Admits bytes if they are free now.
    pub(super) fn try_admit(&self, cx: &RequestContext, bytes: u64) -> Option<ReadBytesPermit> {
        let (tenant, now) = (cx.tenant(), Instant::now());
        let cold = match tenant.reads_cold_data() {
            true => Some(self.cold.try_take_place(tenant, bytes, now)?),
            false => None,
        };
        let bytes = self.bytes.try_take_place(tenant, bytes, now)?;
        Some(ReadBytesPermit { bytes, cold })
    }
}

impl ReadBytesPermit {
    /// Changes the held bytes to `bytes`: gives the rest back, or takes what is missing if it is
    /// free now. The first span goes on in any case: it has a landing or the UFS.
    pub(super) fn resize_permit(&mut self, cx: &RequestContext, bytes: u64) {
        let now = cx.started_at();
        self.bytes.resize_place(bytes, now);
        if let Some(cold) = &mut self.cold {
            cold.resize_place(bytes, now);
        }
    }
}

/// The places of this gateway's reads past the tier.
#[derive(Clone)]
pub(super) struct BypassPlaces {
    places: TenantPlaces,
}

/// A place among them. Dropping it gives it back.
pub(super) struct BypassPermit {
    _place: TenantPlace,
}

impl BypassPlaces {
    /// Makes the places. `in_flight` shows how many are taken.
    pub(super) fn new(
        in_flight_max: usize,
        wait_max: Duration,
        rules: &SharingRules,
        in_flight: IntGauge,
    ) -> Self {
        let rules = SharingRules { wait_max, ..*rules };
        let resource = SharedResource::Bypasses;
        Self { places: TenantPlaces::of_count(resource, in_flight_max, &rules, in_flight) }
    }

    /// Takes a place. `None`: none became free for the request's tenant in time.
    pub(super) async fn take_permit(&self, cx: &RequestContext) -> Option<BypassPermit> {
        let place = self.places.take_place(cx.tenant(), 1, Instant::now()).await.ok()?;
        Some(BypassPermit { _place: place })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use verbs3_settings::TimePeriod;

    use super::*;
    use crate::auth::Tenant;
    use crate::request_context::RequestId;

    const SECOND: Duration = Duration::from_secs(1);

    fn rules(reserve_percent: u32) -> SharingRules {
        let wait_max = SECOND;
        SharingRules { reserve_percent, waiting_max: 64, active_for: 60 * SECOND, wait_max }
    }

    fn gauge() -> IntGauge {
        IntGauge::new("held", "held").unwrap()
    }

    fn admission(wait_max: Duration) -> ReadAdmission {
        let settings = GatewayReadSettings {
            admission_wait_max: TimePeriod(wait_max),
            cold_share_percent: 50,
            ..GatewayReadSettings::default()
        };
        ReadAdmission::new(8 << 10, &settings, &rules(0), gauge())
    }

    fn request_of(tenant: &Arc<Tenant>) -> RequestContext {
        let cx = RequestContext::new(RequestId::generate(), Instant::now());
        cx.set_tenant(tenant.clone());
        cx
    }

    fn request() -> RequestContext {
        request_of(Tenant::unknown())
    }

    fn in_flight(admission: &ReadAdmission) -> i64 {
        admission.bytes.shown_amount()
    }

    #[tokio::test(start_paused = true)]
    async fn over_the_bound_a_read_waits_a_bounded_time() {
        let (admission, cx) = (admission(SECOND), request());
        let held = admission.admit_bytes(&cx, 6 << 10).await.unwrap();
        assert!(admission.admit_bytes(&cx, 3 << 10).await.is_none());
        assert_eq!(in_flight(&admission), 6 << 10);
        drop(held);
        assert!(admission.admit_bytes(&cx, 3 << 10).await.is_some());
    }

    #[tokio::test]
    async fn a_read_holds_what_it_needs_as_far_as_there_is_room() {
        let (admission, cx) = (admission(SECOND), request());
        let mut held = admission.admit_bytes(&cx, 8 << 10).await.unwrap();
        held.resize_permit(&cx, 10);
        assert_eq!(in_flight(&admission), 1 << 10);
        held.resize_permit(&cx, 5 << 10);
        assert_eq!(in_flight(&admission), 5 << 10);
        held.resize_permit(&cx, 80 << 10);
        assert_eq!(in_flight(&admission), 8 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_several_tenants_leaves_places_for_others() {
        let places = BypassPlaces::new(10, SECOND, &rules(20), gauge());
        let greedy = request_of(&Tenant::one_of_several("greedy", 1));
        let mut held = Vec::new();
        while let Some(place) = places.take_permit(&greedy).await {
            held.push(place);
        }
        assert_eq!(held.len(), 9, "nobody else wants one, and one is kept even so");
        let modest = request_of(&Tenant::one_of_several("modest", 2));
        let other = places.take_permit(&modest).await;
        assert!(other.is_some());
        held.truncate(8);
        assert!(places.take_permit(&greedy).await.is_none(), "now somebody else wants them");
        held.clear();
        drop(other);
        while let Some(place) = places.take_permit(&request()).await {
            held.push(place);
        }
        assert_eq!(held.len(), 10, "who is alone has all");
    }

    #[tokio::test]
    async fn a_read_larger_than_all_is_admitted_alone() {
        let (admission, cx) = (admission(Duration::ZERO), request());
        let held = admission.admit_bytes(&cx, u64::MAX).await.unwrap();
        assert!(admission.try_admit(&cx, 1).is_none());
        drop(held);
        assert!(admission.try_admit(&cx, 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn scan_of_cold_data_leaves_memory_to_hits() {
        let admission = admission(SECOND);
        let scanner = Tenant::one_of_several("scanner", 1);
        let reader = Tenant::one_of_several("reader", 2);
        for _ in 0..64 {
            scanner.note_read(false);
            reader.note_read(true);
        }
        let mut held = Vec::new();
        while let Some(bytes) = admission.admit_bytes(&request_of(&scanner), 1 << 10).await {
            held.push(bytes);
        }
        assert_eq!(held.len(), 4, "half is for cold data");
        assert!(admission.try_admit(&request_of(&reader), 4 << 10).is_some());
        for _ in 0..64 {
            scanner.note_read(true);
        }
        assert!(admission.try_admit(&request_of(&scanner), 4 << 10).is_some());
    }
}
