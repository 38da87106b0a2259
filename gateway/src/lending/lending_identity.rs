//! Says who a client is, by a signature of version 4 over its connection's nonce and the socket's
//! path: the keys, the clock and the comparison of HTTP. Each nonce is drawn by the gateway and
//! tried once, so no proof serves twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::IntGauge;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use verbs3_doors::WaitingGuest;
use verbs3_lending::LendingHost;
use verbs3_lending_protocol::{IdentityClaim, LendingRefusal, ProofText};

use super::lending_guest::GatewayLendingGuest;
use crate::auth::{IdentityStore, ProofClock, SignatureClaim};
use crate::http::{
    ClientProgress, ConnectionCaller, ConnectionPeer, GatewayFront, KnownConnections,
};
use crate::metrics::DenialReason;
use crate::tenant_places::TenantPlaces;

/// What proofs are checked against, and what clients count against.
pub(super) struct LendingIdentities {
    pub(super) front: Arc<GatewayFront>,
    pub(super) identities: Arc<IdentityStore>,
    pub(super) socket_path: String,
    pub(super) clock_skew_max: Duration,
    pub(super) reads_in_flight_max: usize,
    pub(super) lands_directly: bool,
    pub(super) clients: TenantPlaces,
    pub(super) memory: TenantPlaces,
    pub(super) mappings: TenantPlaces,
    pub(super) pages: Option<TenantPlaces>,
    pub(super) known: Arc<KnownConnections>,
    pub(super) unproven: IntGauge,
}

impl LendingHost for LendingIdentities {
    type Guest = GatewayLendingGuest;

    fn prove_identity(
        &self,
        claim: &IdentityClaim,
        nonce: &[u8; 32],
        stranger: WaitingGuest,
    ) -> Result<GatewayLendingGuest, LendingRefusal> {
        let IdentityClaim { access_key, stamp, scope, signature } = claim;
        let claim = SignatureClaim { access_key, scope, stamp, signature };
        let Some(identity) = self.identities.get(access_key) else {
            self.front.metrics.count_denial(DenialReason::UnknownKey);
            return Err(LendingRefusal::UnknownKey);
        };
        let clock = ProofClock { now: OffsetDateTime::now_utc(), skew_max: self.clock_skew_max };
        let text = ProofText { nonce, socket_path: &self.socket_path, access_key };
        let canonical = Sha256::digest(text.canonical_text());
        if !claim.has_plain_scope() || !claim.is_signed_by(&identity, canonical) {
            self.front.metrics.count_denial(DenialReason::Signature);
            return Err(LendingRefusal::Signature);
        }
        if !claim.is_in_time(clock, None) {
            self.front.metrics.count_denial(DenialReason::Clock);
            return Err(LendingRefusal::Clock);
        }
        let place = self.clients.try_take_place(identity.tenant(), 1, Instant::now());
        let place = place.ok_or(LendingRefusal::Clients)?;
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let caller =
            ConnectionCaller::new(address, stranger, self.unproven.clone(), self.known.clone());
        caller.mark_proven(identity.tenant().tenant_number());
        Ok(GatewayLendingGuest {
            front: self.front.clone(),
            identities: self.identities.clone(),
            access_key: access_key.clone(),
            proven: identity,
            peer: ConnectionPeer { progress: ClientProgress::new(), caller },
            memory: self.memory.clone(),
            mappings: self.mappings.clone(),
            pages: self.pages.clone(),
            singles: Semaphore::new(self.reads_in_flight_max),
            lands_directly: self.lands_directly,
            _place: place,
        })
    }
}
