//! The API: HTTP/1.1 and JSON. The cluster's secret proves every request and answer.
//!
//! Owns connections and their bounds; [`admission`] owns proofs, [`routes`] the questions and
//! answers. A connection that has proved nothing has a deadline that nothing renews. It is closed
//! when its place is wanted, and its body is not read.

mod activity_routes;
mod admission;
mod audit;
mod caller;
mod cluster_routes;
mod console;
mod leader_hint;
mod map_routes;
mod object_routes;
mod openapi;
mod preload_routes;
mod proven_lines;
mod relay_routes;
mod request;
mod response;
mod route;
mod route_access;
mod routes;
mod worker_routes;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use verbs3_coordinator_client::VerifiedProof;
use verbs3_coordinator_client::proof::{ANSWER_HEADER, RECIPIENT_HEADER};
use verbs3_doors::{RoomLimits, WaitingGuest, WaitingRoom};

use crate::coordinator_state::CoordinatorState;
use crate::metrics::ApiConnectionCut;
use admission::{UnprovenConnection, UnverifiedRequest, VerifiedRequest};
use caller::{BegunConnection, RequestCaller};
use console::{ConsoleOrigin, is_console_path};
use proven_lines::prove_lines;
use response::CoordinatorResponse;
use routes::RoutedResponse;
use verbs3_metrics::MetricLabel;

const HEADER_READ_MAX: Duration = Duration::from_secs(10);
/// A connection younger than this is not displaced: a whole cluster may be started at once.
const STRANGER_GRACE: Duration = Duration::from_secs(1);
/// How long a displaced connection may take to end.
const DISPLACE_MAX: Duration = Duration::from_secs(1);

impl CoordinatorState {
    /// Accepts connections until the coordinator stops, then ends them. Waiting requests are cut;
    /// their senders ask another coordinator.
    pub(crate) async fn accept_connections(self: Arc<Self>, socket: TcpListener) {
        let settings = &self.options.settings;
        let places = Arc::new(Semaphore::new(settings.connections_max as usize));
        let strangers = WaitingRoom::new(RoomLimits {
            places_max: settings.unproven_connections_max as usize,
            per_address_max: settings.unproven_per_address_max as usize,
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
            if place.is_none() && !strangers.displace_guest(address.ip()) {
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
                    .run_until_cancelled(coordinator.serve_connection(stream, guest, address.ip()))
                    .await;
                coordinator.metrics.connections.dec();
            });
        }
    }

    async fn serve_connection(&self, stream: TcpStream, guest: WaitingGuest, address: IpAddr) {
        let door = UnprovenConnection::new(guest);
        let served = &door;
        let connection = async {
            let BegunConnection { stream, caller } = match self.begin_connection(stream).await {
                Ok(begun) => begun,
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::debug!(%error, cause, "a connection did not begin");
                    return Ok(());
                }
            };
            let caller = &caller;
            let service = service_fn(|request| async move {
                Ok::<_, Infallible>(self.answer_request(request, caller, served, address).await)
            });
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_READ_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .await
        };
        let cut = |reason: ApiConnectionCut| {
            self.metrics.connections_cut[reason].inc();
            tracing::debug!(
                reason = reason.label_text(),
                "a connection is cut: nothing has been proved over it"
            );
        };
        tokio::select! {
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
            }
            () = door.guest.wait_for_displacement() => cut(ApiConnectionCut::Displaced),
            () = door.wait_proof_deadline(self.options.settings.proof_deadline.0) => cut(ApiConnectionCut::Unproven),
        }
    }

    async fn answer_request(
        &self,
        request: Request<Incoming>,
        caller: &RequestCaller,
        door: &UnprovenConnection,
        address: IpAddr,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        if let Some(console) = &self.console
            && is_console_path(request.uri().path())
        {
            let is_tls = !matches!(caller, RequestCaller::Secret);
            let origin = ConsoleOrigin { address, is_tls };
            let answer = self.answer_console(console, request, origin, door).await.into_http();
            let status = answer.status();
            self.metrics.requests.with_label_values(&["console", status.as_str()]).inc();
            return answer;
        }
        let (proof, routed) = match self.verify_request(request, caller, door).await {
            Ok(VerifiedRequest { request, proof }) => (proof, self.route_request(request).await),
            Err(UnverifiedRequest { proof, response }) => {
                (proof, RoutedResponse { route_name: "unproven", response })
            }
        };
        let RoutedResponse { route_name, response } = routed;
        let CoordinatorResponse { status, body, lines } = response;
        self.metrics.requests.with_label_values(&[route_name, status.as_str()]).inc();
        // Answers are signed only for peers that proved the secret; otherwise this would be a
        // signing oracle.
        let header = proof.as_ref().map(|VerifiedProof { secret, proof }| {
            secret.prove_answer(proof, status.as_u16(), &body)
        });
        let is_lines = lines.is_some();
        let mut response = Response::new(match (lines, proof) {
            (Some(lines), Some(verified)) => prove_lines(verified, lines),
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
