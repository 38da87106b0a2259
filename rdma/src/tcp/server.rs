//! Owns the listening side of TCP: the listener, the caps on connections and the tasks of all
//! sessions.
//!
//! It accepts, admits requesters that know the secret, and drains at the end. `calls` knows what a
//! session does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle as Runtime;
use verbs3_doors::WaitingGuest;

use super::TcpOptions;
use super::stream_inlet::TcpCarried;
use super::tls::{CertifiedRequester, accept_tls, begins_with_tls};
use crate::calls::{
    self, AdmissionGate, ConnectionTasks, GateCloser, GateLimits, HandshakeAgreement,
    HandshakeError, ServerSession, controls_max,
};
use crate::peer::WaysProvider;
use crate::stream::{FrameIntake, FrameOutbox, TlsSocket};
use crate::transport::CallService;

/// Connections that the kernel may hold before they are accepted.
const BACKLOG: i32 = 1024;

/// Pause after a failed accept. Without descriptors, trying again at once would only burn CPU.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Bounds of a listening tcp server, the other ways that it announces, and the runtimes that serve
/// its connections.
#[derive(Debug, Clone)]
pub struct TcpServerOptions {
    pub tcp: TcpOptions,
    /// The other ways to this host, told to every requester that proved the secret.
    pub ways: WaysProvider,
    /// Longest time that [`TcpServer::shutdown`] waits for calls in flight.
    pub drain_deadline: Duration,
    /// Runtimes that serve connections in turn. Where there are none, the binding runtime serves.
    /// Runtimes of one thread each write to several peers at once. Threads of one runtime share the
    /// wait for sockets, and nobody waits while one of them copies.
    pub runtimes: Vec<Runtime>,
}

impl TcpServerOptions {
    /// Takes 30 s to drain. The runtime that binds serves all connections.
    pub fn new(tcp: TcpOptions) -> Self {
        Self {
            tcp,
            ways: WaysProvider::default(),
            drain_deadline: Duration::from_secs(30),
            runtimes: Vec::new(),
        }
    }
}

/// Error of a server that can't listen on its address. The cause is the `source`.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}; choose a free address of this host")]
pub struct TcpBindError {
    pub address: SocketAddr,
    #[source]
    pub source: std::io::Error,
}

/// A listening server. Dropping it ends every connection at once; [`TcpServer::shutdown`] drains
/// first.
pub struct TcpServer {
    local_addr: SocketAddr,
    closer: GateCloser,
}

impl TcpServer {
    /// Listens on `address` (port 0 takes a free one) and serves until shut down or dropped.
    pub async fn bind(
        address: SocketAddr,
        options: TcpServerOptions,
        service: Arc<dyn CallService>,
    ) -> Result<Self, TcpBindError> {
        let failed = |source| TcpBindError { address, source };
        let listener = open_listener(address, &options.tcp).map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let settings = &options.tcp.calls.settings;
        let gate = AdmissionGate::new(GateLimits {
            connections_max: settings.connections_max as usize,
            handshakes_max: settings.handshakes_max as usize,
            handshakes_per_address_max: settings.handshakes_per_address_max as usize,
        });
        let closer = gate.make_closer(options.drain_deadline);
        let door = Arc::new(TcpAcceptor { gate, options, service });
        // Ends at shutdown or drop, by the `drain` token.
        door.gate.tasks.spawn(door.clone().accept_connections(listener));
        Ok(Self { local_addr, closer })
    }

    /// Returns the address that the server listens on. A port of 0 in `bind` is resolved here.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Takes no new connection and no new call. Lets calls in flight finish, and waits for every
    /// task.
    pub async fn shutdown(self) {
        self.closer.shutdown().await;
    }
}

fn open_listener(address: SocketAddr, options: &TcpOptions) -> std::io::Result<TcpListener> {
    let socket = options.open_socket(address)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// An accepted socket, encrypted or not.
enum AcceptedStream {
    Plain(TcpStream),
    Tls(CertifiedRequester),
}

/// The state that every accepted connection needs.
struct TcpAcceptor {
    options: TcpServerOptions,
    service: Arc<dyn CallService>,
    gate: AdmissionGate,
}

impl TcpAcceptor {
    async fn accept_connections(self: Arc<Self>, listener: TcpListener) {
        let mut runtimes = self.options.runtimes.iter().cycle();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.gate.drain.cancelled() => return,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "can't accept connections; raise the limit of open files"
                    );
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let (address, ip) = (address.to_string(), address.ip());
            let Some(turn) = self.gate.admit_handshake(&address, Some(ip)) else { continue };
            // Each ends with its connection, at the latest when `kill` is cancelled.
            let Some(runtime) = runtimes.next() else {
                self.gate.tasks.spawn(self.clone().serve_connection(stream, address, turn));
                continue;
            };
            // This runtime lets go of the socket; the other one takes it.
            let (door, moved) = (self.clone(), stream.into_std());
            let served = async move {
                match moved.and_then(TcpStream::from_std) {
                    Ok(stream) => door.serve_connection(stream, address, turn).await,
                    Err(error) => {
                        tracing::warn!(
                            address, %error,
                            "a connection could not be given to its thread"
                        )
                    }
                }
            };
            self.gate.tasks.spawn_on(served, runtime);
        }
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        address: String,
        turn: WaitingGuest,
    ) {
        let calls = &self.options.tcp.calls;
        let mut ways = self.options.ways.current_text();
        let shake = async {
            self.options.tcp.tune_stream(&stream)?;
            let mut stream = self.open_session(stream).await?;
            let (agreed, place) = match &mut stream {
                AcceptedStream::Plain(stream) => {
                    self.gate.accept_peer(stream, &calls.handshake_terms(&ways)).await?
                }
                AcceptedStream::Tls(known) => {
                    if let Some(rules) = &calls.tickets {
                        // A requester without certificate never sees one: the session is encrypted.
                        let ticket = rules.office.issue_ticket(known.role, known.not_after);
                        ways += &ticket.to_line();
                    }
                    let terms = calls.handshake_terms(&ways);
                    let (agreed, place) = self.gate.accept_peer(&mut known.stream, &terms).await?;
                    let requester_role = Some(known.role);
                    (HandshakeAgreement { requester_role, ..agreed }, place)
                }
            };
            Ok((stream, agreed, place))
        };
        let welcome =
            self.gate.run_handshake(calls.settings.connect_deadline.0, &address, turn, shake).await;
        let Some((stream, agreed, _place)) = welcome else {
            return;
        };
        match stream {
            AcceptedStream::Plain(stream) => self.serve_session(stream, &agreed, &address).await,
            AcceptedStream::Tls(known) => {
                let (stream, session) = known.stream.into_inner();
                let socket = TlsSocket::new(stream, session.into());
                self.serve_session(socket, &agreed, &address).await;
            }
        }
    }

    /// Finds out how a requester speaks, and whether it may.
    async fn open_session(&self, stream: TcpStream) -> Result<AcceptedStream, HandshakeError> {
        match &self.options.tcp.tls {
            Some(tls) if begins_with_tls(&stream).await? => {
                accept_tls(tls, stream).await.map(AcceptedStream::Tls)
            }
            Some(tls) if !tls.plain_allowed => Err(HandshakeError::Plain),
            _ => Ok(AcceptedStream::Plain(stream)),
        }
    }

    async fn serve_session<S: TcpCarried>(
        &self,
        stream: S,
        agreed: &HandshakeAgreement,
        address: &str,
    ) {
        let stream = Arc::new(stream);
        let queue_bytes_max = self.options.tcp.calls.settings.write_queue_max.as_usize();
        let outbox = FrameOutbox::new(
            stream.clone(),
            queue_bytes_max,
            controls_max(agreed.calls_in_flight_max),
        );
        let intake = FrameIntake::new(stream, agreed.frame_bytes_max);
        let on = ConnectionTasks { runtime: &Runtime::current(), tasks: &self.gate.tasks };
        let session = ServerSession::new(outbox, agreed, address, self.service.clone(), on);
        calls::serve_session(session, intake, &self.gate.drain, &self.gate.kill).await;
    }
}
