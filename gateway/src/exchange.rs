//! Owns what the front of the gateway knows of one request, besides what `request` keeps for all:
//! the operation, who asks, the target, why its body was refused, and which bounds it counts
//! against. `http` puts it into the request's extensions as `Arc<HttpExchange>`.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prometheus::IntGauge;
use s3s::{S3Error, S3Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use verbs3_doors::{KeyShare, KeyShares};
use verbs3_ufs::Ufs;

use crate::auth::{AuthIdentity, IdentityStore};
use crate::http::{ConnectionCaller, InboundBody};
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::request::RequestContext;
use crate::s3_errors::slow_down;
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
    place: Mutex<Option<RequestPlace>>,
    shares: Arc<IdentityShares>,
    share: Mutex<Option<KeyShare<String>>>,
}

/// The shares of identities in common bounds, so that one of several can't keep the others out. A
/// single identity may use everything.
pub(crate) struct IdentityShares {
    pub identities: Arc<IdentityStore>,
    /// Requests under way, by identity.
    pub requests: Arc<KeyShares<String>>,
    /// Uploads under way, by UFS and identity. Each holds a connection to the UFS for as long as
    /// its client likes.
    pub uploads: Arc<KeyShares<(String, String)>>,
    pub metrics: Arc<GatewayHttpMetrics>,
}

impl IdentityShares {
    fn over_share_error(&self) -> S3Error {
        self.metrics.count_denial(DenialReason::IdentityShare);
        slow_down()
    }

    fn is_alone(&self) -> bool {
        self.identities.identities_count() <= 1
    }
}

/// Returns `percent` of the places, at least one.
pub(crate) fn share_of(places: usize, percent: u32) -> usize {
    (places.saturating_mul(percent as usize) / 100).max(1)
}

/// Places for requests under way.
#[derive(Clone)]
pub(crate) struct RequestPlaces {
    places: Arc<Semaphore>,
    by_address: Arc<KeyShares<IpAddr>>,
    taken: IntGauge,
}

/// One address may hold one part in this many of the places, where places are counted by address.
const ADDRESSES_MIN: usize = 4;

/// A request's place among those under way. Dropping it gives it back.
pub(crate) struct RequestPlace {
    _permit: OwnedSemaphorePermit,
    share: Option<KeyShare<IpAddr>>,
    taken: IntGauge,
}

/// A request's place and share. Dropping it gives them back.
pub(crate) struct RequestPlaceAndShare {
    _place: Option<RequestPlace>,
    _share: Option<KeyShare<String>>,
}

impl RequestPlaces {
    /// Makes the places; `taken` counts those in use. One address may hold a quarter of
    /// `places_max`, rounded up.
    pub fn new(places_max: usize, taken: IntGauge) -> Self {
        let places = Arc::new(Semaphore::new(places_max.min(Semaphore::MAX_PERMITS)));
        Self { places, by_address: KeyShares::new(places_max.div_ceil(ADDRESSES_MIN)), taken }
    }

    /// Takes a place for an address. `None`: all are taken, or this address holds its share.
    pub fn take_place_of(&self, address: IpAddr) -> Option<RequestPlace> {
        let share = self.by_address.take_share(&address)?;
        let mut place = self.take_place()?;
        place.share = Some(share);
        Some(place)
    }

    /// Takes a place. `None`: all are taken.
    pub fn take_place(&self) -> Option<RequestPlace> {
        let permit = self.places.clone().try_acquire_owned().ok()?;
        self.taken.inc();
        Some(RequestPlace { _permit: permit, share: None, taken: self.taken.clone() })
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
        shares: Arc<IdentityShares>,
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
            place: Mutex::new(None),
            shares,
            share: Mutex::new(None),
        }
    }

    /// Takes memory for the body, if it has none yet. `false`: there is none left.
    pub fn reserve_body(&self) -> bool {
        self.body.get().is_none_or(|body| body.ensure_place())
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

    /// Notes that the request's signature holds, which also proves the connection's caller. `Err`:
    /// this identity has too many requests under way.
    pub fn recognise_identity(&self, identity: Arc<AuthIdentity>) -> S3Result<()> {
        self.caller.mark_proven();
        let name = identity.identity_name().to_owned();
        let _ = self.identity.set(identity);
        if self.shares.is_alone() {
            return Ok(());
        }
        self.cx.set_principal(&name);
        let share =
            self.shares.requests.take_share(&name).ok_or_else(|| self.shares.over_share_error())?;
        *self.share.lock() = Some(share);
        Ok(())
    }

    /// Takes an upload share; hold it as long as the upload takes. `Err`: this identity has too
    /// many uploads under way to this UFS.
    pub fn take_upload_share(&self, ufs: &Ufs) -> S3Result<Option<KeyShare<(String, String)>>> {
        let Some(name) = self.cx.principal_name() else { return Ok(None) };
        let share = self.shares.uploads.take_share(&(ufs.ufs_name().to_owned(), name.to_owned()));
        share.map(Some).ok_or_else(|| self.shares.over_share_error())
    }

    /// Counts the request against one bound, instead of the one before.
    pub fn hold_place(&self, place: RequestPlace) {
        *self.place.lock() = Some(place);
    }

    /// Counts the request against no bound: it is over, or what is left of it costs nothing.
    pub fn release_places(&self) {
        drop(self.take_places());
    }

    /// Returns what the request counts against, for an owner that outlives it.
    pub fn take_places(&self) -> RequestPlaceAndShare {
        RequestPlaceAndShare { _place: self.place.lock().take(), _share: self.share.lock().take() }
    }
}
