//! Lets requests in by their proof, or a store's notification by its token. Nothing of a body is
//! read before that.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header, request};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::api::{
    CoordinatorRefusal, CoordinatorRefusalKind, REQUEST_BYTES_MAX,
};
use verbs3_coordinator_client::proof::{
    ClusterSecret, ProofError, ProofRecipient, ProvenRequestHead, REQUEST_HEADER, ReplayGuard,
    wall_clock_ms,
};
use verbs3_coordinator_client::{ClusterSecrets, VerifiedProof};
use verbs3_doors::WaitingGuest;

use super::caller::RequestCaller;
use super::object_routes::NOTIFICATIONS;
use super::request::{CoordinatorRequest, query_text};
use super::response::{CoordinatorResponse, malformed_response};
use super::routes::find_route;
use crate::metrics::CoordinatorMetrics;

const BODY_READ_MAX: Duration = Duration::from_secs(10);

/// A request that may be answered, and its proof. `None`: a store showed the token.
pub(super) struct VerifiedRequest {
    pub(super) request: CoordinatorRequest,
    pub(super) proof: Option<VerifiedProof>,
}

/// The refusal of a request. `proof` is there if the peer knows the secret all the same.
pub(super) struct UnverifiedRequest {
    pub(super) proof: Option<VerifiedProof>,
    pub(super) response: CoordinatorResponse,
}

impl UnverifiedRequest {
    fn unproven(response: CoordinatorResponse) -> Self {
        Self { proof: None, response }
    }
}

/// State of a connection that has not proved the secret yet.
pub(super) struct UnprovenConnection {
    pub(super) guest: WaitingGuest,
    /// Cancelled once the peer has proved something.
    known: CancellationToken,
}

impl UnprovenConnection {
    pub(super) fn new(guest: WaitingGuest) -> Self {
        Self { guest, known: CancellationToken::new() }
    }

    pub(super) fn let_in(&self) {
        self.guest.let_in();
        self.known.cancel();
    }

    /// Returns when an unproven peer has stayed for too long. Never returns for a proven one.
    pub(super) async fn wait_proof_deadline(&self, proof_deadline: Duration) {
        if timeout(proof_deadline, self.known.cancelled()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }
}

/// What proofs are held against.
pub(crate) struct RequestAdmission {
    secrets: ClusterSecrets,
    /// Token that stores show when they send notifications. `None`: they need the proof, too.
    notification_token: Option<ClusterSecret>,
    /// Name of this run of this coordinator; proofs are addressed to it.
    recipient: ProofRecipient,
    seen: ReplayGuard,
    metrics: CoordinatorMetrics,
}

impl RequestAdmission {
    pub(crate) fn new(
        secrets: ClusterSecrets,
        notification_token: Option<ClusterSecret>,
        clock_skew: Duration,
        metrics: CoordinatorMetrics,
    ) -> Self {
        Self {
            secrets,
            notification_token,
            recipient: ProofRecipient::draw_random(),
            seen: ReplayGuard::new(clock_skew),
            metrics,
        }
    }

    /// Returns the name that proofs are addressed to.
    pub(super) fn recipient(&self) -> &ProofRecipient {
        &self.recipient
    }

    /// Verifies a request. Reads its body last, and only for peers that know the secret or the
    /// token.
    pub(super) async fn verify_request(
        &self,
        request: Request<Incoming>,
        caller: &RequestCaller,
        door: &UnprovenConnection,
    ) -> Result<VerifiedRequest, UnverifiedRequest> {
        let (head, body) = request.into_parts();
        if self.is_let_in(&head) {
            door.let_in();
            let body = read_body(body).await.map_err(UnverifiedRequest::unproven)?;
            let request = CoordinatorRequest::from_parts(RequestCaller::Token, head, body);
            return Ok(VerifiedRequest { request, proof: None });
        }
        let path_and_query = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let said = ProvenRequestHead { method: head.method.as_str(), path_and_query };
        let header = head.headers.get(REQUEST_HEADER).and_then(|header| header.to_str().ok());
        let verified = self
            .secrets
            .check_request(said, header)
            .map_err(|error| UnverifiedRequest::unproven(self.unproven_response(error)))?;
        let proof = &verified.proof;
        let is_addressed = proof.recipient == self.recipient;
        if is_addressed && self.seen.is_timely(proof, wall_clock_ms()) {
            door.let_in();
        }
        // The body is read even if the request will be refused: a sender with a long body under way
        // would not receive the reason.
        let body = match read_body(body).await {
            Ok(body) => body,
            Err(response) => return Err(UnverifiedRequest { proof: Some(verified), response }),
        };
        if !proof.covers_body(&body) {
            return Err(UnverifiedRequest::unproven(self.unproven_response(ProofError::Wrong)));
        }
        let now = wall_clock_ms();
        let timely = if !is_addressed {
            Err(ProofError::Recipient)
        } else if may_be_repeated(&head) {
            self.seen.is_timely(proof, now).then_some(()).ok_or(ProofError::Clock)
        } else {
            let admitted = self.seen.admit_proof(proof, now);
            self.metrics
                .proofs_kept
                .set(i64::try_from(self.seen.nonce_count()).unwrap_or(i64::MAX));
            admitted
        };
        if let Err(error) = timely {
            let mut refused = self.refusal_of(error);
            // Both corrections go out at once, because each costs a round trip.
            if error == ProofError::Recipient && !self.seen.is_timely(proof, now) {
                refused.now_ms = Some(now);
            }
            let response = CoordinatorResponse::from_refusal(StatusCode::UNAUTHORIZED, &refused);
            return Err(UnverifiedRequest { proof: Some(verified), response });
        }
        let request = CoordinatorRequest::from_parts(caller.clone(), head, body);
        Ok(VerifiedRequest { request, proof: Some(verified) })
    }

    fn unproven_response(&self, error: ProofError) -> CoordinatorResponse {
        CoordinatorResponse::from_refusal(StatusCode::UNAUTHORIZED, &self.refusal_of(error))
    }

    fn refusal_of(&self, error: ProofError) -> CoordinatorRefusal {
        // Every client has to ask for the name once, so this refusal is not counted.
        if error != ProofError::Recipient {
            self.metrics.unproven.inc();
        }
        let refused = CoordinatorRefusal::new(CoordinatorRefusalKind::Unproven, error.to_string());
        match error {
            ProofError::Clock => CoordinatorRefusal {
                kind: CoordinatorRefusalKind::Clock,
                now_ms: Some(wall_clock_ms()),
                ..refused
            },
            ProofError::Recipient => CoordinatorRefusal {
                kind: CoordinatorRefusalKind::Recipient,
                recipient: Some(self.recipient.clone()),
                ..refused
            },
            ProofError::Missing | ProofError::Wrong | ProofError::Replayed => refused,
        }
    }

    /// Returns whether a store that sends a notification shows the token. Stores prove nothing
    /// else.
    fn is_let_in(&self, head: &request::Parts) -> bool {
        let is_notification = head.method == Method::POST && head.uri.path() == NOTIFICATIONS;
        let Some(token) = self.notification_token.as_ref().filter(|_| is_notification) else {
            return false;
        };
        let header =
            head.headers.get(header::AUTHORIZATION).and_then(|header| header.to_str().ok());
        let header =
            header.map(|header| header.strip_prefix("Bearer ").unwrap_or(header).to_owned());
        let given = header.or_else(|| query_text(head.uri.query().unwrap_or_default(), "token"));
        given.is_some_and(|given| token.matches_token(&given))
    }
}

/// Returns whether the proof of a request may be used again. Questions that change nothing may be
/// repeated.
fn may_be_repeated(head: &request::Parts) -> bool {
    let found = || find_route(&head.method, head.uri.path());
    head.method == Method::GET || found().is_some_and(|found| found.route.is_repeatable)
}

async fn read_body(body: Incoming) -> Result<Bytes, CoordinatorResponse> {
    match timeout(BODY_READ_MAX, Limited::new(body, REQUEST_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) | Err(_) => Err(malformed_response(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {REQUEST_BYTES_MAX} bytes, or did not come"),
        )),
    }
}
