//! The listening side: accepts, lets in who knows the secret, and drains at the end.
//!
//! Owns the listener, the caps on connections and the tasks of all sessions. What a session does is `calls`'.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle as Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::TcpOptions;
use crate::calls::{self, Agreed, HandshakeError, Session, controls_max};
use crate::metrics::metrics;
use crate::stream::{Intake, Outbox};
use crate::transport::Service;

/// Connections that the kernel may hold before they are accepted.
const BACKLOG: i32 = 1024;

/// Pause after a failed accept: out of descriptors, trying again at once would only burn CPU.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct TcpServerOptions {
    pub tcp: TcpOptions,
    /// Told to every requester that proved the secret: in which other ways this host can be reached.
    pub ways: String,
    /// Established connections in all.
    pub connections_max: usize,
    /// Connections that have not proved the secret yet; more are closed at once.
    pub handshakes_max: usize,
    /// Longest time that [`TcpServer::shutdown`] waits for calls under way.
    pub drain_deadline: Duration,
}

impl TcpServerOptions {
    pub fn new(tcp: TcpOptions) -> Self {
        Self {
            tcp,
            ways: String::new(),
            connections_max: 16_384,
            handshakes_max: 256,
            drain_deadline: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}; choose a free address of this host")]
pub struct BindError {
    pub address: SocketAddr,
    #[source]
    pub source: std::io::Error,
}

/// A listening server. Dropping it ends every connection at once; [`TcpServer::shutdown`] drains first.
pub struct TcpServer {
    local_addr: SocketAddr,
    drain_deadline: Duration,
    drain: CancellationToken,
    kill: CancellationToken,
    tasks: TaskTracker,
}

impl TcpServer {
    /// Listens on `address` (port 0 takes a free one) and serves until shut down or dropped.
    pub async fn bind(
        address: SocketAddr,
        options: TcpServerOptions,
        service: Arc<dyn Service>,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = listen(address, &options.tcp).map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let drain_deadline = options.drain_deadline;
        let door = Arc::new(Door {
            connections: Arc::new(Semaphore::new(options.connections_max)),
            handshakes: Arc::new(Semaphore::new(options.handshakes_max)),
            options,
            service,
            drain: CancellationToken::new(),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        // Ends at shutdown or drop, by the `drain` token.
        door.tasks.spawn(door.clone().accept(listener));
        Ok(Self {
            local_addr,
            drain_deadline,
            drain: door.drain.clone(),
            kill: door.kill.clone(),
            tasks: door.tasks.clone(),
        })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Takes no new connection and no new call, lets those under way finish, and waits for every task.
    pub async fn shutdown(self) {
        self.drain.cancel();
        self.tasks.close();
        let drained = tokio::time::timeout(self.drain_deadline, self.tasks.wait()).await;
        if drained.is_err() {
            tracing::warn!(deadline = ?self.drain_deadline, "calls were cut off at shutdown");
            self.kill.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.drain.cancel();
        self.kill.cancel();
    }
}

fn listen(address: SocketAddr, options: &TcpOptions) -> std::io::Result<TcpListener> {
    let socket = options.socket(address)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// What every accepted connection needs.
struct Door {
    options: TcpServerOptions,
    service: Arc<dyn Service>,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    drain: CancellationToken,
    kill: CancellationToken,
    tasks: TaskTracker,
}

impl Door {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.drain.cancelled() => return,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "can't accept connections; raise the limit of open files");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            match self.handshakes.clone().try_acquire_owned() {
                // Ends with its connection, at the latest when `kill` is cancelled.
                Ok(turn) => drop(self.tasks.spawn(self.clone().welcome(stream, address, turn))),
                Err(_) => failed(address, &HandshakeError::Full),
            }
        }
    }

    async fn welcome(self: Arc<Self>, mut stream: TcpStream, address: SocketAddr, turn: OwnedSemaphorePermit) {
        let shake = self.shake(&mut stream);
        let limited = tokio::time::timeout(self.options.tcp.calls.connect_deadline, shake);
        let result = tokio::select! {
            result = limited => result.unwrap_or(Err(HandshakeError::Deadline)),
            () = self.drain.cancelled() => Err(HandshakeError::Draining),
        };
        drop(turn);
        let (agreed, _place) = match result {
            Ok(welcome) => welcome,
            Err(error) => return failed(address, &error),
        };
        let stream = Arc::new(stream);
        let queue_bytes_max = self.options.tcp.calls.write_queue_bytes_max;
        let outbox = Outbox::new(stream.clone(), queue_bytes_max, controls_max(agreed.calls_in_flight_max));
        let intake = Intake::new(stream, agreed.frame_bytes_max);
        let on = (&Runtime::current(), &self.tasks);
        let session = Session::new(outbox, &agreed, &address.to_string(), self.service.clone(), on);
        calls::serve(session, intake, &self.drain, &self.kill).await;
    }

    async fn shake(&self, stream: &mut TcpStream) -> Result<(Agreed, OwnedSemaphorePermit), HandshakeError> {
        self.options.tcp.tune(stream)?;
        let mut place = None;
        let agreed = calls::accept(stream, &self.options.tcp.calls.terms(&self.options.ways), || {
            place = self.connections.clone().try_acquire_owned().ok();
            place.as_ref().map(|_| ()).ok_or(HandshakeError::Full)
        })
        .await?;
        place.map(|place| (agreed, place)).ok_or(HandshakeError::Full)
    }
}

fn failed(address: SocketAddr, error: &HandshakeError) {
    let reason = error.label();
    metrics().handshakes_failed.with_label_values(&[reason]).inc();
    match error {
        // Somebody looked whether the port is open.
        HandshakeError::Lost(_) | HandshakeError::Draining => {
            tracing::debug!(%address, %error, "a handshake ended early");
        }
        _ => tracing::warn!(%address, %error, "a handshake failed"),
    }
}
