//! Owns what the front of the gateway knows of one request, besides what `request_context` keeps
//! for all: the operation, who asks, the target, why its body was refused, and which bounds it
//! counts against. `http` puts it into the request's extensions as `Arc<HttpExchange>`.

use std::collections::HashMap;
use std::mem;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use prometheus::IntGauge;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3Result};
use tokio_util::sync::CancellationToken;
use verbs3_doors::{FairRefusal, RoomLimits, WaitingGuest, WaitingRoom};
use verbs3_ufs::Ufs;

use crate::auth::{AuthIdentity, Tenant};
use crate::http::{ConnectionCaller, InboundBody};
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::operation_table::TABLE;
use crate::request_context::RequestContext;
use crate::s3_errors::slow_down;
use crate::settings::GatewaySettings;
use crate::store_rates::StoreRates;
use crate::tenant_metrics::SharedResource;
use crate::tenant_places::{SharingRules, TenantPlace, TenantPlaces};
use crate::write::body_budget::BodyReservation;
use crate::write::body_fault::FaultSlot;

pub(crate) struct HttpExchange {
    pub cx: Arc<RequestContext>,
    /// The caller of the request's connection.
    pub caller: Arc<ConnectionCaller>,
    /// Index in the operation table. Set once the request is parsed and its signature verified.
    pub row: OnceLock<usize>,
    identity: OnceLock<Arc<AuthIdentity>>,
    /// Bucket and key for the log.
    pub target: OnceLock<(Box<str>, Box<str>)>,
    pub fault: FaultSlot,
    /// An aws-chunked body, raw, for whoever unwraps it.
    pub chunked: Mutex<Option<InboundBody>>,
    /// Memory for the body. Not set: the request has no body, or a form took it.
    pub body: OnceLock<Arc<BodyReservation>>,
    /// True once the operation's own code was reached: its input was read whole.
    pub entered: AtomicBool,
    /// True if its refusal has been counted already, under a reason that its code does not tell.
    pub counted: AtomicBool,
    places: Mutex<HeldPlaces>,
    bounds: Arc<TenantBounds>,
}

/// The bounds that tenants share, besides those on reads and on the memory of bodies.
pub(crate) struct TenantBounds {
    /// Requests under way.
    pub requests: TenantPlaces,
    /// Requests to stores besides reads, by UFS: those that have been asked so far.
    store_requests: RwLock<HashMap<String, TenantPlaces>>,
    store_requests_max: usize,
    store_rates: StoreRates,
    rules: SharingRules,
    metrics: Arc<GatewayHttpMetrics>,
}

impl TenantBounds {
    /// Makes the bounds by the settings. `store_rates` are shared with reads.
    pub fn new(
        settings: &GatewaySettings,
        store_rates: StoreRates,
        metrics: Arc<GatewayHttpMetrics>,
    ) -> Self {
        let rules = SharingRules::from_settings(settings);
        let requests_max = settings.limits.requests_in_flight_max as usize;
        let in_flight = metrics.in_flight.clone();
        Self {
            requests: TenantPlaces::of_count(
                SharedResource::Requests,
                requests_max,
                &rules,
                in_flight,
            ),
            store_requests: RwLock::default(),
            store_requests_max: settings.limits.store_requests_max as usize,
            store_rates,
            rules,
            metrics,
        }
    }

    fn store_requests(&self, ufs: &Ufs) -> TenantPlaces {
        if let Some(places) = self.store_requests.read().get(ufs.ufs_name()) {
            return places.clone();
        }
        let make = || {
            let resource = SharedResource::StoreRequests;
            let held = self.metrics.store_requests.clone();
            TenantPlaces::of_count(resource, self.store_requests_max, &self.rules, held)
        };
        let mut stores = self.store_requests.write();
        stores.entry(ufs.ufs_name().to_owned()).or_insert_with(make).clone()
    }

    /// Takes a place among the requests under way, or waits for the tenant's turn, since `since`.
    /// `Err`: it did not come in time.
    pub async fn take_turn(&self, tenant: &Arc<Tenant>, since: Instant) -> S3Result<TenantPlace> {
        let turn = self.requests.take_place(tenant, 1, since).await;
        turn.map_err(|refusal| self.refuse_request(refusal))
    }

    fn refuse_request(&self, refusal: FairRefusal) -> S3Error {
        self.metrics.count_denial(match refusal.is_above_share {
            true => DenialReason::TenantShare,
            false => DenialReason::Overloaded,
        });
        slow_down()
    }
}

/// Places for requests whose sender is not known yet. Where all are taken, one gives way, as
/// connections of strangers do.
#[derive(Clone)]
pub(crate) struct RequestPlaces {
    room: Arc<WaitingRoom>,
    taken: IntGauge,
}

/// One address may hold one part in this many of the places.
const ADDRESSES_MIN: usize = 4;
/// A stranger, and a request of one, does not give way for this long, if it is the only one of its
/// address: all ranks of a node may come in one second.
pub(crate) const STRANGER_GRACE: Duration = Duration::from_secs(1);

/// A stranger's place. Dropping it gives it back.
pub(crate) struct RequestPlace {
    guest: WaitingGuest,
    taken: IntGauge,
}

/// What a request counts against: a stranger's place, then one of its tenant's. Dropping it gives
/// them back.
#[derive(Default)]
pub(crate) struct HeldPlaces {
    unproven: Option<RequestPlace>,
    turn: Option<TenantPlace>,
}

impl RequestPlaces {
    /// Makes the places; `taken` counts those in use. One address may hold a quarter of
    /// `places_max`, rounded up.
    pub fn new(places_max: usize, taken: IntGauge) -> Self {
        let per_address_max = places_max.div_ceil(ADDRESSES_MIN);
        let limits = RoomLimits { places_max, per_address_max, grace: STRANGER_GRACE };
        Self { room: WaitingRoom::new(limits), taken }
    }

    /// Takes a place for an address. `None`: all are taken, or this address holds its share, and
    /// none gives way yet.
    pub fn take_place_of(&self, address: IpAddr) -> Option<RequestPlace> {
        let guest = self.room.admit_guest(address)?;
        self.taken.inc();
        Some(RequestPlace { guest, taken: self.taken.clone() })
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        self.taken.dec();
    }
}

impl HttpExchange {
    /// Makes an exchange with no identity, no place and no body memory yet.
    pub fn new(
        cx: Arc<RequestContext>,
        caller: Arc<ConnectionCaller>,
        bounds: Arc<TenantBounds>,
    ) -> Self {
        Self {
            cx,
            caller,
            row: OnceLock::new(),
            identity: OnceLock::new(),
            target: OnceLock::new(),
            fault: FaultSlot::default(),
            chunked: Mutex::new(None),
            body: OnceLock::new(),
            entered: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            places: Mutex::default(),
            bounds,
        }
    }

    /// Notes the operation, once the request's signature is verified. The first one stays.
    pub fn note_operation(&self, name: &str) {
        if let Some(row) = TABLE.iter().position(|row| row.name == name) {
            self.note_row(row);
        }
    }

    /// Notes the operation by its row in the table, like [`HttpExchange::note_operation`].
    pub fn note_row(&self, row: usize) {
        let _ = self.row.set(row);
    }

    /// Returns the operation's name in the table; `None` before the signature is verified.
    pub fn operation_name(&self) -> Option<&'static str> {
        self.row.get().and_then(|&row| TABLE.get(row)).map(|row| row.name)
    }

    /// Takes memory for the body, if it has none yet, or waits for its turn. `false`: there is none
    /// left.
    pub async fn reserve_body(&self) -> bool {
        match self.body.get() {
            Some(body) => body.wait_for_place().await.is_ok(),
            None => true,
        }
    }

    /// Drops the body and its memory, because the operation is over.
    pub fn drop_body(&self) {
        self.chunked.lock().take();
        if let Some(body) = self.body.get() {
            body.release_place();
        }
    }

    /// Returns the identity that sent the request. `None`: it is not proven yet.
    pub fn proven_identity(&self) -> Option<&Arc<AuthIdentity>> {
        self.identity.get()
    }

    /// Notes the identity, and takes a place among the requests under way, or waits for its tenant's
    /// turn. `Err`: it did not come in time.
    pub async fn admit_identity(&self, identity: Arc<AuthIdentity>) -> S3Result<()> {
        self.note_identity(identity);
        // From here on it holds a place like any known request, not a stranger's.
        self.places.lock().unproven = None;
        let turn = self.bounds.take_turn(self.cx.tenant(), self.cx.started_at()).await?;
        self.places.lock().turn = Some(turn);
        Ok(())
    }

    /// Notes that the request's signature holds, which also proves the connection's caller.
    pub fn note_identity(&self, identity: Arc<AuthIdentity>) {
        self.caller.mark_proven(identity.tenant().tenant_number());
        self.cx.set_tenant(identity.tenant().clone());
        let _ = self.identity.set(identity);
        self.cx.tenant().metrics().requests.inc();
    }

    /// Takes a place among the requests to a store, or waits for its tenant's turn; hold it as long
    /// as the request to the store takes. `Err`: it did not come in time.
    pub async fn take_store_place(&self, ufs: &Ufs) -> S3Result<TenantPlace> {
        let places = self.bounds.store_requests(ufs);
        let place = places.take_place(self.cx.tenant(), 1, Instant::now()).await;
        place.map_err(|refusal| self.bounds.refuse_request(refusal))
    }

    /// Returns a body on its way to a store, as slow as its tenant's part of the store's rate.
    pub fn pace_upload(&self, ufs: &Ufs, body: StreamingBlob) -> StreamingBlob {
        self.bounds.store_rates.pace_body(ufs, self.cx.tenant(), body)
    }

    /// Counts the request against the bound on strangers' requests.
    pub fn hold_place(&self, place: RequestPlace) {
        self.places.lock().unproven = Some(place);
    }

    /// Returns whether the request has to end where another stranger gets its place.
    pub fn holds_strangers_place(&self) -> bool {
        self.places.lock().unproven.is_some()
    }

    /// Returns a token that is cancelled when the request must end, so that another stranger gets
    /// its place. `None`: it holds none of theirs.
    pub fn displacement_token(&self) -> Option<CancellationToken> {
        self.places.lock().unproven.as_ref().map(|place| place.guest.displacement_token())
    }

    /// Counts the request against no bound: it is over, or what is left of it costs nothing.
    pub fn release_places(&self) {
        drop(self.take_places());
    }

    /// Returns what the request counts against, for an owner that outlives it.
    pub fn take_places(&self) -> HeldPlaces {
        mem::take(&mut self.places.lock())
    }
}
