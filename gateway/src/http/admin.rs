//! The admin endpoints of any process: `/metrics`, `/healthz` and `/readyz`, on an address of their own. Owns no state; asks others
//! for theirs.

use std::convert::Infallible;
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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// Connections at once; a scraper and a kubelet need two.
const CONNECTIONS_MAX: usize = 64;
const HEADER_READ_MAX: Duration = Duration::from_secs(10);

/// One thing that must hold before traffic is sent here: a name, and why it does not hold.
pub struct Readiness {
    name: &'static str,
    check: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Readiness {
    pub fn new(name: &'static str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { name, check: Box::new(check) }
    }

    /// Fails once the process has been told to end.
    pub fn until_shutdown(stop: CancellationToken) -> Self {
        Self::new("shutdown", move || if stop.is_cancelled() { Err("is under way".to_owned()) } else { Ok(()) })
    }
}

/// What is served.
pub struct Admin {
    pub registry: Registry,
    /// All must hold for `/readyz`.
    pub readiness: Vec<Readiness>,
    /// Ends the endpoints, with their connections. Not the process's own stop: they outlive the rest, to tell of its end.
    pub stop: CancellationToken,
}

impl Admin {
    /// Serves until the stop token is cancelled, then ends with its connections.
    pub async fn serve(self, socket: TcpListener) {
        let (admin, tasks) = (Arc::new(self), TaskTracker::new());
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while let Some(accepted) = admin.stop.run_until_cancelled(socket.accept()).await {
            match (accepted, places.clone().try_acquire_owned()) {
                (Ok((stream, _)), Ok(place)) => {
                    let admin = admin.clone();
                    tasks.spawn(async move {
                        admin.stop.run_until_cancelled(admin.connection(stream)).await;
                        drop(place);
                    });
                }
                (Ok(_), Err(_)) => debug!("an admin connection was closed: too many are open"),
                (Err(error), _) => {
                    warn!(%error, "an admin connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn connection(&self, stream: TcpStream) {
        let service =
            service_fn(
                |request: Request<Incoming>| async move { Ok::<_, Infallible>(self.answer(request.uri().path())) },
            );
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_MAX)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            debug!(%error, "an admin connection ended early");
        }
    }

    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        match path {
            "/metrics" => match TextEncoder::new().encode_to_string(&self.registry.gather()) {
                Ok(text) => answer(StatusCode::OK, text),
                Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            "/healthz" => answer(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => {
                let failed: Vec<String> = self
                    .readiness
                    .iter()
                    .filter_map(|readiness| (readiness.check)().err().map(|why| format!("{}: {why}\n", readiness.name)))
                    .collect();
                match failed.is_empty() {
                    true => answer(StatusCode::OK, "ready\n".to_owned()),
                    false => answer(StatusCode::SERVICE_UNAVAILABLE, failed.concat()),
                }
            }
            _ => answer(StatusCode::NOT_FOUND, "known are /metrics, /healthz and /readyz\n".to_owned()),
        }
    }
}

fn answer(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    // The version names Prometheus' text format.
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}
