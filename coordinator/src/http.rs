//! The API: HTTP/1.1 and JSON. The cluster's secret proves every request and answer.
//!
//! Owns connections, proofs and bounds; [`routes`] owns the questions and answers. A connection
//! that has proved nothing has a deadline that nothing renews. It is closed when its place is
//! wanted, and its body is not read.

mod objects;
mod openapi;
mod preload;
mod relay_dispatcher;
mod routes;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::api::{
    CoordinatorRefusal, CoordinatorRefusalKind, REQUEST_BYTES_MAX,
};
use verbs3_coordinator_client::proof::{
    ANSWER_HEADER, ClusterSecret, ProofError, ProvenRequestHead, RECIPIENT_HEADER, REQUEST_HEADER,
    RequestProof, wall_clock_ms,
};
use verbs3_doors::{RoomLimits, WaitingGuest, WaitingRoom};

use crate::coordinator::CoordinatorServer;
pub(crate) use relay_dispatcher::RelayDispatcher;

const HEADER_READ_MAX: Duration = Duration::from_secs(10);
const BODY_READ_MAX: Duration = Duration::from_secs(10);
/// A connection younger than this is not displaced: a whole cluster may be started at once.
const STRANGER_GRACE: Duration = Duration::from_secs(1);
/// How long a displaced connection may take to end.
const DISPLACE_MAX: Duration = Duration::from_secs(1);

/// Answer of a route.
pub(crate) struct CoordinatorResponse {
    status: StatusCode,
    body: Bytes,
    /// Replaces the body: a stream of JSON documents.
    lines: Option<BoxStream<'static, Bytes>>,
}

impl CoordinatorResponse {
    fn from_json(status: StatusCode, value: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self { status, body: body.into(), lines: None },
            Err(error) => Self::refuse_request(
                StatusCode::INTERNAL_SERVER_ERROR,
                CoordinatorRefusalKind::Unavailable,
                error.to_string(),
            ),
        }
    }

    fn from_encoded(status: StatusCode, body: Bytes) -> Self {
        Self { status, body, lines: None }
    }

    fn no_content() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: Bytes::new(), lines: None }
    }

    fn from_lines(lines: BoxStream<'static, Bytes>) -> Self {
        Self { status: StatusCode::OK, body: Bytes::new(), lines: Some(lines) }
    }

    fn refuse_request(
        status: StatusCode,
        kind: CoordinatorRefusalKind,
        reason: impl Into<String>,
    ) -> Self {
        Self::from_refusal(
            status,
            &CoordinatorRefusal {
                kind,
                reason: reason.into(),
                leader: None,
                now_ms: None,
                recipient: None,
                left_ms: None,
            },
        )
    }

    fn from_refusal(status: StatusCode, refused: &CoordinatorRefusal) -> Self {
        Self { status, body: serde_json::to_vec(refused).unwrap_or_default().into(), lines: None }
    }
}

/// Request whose proof was verified.
pub(crate) struct CoordinatorRequest {
    method: http::Method,
    path: String,
    query: String,
    body: Bytes,
}

impl CoordinatorServer {
    /// Accepts connections until the coordinator stops, then ends them. Waiting requests are cut;
    /// their senders ask another coordinator.
    pub(crate) async fn accept_connections(self: Arc<Self>, socket: TcpListener) {
        let places = Arc::new(Semaphore::new(self.options.connections_max));
        let strangers = WaitingRoom::new(RoomLimits {
            places_max: self.options.unproven_connections_max,
            per_address_max: self.options.unproven_per_address_max,
            grace: STRANGER_GRACE,
        });
        while let Some(accepted) = self.stop.run_until_cancelled(socket.accept()).await {
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let place = places.clone().try_acquire_owned().ok();
            if place.is_none() && !strangers.displace_guest() {
                tracing::warn!("a connection was closed: coordinator.connections_max are open");
                continue;
            }
            let Some(guest) = strangers.admit_guest(address.ip()) else {
                tracing::debug!(
                    %address,
                    "a connection was closed: too many are open that have proved nothing"
                );
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (coordinator, places) = (self.clone(), places.clone());
            self.tasks.spawn(async move {
                let Some(_place) = place_of(place, places).await else { return };
                coordinator.metrics.connections.inc();
                coordinator
                    .stop
                    .run_until_cancelled(coordinator.serve_connection(stream, guest))
                    .await;
                coordinator.metrics.connections.dec();
            });
        }
    }

    async fn serve_connection(&self, stream: TcpStream, guest: WaitingGuest) {
        let door = UnprovenConnection { guest, known: CancellationToken::new() };
        let served = &door;
        let service = service_fn(|request| async move {
            Ok::<_, Infallible>(self.answer_request(request, served).await)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let cut = |reason: &'static str| {
            self.metrics.connections_cut.with_label_values(&[reason]).inc();
            tracing::debug!(reason, "a connection is cut: nothing has been proved over it");
        };
        tokio::select! {
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
            }
            () = door.guest.wait_for_displacement() => cut("displaced"),
            () = door.wait_proof_deadline(self.options.proof_deadline) => cut("unproven"),
        }
    }

    async fn answer_request(
        &self,
        request: Request<Incoming>,
        door: &UnprovenConnection,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let (proof, route, answer) = match self.verify_request(request, door).await {
            Ok((asked, proof)) => {
                let (route, answer) = self.route_request(&asked).await;
                (proof, route, answer)
            }
            Err((proof, answer)) => (proof, "unproven", answer),
        };
        let CoordinatorResponse { status, body, lines } = answer;
        self.metrics.requests.with_label_values(&[route, status.as_str()]).inc();
        // Answers are signed only for peers that proved the secret; otherwise this would be a
        // signing oracle.
        let secret = &self.options.secret;
        let header = proof.as_ref().map(|proof| secret.prove_answer(proof, status.as_u16(), &body));
        let is_lines = lines.is_some();
        let mut response = Response::new(match (lines, proof) {
            (Some(lines), Some(proof)) => proven_lines(secret.clone(), proof, lines),
            _ => UnsyncBoxBody::new(Full::new(body)),
        });
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let kind = if is_lines { "application/x-ndjson" } else { "application/json" };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Ok(recipient) = HeaderValue::from_str(&self.recipient.0) {
            headers.insert(RECIPIENT_HEADER, recipient);
        }
        if let Some(Ok(header)) = header.map(|header| HeaderValue::from_str(&header)) {
            headers.insert(ANSWER_HEADER, header);
        }
        response
    }

    /// Verifies a request. Reads its body last, and only for peers that know the secret or the
    /// token.
    async fn verify_request(
        &self,
        request: Request<Incoming>,
        door: &UnprovenConnection,
    ) -> Result<
        (CoordinatorRequest, Option<RequestProof>),
        (Option<RequestProof>, CoordinatorResponse),
    > {
        let (head, body) = request.into_parts();
        if self.is_let_in(&head) {
            door.let_in();
            let body = read_body(body).await.map_err(|answer| (None, answer))?;
            return Ok((request_from_parts(head, body), None));
        }
        let path_and_query = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let said = ProvenRequestHead { method: head.method.as_str(), path_and_query };
        let header = head.headers.get(REQUEST_HEADER).and_then(|header| header.to_str().ok());
        let proof = self
            .options
            .secret
            .check_request(said, header)
            .map_err(|error| (None, self.unproven_response(error)))?;
        let is_addressed = proof.recipient == self.recipient;
        if is_addressed && self.seen.is_timely(&proof, wall_clock_ms()) {
            door.let_in();
        }
        // The body is read even if the request will be refused: a sender with a long body under way
        // would not receive the reason.
        let body = read_body(body).await.map_err(|answer| (Some(proof.clone()), answer))?;
        if !proof.covers_body(&body) {
            return Err((None, self.unproven_response(ProofError::Wrong)));
        }
        let now = wall_clock_ms();
        let timely = if !is_addressed {
            Err(ProofError::Recipient)
        } else if may_be_repeated(&head) {
            self.seen.is_timely(&proof, now).then_some(()).ok_or(ProofError::Clock)
        } else {
            let admitted = self.seen.admit_proof(&proof, now);
            self.metrics
                .proofs_kept
                .set(i64::try_from(self.seen.nonce_count()).unwrap_or(i64::MAX));
            admitted
        };
        timely.map_err(|error| {
            let mut answer = self.refusal_of(error);
            // Both corrections go out at once, because each costs a round trip.
            if error == ProofError::Recipient && !self.seen.is_timely(&proof, now) {
                answer.now_ms = Some(now);
            }
            (
                Some(proof.clone()),
                CoordinatorResponse::from_refusal(StatusCode::UNAUTHORIZED, &answer),
            )
        })?;
        Ok((request_from_parts(head, body), Some(proof)))
    }

    fn unproven_response(&self, error: ProofError) -> CoordinatorResponse {
        CoordinatorResponse::from_refusal(StatusCode::UNAUTHORIZED, &self.refusal_of(error))
    }

    fn refusal_of(&self, error: ProofError) -> CoordinatorRefusal {
        // Every client has to ask for the name once, so this refusal is not counted.
        if error != ProofError::Recipient {
            self.metrics.unproven.inc();
        }
        let refused = CoordinatorRefusal {
            kind: CoordinatorRefusalKind::Unproven,
            reason: error.to_string(),
            leader: None,
            now_ms: None,
            recipient: None,
            left_ms: None,
        };
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
    fn is_let_in(&self, head: &http::request::Parts) -> bool {
        let is_notification = head.method == http::Method::POST && head.uri.path() == NOTIFICATIONS;
        let Some(token) = self.options.notification_token.as_ref().filter(|_| is_notification)
        else {
            return false;
        };
        let header =
            head.headers.get(header::AUTHORIZATION).and_then(|header| header.to_str().ok());
        let header =
            header.map(|header| header.strip_prefix("Bearer ").unwrap_or(header).to_owned());
        let given =
            header.or_else(|| routes::query_text(head.uri.query().unwrap_or_default(), "token"));
        given.is_some_and(|given| token.matches_token(&given))
    }
}

/// Path of notifications, with [`verbs3_coordinator_client::api::PREFIX`].
const NOTIFICATIONS: &str = "/v1/notifications";

/// Returns whether a request may be replayed. Questions that change nothing may. Relayed write
/// notices may, too: a worker may hear one twice without harm. They arrive at the rate of writes,
/// so remembering their proofs would take unbounded memory.
fn may_be_repeated(head: &http::request::Parts) -> bool {
    let is_relay =
        || head.uri.path().starts_with("/v1/workers/") && head.uri.path().ends_with("/relay");
    head.method == http::Method::GET || (head.method == http::Method::POST && is_relay())
}

fn request_from_parts(head: http::request::Parts, body: Bytes) -> CoordinatorRequest {
    CoordinatorRequest {
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        method: head.method,
        body,
    }
}

/// Turns each line into an object with two fields: first the line's own proof, then the proved
/// content.
fn proven_lines(
    secret: ClusterSecret,
    proof: RequestProof,
    lines: BoxStream<'static, Bytes>,
) -> UnsyncBoxBody<Bytes, Infallible> {
    let frames = lines.enumerate().map(move |(number, line)| {
        let mac = secret.prove_line(&proof, number as u64, &line);
        let mut text = format!("{{\"proof\":\"{mac}\",\"said\":").into_bytes();
        text.extend_from_slice(&line);
        text.extend_from_slice(b"}\n");
        Ok(Frame::data(Bytes::from(text)))
    });
    UnsyncBoxBody::new(StreamBody::new(frames))
}

/// State of a connection that has not proved the secret yet.
struct UnprovenConnection {
    guest: WaitingGuest,
    /// Cancelled once the peer has proved something.
    known: CancellationToken,
}

impl UnprovenConnection {
    fn let_in(&self) {
        self.guest.let_in();
        self.known.cancel();
    }

    /// Returns when an unproven peer has stayed for too long. Never returns for a proven one.
    async fn wait_proof_deadline(&self, proof_deadline: Duration) {
        if timeout(proof_deadline, self.known.cancelled()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns a connection's place. `None`: the displaced connection did not end in time.
async fn place_of(
    place: Option<OwnedSemaphorePermit>,
    places: Arc<Semaphore>,
) -> Option<OwnedSemaphorePermit> {
    match place {
        Some(place) => Some(place),
        None => timeout(DISPLACE_MAX, places.acquire_owned()).await.ok()?.ok(),
    }
}

async fn read_body(body: Incoming) -> Result<Bytes, CoordinatorResponse> {
    match timeout(BODY_READ_MAX, Limited::new(body, REQUEST_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) | Err(_) => {
            let reason =
                format!("the body is longer than {REQUEST_BYTES_MAX} bytes, or did not come");
            Err(CoordinatorResponse::refuse_request(
                StatusCode::PAYLOAD_TOO_LARGE,
                CoordinatorRefusalKind::Malformed,
                reason,
            ))
        }
    }
}
