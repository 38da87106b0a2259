//! Owns who is at the other end of a TCP connection, by certificate. The secret's handshake goes on
//! inside the TLS session.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use verbs3_certificates::{ClientDemand, NodeCertificates, NodeName, NodeRole};

use crate::calls::HandshakeError;

/// First byte of a TLS connection: a handshake record. Frames begin with `v`.
const TLS_HANDSHAKE: u8 = 0x16;

/// Roles that may ask a worker. Coordinators load objects for preload jobs.
const REQUESTER_ROLES: [NodeRole; 3] = [NodeRole::Gateway, NodeRole::Worker, NodeRole::Coordinator];

/// Certificates of connections over TCP.
#[derive(Debug, Clone)]
pub struct TcpTls {
    pub certificates: Arc<NodeCertificates>,
    /// Whether this side connects over TLS.
    pub dials_tls: bool,
    /// Whether this side accepts plain connections beside TLS.
    pub plain_allowed: bool,
}

/// Returns whether an accepted connection begins with TLS. Waits for its first byte. Fails if none
/// comes: a port check.
pub(super) async fn begins_with_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(first[0] == TLS_HANDSHAKE)
}

/// A requester that has shown its certificate.
pub(super) struct CertifiedRequester {
    pub(super) stream: Box<tokio_rustls::server::TlsStream<TcpStream>>,
    pub(super) role: NodeRole,
    /// End of its certificate, in seconds since 1970.
    pub(super) not_after: i64,
}

/// Shakes hands with a requester, and takes it if its role may ask.
pub(super) async fn accept_tls(
    tls: &TcpTls,
    stream: TcpStream,
) -> Result<CertifiedRequester, HandshakeError> {
    let acceptor = tls.certificates.tls_acceptor(ClientDemand::Required);
    let stream = acceptor.accept(stream).await.map_err(HandshakeError::Tls)?;
    let chain = stream.get_ref().1.peer_certificates();
    let (name, not_after) =
        (tls.certificates.peer_name(chain)?, chain.map_or(0, verbs3_certificates::chain_end));
    match REQUESTER_ROLES.contains(&name.role) {
        true => Ok(CertifiedRequester { stream: Box::new(stream), role: name.role, not_after }),
        false => Err(HandshakeError::OtherRole(name)),
    }
}

/// Shakes hands with a worker, and takes it if it has the name that is wanted.
pub(super) async fn connect_tls(
    tls: &TcpTls,
    stream: TcpStream,
    wanted: Option<&str>,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, HandshakeError> {
    // The certificate's role is verified, and its name below. Addresses don't count.
    let address = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let connector = TlsConnector::from(tls.certificates.worker_config());
    let stream = connector.connect(address, stream).await.map_err(HandshakeError::Tls)?;
    let name: NodeName = tls.certificates.peer_name(stream.get_ref().1.peer_certificates())?;
    if let Some(wanted) = wanted {
        name.require_name(wanted)?;
    }
    Ok(stream)
}
