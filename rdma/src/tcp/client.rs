//! Owns the connecting side of TCP: sockets and the handshake. `calls` owns the resulting
//! connection.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tokio_util::task::TaskTracker;

use super::TcpOptions;
use super::stream_inlet::TcpCarried;
use super::tls::connect_tls;
use crate::calls::{self, ConnectionTasks, HandshakeAgreement, HandshakeError, controls_max};
use crate::metrics::transport_metrics;
use crate::stream::{FrameIntake, FrameOutbox, TlsSocket};
use crate::transport::{
    PeerAddress, PeerConnection, PeerTransport, TransportError, TransportKind, UnreachableCause,
};

/// A connected socket, encrypted or not.
enum DialledStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A transport that connects to `TcpServer`s.
pub struct TcpTransport {
    options: TcpOptions,
    tasks: TaskTracker,
}

impl TcpTransport {
    /// Makes a transport without connections. Its connections need a tokio runtime; `shutdown`
    /// waits for their tasks.
    pub fn new(options: TcpOptions) -> Self {
        Self { options, tasks: TaskTracker::new() }
    }

    /// Waits until the tasks of every connection have ended. Drop the connections and their calls
    /// first.
    pub async fn shutdown(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn connect_and_handshake(
        &self,
        peer: &PeerAddress,
    ) -> Result<(DialledStream, HandshakeAgreement), TransportError> {
        let unreachable = |cause| TransportError::Unreachable { peer: peer.tcp.to_string(), cause };
        let connect = async {
            let socket = self.options.open_socket(peer.tcp)?;
            if let Some(address) = self.options.calls.settings.bind_address {
                socket.bind(&std::net::SocketAddr::new(address, 0).into())?;
            }
            let stream = TcpSocket::from_std_stream(socket.into()).connect(peer.tcp).await?;
            self.options.tune_stream(&stream)?;
            std::io::Result::Ok(stream)
        };
        let deadline = Instant::now() + self.options.calls.settings.connect_deadline.0;
        let stream = tokio::time::timeout_at(deadline, connect)
            .await
            .map_err(|_| {
                unreachable(UnreachableCause::Deadline(
                    self.options.calls.settings.connect_deadline.0,
                ))
            })?
            .map_err(|error| unreachable(error.into()))?;
        let terms = self.options.calls.handshake_terms("");
        let wanted = peer.name.as_deref();
        let shake = async {
            let mut stream = self.open_session(stream, wanted).await?;
            let agreed = match &mut stream {
                DialledStream::Plain(stream) => calls::request_handshake(stream, &terms).await?,
                DialledStream::Tls(stream) => {
                    calls::request_handshake(&mut **stream, &terms).await?
                }
            };
            Ok((stream, calls::check_name(agreed, wanted)?))
        };
        let result = tokio::time::timeout_at(deadline, shake).await;
        match result.unwrap_or(Err(HandshakeError::Deadline)) {
            Ok(dialled) => Ok(dialled),
            Err(error) => {
                transport_metrics().handshakes_failed[error.handshake_failure()].inc();
                Err(TransportError::Handshake {
                    peer: peer.tcp.to_string(),
                    cause: Arc::new(error),
                })
            }
        }
    }
}

impl TcpTransport {
    async fn open_session(
        &self,
        stream: TcpStream,
        wanted: Option<&str>,
    ) -> Result<DialledStream, HandshakeError> {
        match self.options.tls.as_ref().filter(|tls| tls.dials_tls) {
            Some(tls) => {
                connect_tls(tls, stream, wanted).await.map(Box::new).map(DialledStream::Tls)
            }
            None => Ok(DialledStream::Plain(stream)),
        }
    }

    /// Makes a connection of a socket whose handshakes are done.
    fn start_over<S: TcpCarried>(
        &self,
        stream: S,
        agreed: &HandshakeAgreement,
        address: &str,
    ) -> Arc<dyn PeerConnection> {
        let stream = Arc::new(stream);
        let calls = &self.options.calls;
        let outbox = FrameOutbox::new(
            stream.clone(),
            calls.settings.write_queue_max.as_usize(),
            controls_max(agreed.calls_in_flight_max),
        );
        let intake = FrameIntake::new(stream, agreed.frame_bytes_max);
        // Joined by `shutdown`.
        calls::start_connection(
            outbox,
            intake,
            agreed,
            address,
            calls,
            ConnectionTasks { runtime: &Runtime::current(), tasks: &self.tasks },
        )
    }
}

#[async_trait]
impl PeerTransport for TcpTransport {
    fn transport_kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let (stream, agreed) = self.connect_and_handshake(peer).await?;
        let address = peer.tcp.to_string();
        Ok(match stream {
            DialledStream::Plain(stream) => self.start_over(stream, &agreed, &address),
            DialledStream::Tls(stream) => {
                let (stream, session) = stream.into_inner();
                self.start_over(TlsSocket::new(stream, session.into()), &agreed, &address)
            }
        })
    }
}
