//! Serves the admin endpoints on an address of their own. Owns no state; asks others for theirs.
//!
//! Callers are unauthenticated, so none of them may keep a probe out. A connection carries one
//! request, ends soon, and gives way to newer ones, first of all to those of its own address.

use std::convert::Infallible;
use std::future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{Registry, TextEncoder};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};
use verbs3_doors::{NamedSocket, RoomLimits, WaitingRoom};
use verbs3_metrics::GaugeGuard;

use crate::admin_metrics::{AdminConnectionCut, AdminMetrics};
use crate::readiness_check::ReadinessList;

/// Bounds of the admin endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminLimits {
    /// Most connections at once; a scraper and a kubelet need two. Beyond it the oldest of the
    /// busiest address gives way.
    pub connections_max: usize,
    /// Most connections of one address; beyond it its oldest gives way.
    pub per_address_max: usize,
    /// Longest life of a connection, from its beginning to its answer's last byte.
    pub deadline: Duration,
}

impl Default for AdminLimits {
    fn default() -> Self {
        Self { connections_max: 64, per_address_max: 16, deadline: Duration::from_secs(10) }
    }
}

/// Whose place connections over the socket of probes take, where places are counted by address.
const PROBES: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Where the admin endpoints are asked.
pub struct AdminSockets {
    pub address: TcpListener,
    /// For those who mean this process and no other.
    pub probes: Option<NamedSocket>,
    /// Whether another process answers at `address`, so that this one does not.
    pub ceded: watch::Receiver<bool>,
}

impl AdminSockets {
    /// Those of a process that has an address alone, and keeps it.
    pub fn at_address(address: TcpListener) -> Self {
        Self { address, probes: None, ceded: watch::channel(false).1 }
    }
}

/// The admin endpoints' state and limits.
pub struct AdminEndpoints {
    pub registry: Registry,
    /// Conditions that must all hold for `/readyz`.
    pub readiness: ReadinessList,
    /// Ends the endpoints, with their connections. It is not the process's own stop: they outlive
    /// the rest, to report its shutdown.
    pub stop: CancellationToken,
    pub limits: AdminLimits,
    pub metrics: Arc<AdminMetrics>,
}

impl AdminEndpoints {
    /// Serves until the stop token is cancelled, then ends with its connections.
    pub async fn serve_endpoints(self, sockets: AdminSockets) {
        let AdminSockets { address, probes, mut ceded } = sockets;
        let AdminLimits { connections_max: places_max, per_address_max, .. } = self.limits;
        // A probe is answered at once, so a connection needs no time before it may give way.
        let room =
            WaitingRoom::new(RoomLimits { places_max, per_address_max, grace: Duration::ZERO });
        self.metrics.connections_max.set(i64::try_from(places_max).unwrap_or(i64::MAX));
        let (admin, tasks) = (Arc::new(self), TaskTracker::new());
        let by_address = async {
            loop {
                await_cession(&mut ceded, false).await;
                let accepted = tokio::select! {
                    accepted = address.accept() => accepted,
                    () = await_cession(&mut ceded, true) => continue,
                };
                match accepted {
                    Ok((stream, from)) => admin.clone().admit(&room, &tasks, stream, from.ip()),
                    Err(error) => wait_after(&error).await,
                }
            }
        };
        let by_file = async {
            let Some(mut probes) = probes else { return };
            loop {
                match probes.accept().await {
                    Ok(stream) => admin.clone().admit(&room, &tasks, stream, PROBES),
                    Err(error) => wait_after(&error).await,
                }
            }
        };
        admin.stop.run_until_cancelled(async { tokio::join!(by_address, by_file) }).await;
        tasks.close();
        tasks.wait().await;
    }

    /// Serves a connection in a task of its own, if there is a place for it.
    fn admit(
        self: Arc<Self>,
        room: &Arc<WaitingRoom>,
        tasks: &TaskTracker,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        from: IpAddr,
    ) {
        let Some(guest) = room.admit_guest(from) else { return };
        tasks.spawn(async move {
            let _counted = GaugeGuard::add_to(&self.metrics.connections, 1);
            let served = timeout(self.limits.deadline, self.serve_connection(stream));
            let cut = tokio::select! {
                served = self.stop.run_until_cancelled(served) => match served {
                    Some(Err(_)) => AdminConnectionCut::Late,
                    Some(Ok(())) | None => return,
                },
                () = guest.wait_for_displacement() => AdminConnectionCut::Displaced,
            };
            self.metrics.connections_cut[cut].inc();
            debug!(?cut, "an admin connection was cut");
        });
    }

    async fn serve_connection(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request: Request<Incoming>| async move {
            Ok::<_, Infallible>(self.answer_probe(request.uri().path()))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.deadline)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            debug!(%error, "an admin connection ended early");
        }
    }

    fn answer_probe(&self, path: &str) -> Response<Full<Bytes>> {
        match path {
            "/metrics" => match TextEncoder::new().encode_to_string(&self.registry.gather()) {
                Ok(text) => text_response(StatusCode::OK, text),
                Err(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            "/healthz" => text_response(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => self.answer_readiness(),
            _ => text_response(
                StatusCode::NOT_FOUND,
                "known are /metrics, /healthz and /readyz\n".to_owned(),
            ),
        }
    }

    /// Says which conditions fail; where all hold, which have a notice.
    fn answer_readiness(&self) -> Response<Full<Bytes>> {
        match self.readiness.judge_all() {
            (true, notices) => text_response(StatusCode::OK, format!("ready\n{notices}")),
            (false, failures) => text_response(StatusCode::SERVICE_UNAVAILABLE, failures),
        }
    }
}

/// Waits until the address is ceded, or is not. For ever, where nobody can change it any more.
async fn await_cession(ceded: &mut watch::Receiver<bool>, wanted: bool) {
    if ceded.wait_for(|is_ceded| *is_ceded == wanted).await.is_err() {
        future::pending::<()>().await;
    }
}

async fn wait_after(error: &io::Error) {
    warn!(%error, "an admin connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

fn text_response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    // The version names Prometheus' text format.
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}
