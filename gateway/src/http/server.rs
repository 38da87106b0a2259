//! Owns listeners and connections: sockets, the bounds on connections, handshakes, and the order of
//! a shutdown. First each answer ends its connection; then nothing new is taken; then requests under
//! way end; then the rest is cut.
//!
//! A caller is a stranger until one of its signatures holds. Strangers have a deadline that nothing
//! renews, and give way when places are needed (`verbs3_doors`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::{debug, warn};
use verbs3_certificates::metrics::ReloadOutcome;
use verbs3_certificates::{ListenerCertificates, TlsError, TlsFiles};
use verbs3_doors::{KeyShare, KeyShares, RoomLimits, WaitingRoom, address_group};
use verbs3_metrics::MetricLabel;

use super::client_progress::ClientProgress;
use super::connection_caller::ConnectionCaller;
use super::connection_peer::ConnectionPeer;
use super::connection_threads::{ConnectionThreads, MovedConnection, may_compute_long};
use super::gateway_front::GatewayFront;
use super::hyper_body::HttpRequestBody;
use super::known_connections::KnownConnections;
use super::rate_floor::RateMin;
use super::stall_guard::StallGuard;
use crate::http_exchange::STRANGER_GRACE;
use crate::metrics::ConnectionCut;
use crate::settings::GatewaySettings;

/// Pause after an error of `accept` (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Most streams of one HTTP/2 connection; S3 clients use a handful.
const STREAMS_MAX: u32 = 256;
/// Longest wait of a newcomer for the place of a connection that ends.
const DISPLACE_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks whether clients are still connected.
const LEAVE_PAUSE: Duration = Duration::from_millis(10);
/// Longest wait, in a shutdown, for the first request of a connection that was accepted late.
const FIRST_REQUEST_MAX: Duration = Duration::from_secs(1);
/// Most connections that are accepted once a shutdown has begun: those that the kernel has made
/// already, and which it would reset.
const LATE_CONNECTIONS_MAX: usize = 1024;
/// Longest wait for an idle client to learn that its connection ends.
const DISMISSAL_MAX: Duration = Duration::from_secs(5);

/// An address that accepts connections.
pub struct HttpListener {
    socket: TcpListener,
    tls: Option<Arc<ListenerCertificates>>,
    threads: ConnectionThreads,
}

/// Reason why an address can't be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "{address} can't be listened on; is another process there, or the address not of this host?"
    )]
    Bind {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl HttpListener {
    /// Listens on an address; port 0 takes any free one. Fails if the address is taken, or its TLS
    /// files can't be used.
    pub async fn bind(address: SocketAddr, tls: Option<&TlsFiles>) -> Result<Self, ListenError> {
        let socket = TcpListener::bind(address)
            .await
            .map_err(|source| ListenError::Bind { address, source })?;
        Self::from_socket(socket, tls)
    }

    /// Accepts connections from a socket that the caller made, for example one bound to a device.
    pub fn from_socket(socket: TcpListener, tls: Option<&TlsFiles>) -> Result<Self, ListenError> {
        let read = |files| ListenerCertificates::read(files, &["h2", "http/1.1"]);
        let tls = tls.map(read).transpose()?.map(Arc::new);
        Ok(Self { socket, tls, threads: ConnectionThreads::default() })
    }

    /// Has connections served by threads of their own, each with a runtime of one thread. Without,
    /// connections are served by the runtime that accepts them. The threads must outlive the
    /// gateway and its tier.
    pub fn served_by(self, threads: Vec<Handle>) -> Self {
        Self { threads: ConnectionThreads::new(threads), ..self }
    }

    /// Returns the address in use, for callers that asked for port 0.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// All listeners of a gateway.
pub(crate) struct HttpServer(Arc<HttpServerInner>);

struct HttpServerInner {
    front: Arc<GatewayFront>,
    /// Whose threads take work from each other.
    runtime: Handle,
    builder: Builder<TokioExecutor>,
    connections: Arc<Semaphore>,
    strangers: Arc<WaitingRoom>,
    known: Arc<KnownConnections>,
    by_address: Arc<KeyShares<IpAddr>>,
    proof_max: Duration,
    idle_max: Duration,
    handshake_max: Duration,
    stall_max: Duration,
    download_min: RateMin,
    /// Connections, and requests that are answered elsewhere.
    tasks: TaskTracker,
    farewell_max: Duration,
    /// Ends the acceptance of connections and requests.
    stop: CancellationToken,
    /// Ends all connections.
    cut: CancellationToken,
}

impl HttpServer {
    /// Makes a server that accepts no connection before `serve_listener`. `stop` ends listeners and
    /// lets connections finish their requests.
    pub fn new(
        front: Arc<GatewayFront>,
        settings: &GatewaySettings,
        stop: CancellationToken,
    ) -> Self {
        let GatewaySettings { limits, timeouts, .. } = settings;
        let header_bytes_max = limits.header_max.as_usize();
        // The setting's range ends far below.
        let http2_window = u32::try_from(limits.http2_window.0).unwrap_or(u32::MAX);
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(timeouts.header.0)
            .max_buf_size(header_bytes_max.max(8192));
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_connection_window_size(http2_window)
            .initial_stream_window_size(http2_window / 4)
            .max_header_list_size(u32::try_from(header_bytes_max).unwrap_or(u32::MAX))
            .keep_alive_interval(timeouts.header.0)
            .keep_alive_timeout(timeouts.header.0);
        let connections = Arc::new(Semaphore::new(limits.connections_max as usize));
        let room = RoomLimits {
            places_max: limits.unproven_connections_max as usize,
            per_address_max: limits.unproven_per_address_max as usize,
            grace: STRANGER_GRACE,
        };
        let shared = HttpServerInner {
            front,
            runtime: Handle::current(),
            builder,
            connections,
            strangers: WaitingRoom::new(room),
            known: Arc::new(KnownConnections::for_connections(limits.connections_max as usize)),
            by_address: KeyShares::new(limits.connections_per_address_max as usize),
            proof_max: timeouts.proof.0,
            idle_max: timeouts.header.0,
            handshake_max: timeouts.tls_handshake.0,
            stall_max: timeouts.write_stall.0,
            download_min: settings.download_rate_min(),
            tasks: TaskTracker::new(),
            farewell_max: timeouts.farewell.0,
            stop,
            cut: CancellationToken::new(),
        };
        Self(Arc::new(shared))
    }

    /// Accepts connections until the shutdown. The stop token ends the tasks.
    pub fn serve_listener(&self, listener: HttpListener) {
        let shared = self.0.clone();
        if let Some(tls) = &listener.tls {
            let (metrics, pair) = (shared.front.metrics.clone(), tls.clone());
            metrics.tls_not_after.set(tls.not_after());
            let count_reload = move |outcome: ReloadOutcome| {
                metrics.tls_reloads[outcome].inc();
                metrics.tls_not_after.set(pair.not_after());
            };
            shared.tasks.spawn(tls.clone().follow_files(count_reload, shared.stop.clone()));
        }
        self.0.tasks.spawn(async move { accept_connections(listener, shared).await });
    }

    /// Lets clients leave in order: whoever comes is served, and each answer of HTTP/1.1 ends its
    /// connection. So no request crosses the end of a connection that was idle. Returns once no
    /// client is connected, or after the configured time, at most half of `drain_max`.
    pub async fn take_leave(&self, drain_max: Duration) {
        let HttpServerInner { front, farewell_max, .. } = &*self.0;
        front.is_leaving.store(true, Ordering::Relaxed);
        let are_gone = async {
            while front.metrics.connections.get() > 0 {
                tokio::time::sleep(LEAVE_PAUSE).await;
            }
        };
        // Requests that came meanwhile have time to end, too.
        let _ = timeout((drain_max / 2).min(*farewell_max), are_gone).await;
    }

    /// Waits for requests under way; cuts what is left after `drain_max`. The stop token must have
    /// been cancelled.
    pub async fn drain_requests(&self, drain_max: Duration) {
        let HttpServerInner { tasks, cut, .. } = &*self.0;
        tasks.close();
        if timeout(drain_max, tasks.wait()).await.is_err() {
            warn!(left = tasks.len(), "connections are cut: their requests did not end in time");
            cut.cancel();
            tasks.wait().await;
        }
    }
}

async fn accept_connections(listener: HttpListener, shared: Arc<HttpServerInner>) {
    let HttpListener { socket, tls, threads } = listener;
    while let Some(accepted) = shared.stop.run_until_cancelled(socket.accept()).await {
        match accepted {
            Ok((socket, address)) => {
                begin_connection(socket, address.ip(), tls.as_deref(), &threads, &shared);
            }
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let Ok(socket) = socket.into_std() else { return };
    let late = std::iter::from_fn(|| socket.accept().ok()).take(LATE_CONNECTIONS_MAX);
    for (socket, address) in late {
        let socket = socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket));
        if let Ok(socket) = socket {
            begin_connection(socket, address.ip(), tls.as_deref(), &threads, &shared);
        }
    }
}

/// Has a connection served by one of the threads, or by this runtime where there are none.
fn begin_connection(
    socket: TcpStream,
    address: IpAddr,
    tls: Option<&ListenerCertificates>,
    threads: &ConnectionThreads,
    shared: &Arc<HttpServerInner>,
) {
    let Some(admitted) = admit_connection(shared, address) else {
        shared.front.metrics.connections_refused.inc();
        return;
    };
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY could not be set");
    }
    let tls = tls.map(ListenerCertificates::tls_acceptor);
    let Some(place) = threads.take_place() else {
        shared.tasks.spawn(serve_connection(socket, tls, shared.clone(), admitted));
        return;
    };
    let (of_connection, runtime) = (shared.clone(), place.runtime.clone());
    let moved = MovedConnection::leave_thread(socket);
    let served = async move {
        let _place = place;
        match moved.and_then(MovedConnection::join_thread) {
            Ok(socket) => serve_connection(socket, tls, of_connection, admitted).await,
            Err(error) => warn!(%error, "a connection could not be served by its thread"),
        }
    };
    shared.tasks.spawn_on(served, &runtime);
}

/// The places that a connection holds.
struct ConnectionAdmission {
    /// `None`: it waits for one.
    permit: Option<OwnedSemaphorePermit>,
    _share: KeyShare<IpAddr>,
    caller: Arc<ConnectionCaller>,
}

/// Admits a connection. `None`: there are too many of that address, or too many strangers. Where all
/// places are taken, it waits for one that gives way, or that comes free by itself.
fn admit_connection(shared: &HttpServerInner, address: IpAddr) -> Option<ConnectionAdmission> {
    let share = shared.by_address.take_share(&address_group(address))?;
    let permit = shared.connections.clone().try_acquire_owned().ok();
    let has_place = permit.is_some() || shared.strangers.displace_guest(address);
    let guest = shared.strangers.admit_guest(address)?;
    // Last, so that nobody known gives way to a stranger who is refused anyway.
    if !has_place {
        shared.known.displace_idle();
    }
    let unproven = shared.front.metrics.connections_unproven.clone();
    let caller = ConnectionCaller::new(address, guest, unproven, shared.known.clone());
    Some(ConnectionAdmission { permit, _share: share, caller })
}

async fn serve_connection(
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    shared: Arc<HttpServerInner>,
    admitted: ConnectionAdmission,
) {
    let metrics = shared.front.metrics.clone();
    let ConnectionAdmission { permit, _share, caller } = admitted;
    let permit = match permit {
        Some(permit) => Some(permit),
        None => timeout(DISPLACE_MAX, shared.connections.clone().acquire_owned())
            .await
            .ok()
            .and_then(Result::ok),
    };
    let Some(_permit) = permit else {
        metrics.connections_refused.inc();
        return;
    };
    metrics.connections.inc();
    let progress = ClientProgress::new();
    let socket = StallGuard::new(
        socket,
        shared.stall_max,
        metrics.connections_stalled.clone(),
        progress.clone(),
    );
    let peer = ConnectionPeer { progress: progress.clone(), caller: caller.clone() };
    let served = async {
        match tls {
            None => serve_requests(socket, &shared, peer, "http").await,
            Some(tls) => match timeout(shared.handshake_max, tls.accept(socket)).await {
                Ok(Ok(stream)) => serve_requests(stream, &shared, peer, "https").await,
                Ok(Err(error)) => {
                    metrics.tls_errors.inc();
                    debug!(%error, "a TLS handshake failed");
                }
                Err(_) => metrics.tls_errors.inc(),
            },
        }
    };
    tokio::select! {
        _ = shared.cut.run_until_cancelled(served) => {}
        () = progress.wait_for_stall(shared.stall_max) => {
            metrics.connections_stalled.inc();
            debug!("a connection is cut: its client takes none of the answers that it asked for");
        }
        () = progress.wait_for_crawl(shared.download_min) => {
            metrics.connections_cut[ConnectionCut::Slow].inc();
            debug!("a connection is cut: its client takes its answers more slowly than it must");
        }
        overstay = caller.wait_for_overstay(shared.proof_max) => {
            metrics.connections_cut[overstay].inc();
            debug!(
                reason = overstay.label_text(),
                "a connection is cut: no signature has held over it"
            );
        }
    }
    metrics.connections.dec();
}

async fn serve_requests<S>(
    socket: S,
    shared: &HttpServerInner,
    peer: ConnectionPeer,
    scheme: &'static str,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (front, caller) = (shared.front.clone(), peer.caller.clone());
    // A thread that serves connections alone leaves long work to the shared runtime.
    let aside = Some(&shared.runtime).filter(|runtime| runtime.id() != Handle::current().id());
    let aside = aside.map(|runtime| (runtime.clone(), shared.tasks.clone()));
    let service = service_fn(move |request: Request<Incoming>| {
        let (front, peer) = (front.clone(), peer.clone());
        let version = request.version();
        let request = request.map(|body| HttpRequestBody::new(body, version, &peer.progress));
        let elsewhere = aside.clone().filter(|_| may_compute_long(&request));
        async move {
            let Some((runtime, tasks)) = elsewhere else {
                return front.serve_request(request, peer, scheme).await;
            };
            let serving = async move { front.serve_request(request, peer, scheme).await };
            // Is told to end when the connection does; the shutdown waits for its end.
            match AbortOnDropHandle::new(tasks.spawn_on(serving, &runtime)).await {
                Ok(served) => served,
                Err(ended) => std::panic::resume_unwind(
                    ended.try_into_panic().unwrap_or_else(|ended| Box::new(ended)),
                ),
            }
        }
    });
    let connection = shared.builder.serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = shared.stop.cancelled() => {
            let mut ended = None;
            if !caller.is_proven() {
                // Its request may be on its way. The answer ends the connection.
                ended = timeout(FIRST_REQUEST_MAX, connection.as_mut()).await.ok();
            }
            if ended.is_none() {
                connection.as_mut().graceful_shutdown();
                ended = Some(connection.await);
            }
            ended
        }
        why = caller.wait_for_dismissal(shared.idle_max) => {
            shared.front.metrics.connections_cut[why].inc();
            connection.as_mut().graceful_shutdown();
            // A request that was on its way when the end was announced is still answered.
            loop {
                match timeout(DISMISSAL_MAX, connection.as_mut()).await {
                    Ok(ended) => break Some(ended),
                    Err(_) if caller.is_busy() => {}
                    Err(_) => break None,
                }
            }
        }
    };
    if let Some(Err(error)) = ended {
        debug!(%error, "a connection ended early");
    }
}
