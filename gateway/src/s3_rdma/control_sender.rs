//! Says who has sent a request to an endpoint of S3 over RDMA: the keys, the clock and the
//! comparison of all other requests. Every header of the dialect has to be signed.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use time::OffsetDateTime;

use super::upload_headers::is_of_object;
use crate::auth::{AuthIdentity, IdentityStore, ProofClock};
use crate::metrics::DenialReason;
use crate::plain_read::PlainProof;

/// Services that clients of the dialect sign for: hipObject's programs, and others.
const SERVICES: [&str; 2] = ["hipobj", "s3"];

/// A sender whose signature holds.
pub(crate) struct ControlSender {
    pub(crate) access_key: String,
    pub(crate) identity: Arc<AuthIdentity>,
    /// No header that changes what is stored is left out of the signature.
    pub(crate) signs_object: bool,
}

/// Finds out who has sent `request`.
pub(crate) fn prove_sender<B>(
    identities: &IdentityStore,
    request: &Request<B>,
    skew_max: Duration,
) -> Result<ControlSender, DenialReason> {
    let proof = PlainProof::read_control(request).ok_or(DenialReason::Anonymous)?;
    let identity = identities.get(proof.access_key()).ok_or(DenialReason::UnknownKey)?;
    let clock = ProofClock { now: OffsetDateTime::now_utc(), skew_max };
    let is_signed = proof.is_signed_for(&SERVICES, &identity, request, clock);
    let access_key = proof.access_key().to_owned();
    let mut of_object = request.headers().keys().filter(|name| is_of_object(name));
    let signs_object = of_object.all(|name| proof.lists_header(name.as_str()));
    let sender = ControlSender { access_key, identity, signs_object };
    is_signed.then_some(sender).ok_or(DenialReason::Signature)
}
