//! The API: HTTP/1.1 and JSON. The cluster's secret proves every request and answer.
//!
//! Owns connections; [`connection_places`] bounds them, [`admission`] owns proofs, [`routes`] the
//! questions and answers. A connection that has proved nothing has a deadline that nothing renews.
//! It is closed when its place is wanted, and its body is not read.

mod activity_routes;
mod admission;
mod api_context;
mod audit;
mod caller;
mod cluster_routes;
mod connection_places;
mod console;
mod leader_refusal;
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
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_coordinator_client::VerifiedProof;
use verbs3_coordinator_client::proof::{ANSWER_HEADER, RECIPIENT_HEADER};
use verbs3_doors::WaitingGuest;

use crate::metrics::{ApiConnectionCut, CoordinatorMetrics};
pub(crate) use admission::RequestAdmission;
use admission::{UnprovenConnection, UnverifiedRequest, VerifiedRequest};
pub(crate) use api_context::{ApiContext, ApiOptions};
pub(crate) use caller::CallerHandshake;
use caller::{BegunConnection, RequestCaller};
use connection_places::AdmittedConnection;
pub(crate) use connection_places::ConnectionPlaces;
pub(crate) use console::ConsoleSite;
use console::{ConsoleOrigin, is_console_path};
use proven_lines::prove_lines;
use response::CoordinatorResponse;
use routes::{RoutedResponse, route_request};
use verbs3_metrics::MetricLabel;

const HEADER_READ_MAX: Duration = Duration::from_secs(10);

/// The listening side of the API.
pub(crate) struct CoordinatorApi {
    pub(crate) context: Arc<ApiContext>,
    /// `None`: there is no console.
    pub(crate) console: Option<Arc<ConsoleSite>>,
    pub(crate) admission: RequestAdmission,
    pub(crate) handshake: CallerHandshake,
    pub(crate) places: ConnectionPlaces,
    /// From the beginning of a connection until something was proved over it.
    pub(crate) proof_deadline: Duration,
    pub(crate) metrics: CoordinatorMetrics,
    /// Connections are among them. Shutdown joins them.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl CoordinatorApi {
    /// Accepts connections until the coordinator stops, then ends them. Waiting requests are cut;
    /// their senders ask another coordinator.
    pub(crate) async fn accept_connections(self: Arc<Self>, socket: TcpListener) {
        while let Some(accepted) = self.stop.run_until_cancelled(socket.accept()).await {
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(admitted) = self.places.admit_connection(address) else { continue };
            let AdmittedConnection { place, guest } = admitted;
            let _ = stream.set_nodelay(true);
            let api = self.clone();
            self.tasks.spawn(async move {
                let Some(_place) = api.places.take_place(place).await else { return };
                api.metrics.connections.inc();
                api.stop
                    .run_until_cancelled(api.serve_connection(stream, guest, address.ip()))
                    .await;
                api.metrics.connections.dec();
            });
        }
    }

    async fn serve_connection(&self, stream: TcpStream, guest: WaitingGuest, address: IpAddr) {
        let door = UnprovenConnection::new(guest);
        let served = &door;
        let connection = async {
            let BegunConnection { stream, caller } =
                match self.handshake.begin_connection(stream).await {
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
            () = door.wait_proof_deadline(self.proof_deadline) => cut(ApiConnectionCut::Unproven),
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
            let answer = console.answer_console(request, origin, door).await.into_http();
            let status = answer.status();
            self.metrics.requests.with_label_values(&["console", status.as_str()]).inc();
            return answer;
        }
        let (proof, routed) = match self.admission.verify_request(request, caller, door).await {
            Ok(VerifiedRequest { request, proof }) => {
                (proof, route_request(&self.context, request).await)
            }
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
        if let Ok(recipient) = HeaderValue::from_str(&self.admission.recipient().0) {
            headers.insert(RECIPIENT_HEADER, recipient);
        }
        if let Some(Ok(header)) = header.map(|header| HeaderValue::from_str(&header)) {
            headers.insert(ANSWER_HEADER, header);
        }
        response
    }
}
