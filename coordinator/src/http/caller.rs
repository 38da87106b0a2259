//! Who asks: a node by its certificate, or whoever knows the cluster's secret. Owns the beginning
//! of a connection, plain or over TLS. What a node may ask stands in its route ([`route_access`]).
//!
//! [`route_access`]: super::route_access

use std::fmt;

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use verbs3_certificates::{ClientDemand, NodeName, NodeNameError, NodeRole};
use verbs3_coordinator_client::CoordinatorTls;

use crate::console_access::ConsoleRole;

/// First byte of a TLS connection: a handshake record. No method of HTTP begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// Who asks over a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestCaller {
    /// The connection is plain. Requests are proved by the secret, which every process knows.
    Secret,
    /// A node whose certificate was verified.
    Node(NodeName),
    /// TLS without a certificate: a store that sends notifications, perhaps.
    Nobody,
    /// A store that showed the token of notifications.
    Token,
    /// Somebody who has signed in at the console.
    ConsoleUser { name: String, role: ConsoleRole },
}

impl fmt::Display for RequestCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret => f.write_str("the cluster secret"),
            Self::Node(name) => name.fmt(f),
            Self::Nobody => f.write_str("nobody"),
            Self::Token => f.write_str("the token of notifications"),
            Self::ConsoleUser { name, .. } => write!(f, "console/{name}"),
        }
    }
}

impl RequestCaller {
    /// Returns why this caller may not speak as the worker `id`. `None`: it may.
    pub(super) fn refusal_as_worker(&self, id: &str) -> Option<String> {
        let Self::Node(NodeName { role: NodeRole::Worker, name }) = self else { return None };
        (name != id).then(|| format!("{self} may not speak as worker {id}"))
    }
}

/// A connection that has begun, and who is at its other end.
pub(super) struct BegunConnection {
    pub(super) stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    pub(super) caller: RequestCaller,
}

/// Why a connection did not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionBeginError {
    #[error("it ended before its first byte")]
    Lost(#[from] std::io::Error),
    #[error("it is plain, and cluster.tls.mode is \"require\"")]
    Plain,
    #[error("the TLS handshake failed")]
    Handshake(#[source] std::io::Error),
    #[error("its certificate names no node of this cluster")]
    Name(#[from] NodeNameError),
}

/// How connections begin: plain, or with a handshake.
pub(crate) struct CallerHandshake {
    /// `None`: all are plain.
    tls: Option<CoordinatorTls>,
    /// Whether a caller over TLS needs a certificate.
    demand: ClientDemand,
}

impl CallerHandshake {
    pub(crate) fn new(tls: Option<CoordinatorTls>, demand: ClientDemand) -> Self {
        Self { tls, demand }
    }

    /// Finds out how a connection speaks, and shakes hands where it speaks TLS. Has no deadline of
    /// its own.
    pub(super) async fn begin_connection(
        &self,
        stream: TcpStream,
    ) -> Result<BegunConnection, ConnectionBeginError> {
        let plain = |stream| BegunConnection {
            stream: Either::Left(stream),
            caller: RequestCaller::Secret,
        };
        let Some(CoordinatorTls { certificates, plain_allowed }) = &self.tls else {
            return Ok(plain(stream));
        };
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first[0] != TLS_HANDSHAKE {
            return if *plain_allowed {
                Ok(plain(stream))
            } else {
                Err(ConnectionBeginError::Plain)
            };
        }
        let stream = certificates
            .tls_acceptor(self.demand)
            .accept(stream)
            .await
            .map_err(ConnectionBeginError::Handshake)?;
        let caller = match certificates.peer_name(stream.get_ref().1.peer_certificates()) {
            Ok(name) => RequestCaller::Node(name),
            Err(NodeNameError::Missing) => RequestCaller::Nobody,
            Err(error) => return Err(error.into()),
        };
        Ok(BegunConnection { stream: Either::Right(Box::new(stream)), caller })
    }
}
