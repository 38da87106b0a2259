//! `/metrics`, `/healthz` and `/readyz` of a worker process. The gateway serves its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
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

/// Connections at once; a scraper and a kubelet need two.
const CONNECTIONS_MAX: usize = 64;
/// For the head of a request, and so also for an idle connection.
const HEADER_READ_MAX: Duration = Duration::from_secs(10);

/// A bound address.
pub struct Admin {
    socket: TcpListener,
    address: SocketAddr,
}

/// A served address.
pub struct Serving {
    over: CancellationToken,
    tasks: TaskTracker,
}

struct Answers {
    registry: Registry,
    /// Cancelled once the process is told to end: no longer ready.
    stop: CancellationToken,
}

/// Listens on `address`, or says which setting to change.
pub async fn bind(setting: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("can't listen on {address}: is another process there, or the address not of this host? ({setting})")
    })
}

impl Admin {
    pub async fn bind(setting: &str, address: SocketAddr) -> anyhow::Result<Self> {
        let socket = bind(setting, address).await?;
        let address = socket.local_addr().context("a bound socket has an address")?;
        Ok(Self { socket, address })
    }

    /// The address in use, where port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until [`Serving::end`]. `stop` makes `/readyz` fail.
    pub fn serve(self, registry: Registry, stop: CancellationToken) -> Serving {
        let (over, tasks) = (CancellationToken::new(), TaskTracker::new());
        let answers = Arc::new(Answers { registry, stop });
        tasks.spawn(accept(self.socket, answers, over.clone(), tasks.clone()));
        Serving { over, tasks }
    }
}

impl Serving {
    /// Ends with its connections.
    pub async fn end(self) {
        self.over.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// May be cancelled at any time: it owns no state.
async fn accept(socket: TcpListener, answers: Arc<Answers>, over: CancellationToken, tasks: TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some(accepted) = over.run_until_cancelled(socket.accept()).await {
        match (accepted, places.clone().try_acquire_owned()) {
            (Ok((stream, _)), Ok(place)) => {
                let (answers, over) = (answers.clone(), over.clone());
                tasks.spawn(async move {
                    over.run_until_cancelled(connection(stream, answers)).await;
                    drop(place);
                });
            }
            (Ok(_), Err(_)) => tracing::debug!("an admin connection was closed: too many are open"),
            (Err(error), _) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, answers: Arc<Answers>) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answers.answer(request.uri().path());
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_MAX);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "an admin connection ended early");
    }
}

impl Answers {
    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, text) = match path {
            "/metrics" => match TextEncoder::new().encode_to_string(&self.registry.gather()) {
                Ok(text) => (StatusCode::OK, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
            "/readyz" if self.stop.is_cancelled() => {
                (StatusCode::SERVICE_UNAVAILABLE, "shutdown: is under way\n".to_owned())
            }
            "/readyz" => (StatusCode::OK, "ready\n".to_owned()),
            _ => (StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
