//! Owns the transport within one process. It shares memory (`verbs3 dev`), or copies it as a NIC
//! would (tests).
//!
//! Owns the choice between the two. `share_connection` is a product path. Every crate's tests drive
//! `copy_connection` with `faults`.

mod copy_connection;
mod faults;
mod posing_transport;
mod share_connection;

use std::sync::Arc;

use async_trait::async_trait;

use crate::peer::TransportWays;
use crate::transport::{
    CallService, PeerAddress, PeerConnection, PeerTransport, TransportError, TransportKind,
    UnreachableCause,
};

pub use faults::{FaultHandle, InProcessFaults};

/// The way in which an in-process connection moves bytes.
#[derive(Clone)]
pub enum InProcessMode {
    /// Hands over the owner's `Bytes`. There is no landing and no task: the handler runs inside the
    /// requester's poll.
    Share,
    /// Copies bytes into the landing. The handler runs in its own task, and faults may happen.
    Copy(InProcessFaults),
}

/// A maker of connections to a service of this process.
pub struct InProcess;

impl InProcess {
    /// Returns an established connection to `service`. `Copy` needs a tokio runtime around its
    /// calls.
    pub fn open_connection(
        service: Arc<dyn CallService>,
        mode: InProcessMode,
    ) -> Arc<dyn PeerConnection> {
        match mode {
            InProcessMode::Share => share_connection::open_share_connection(service),
            InProcessMode::Copy(faults) => copy_connection::open_copy_connection(service, faults),
        }
    }

    /// Makes a transport whose every connection reaches `service`, whatever the address.
    pub fn make_transport(
        service: Arc<dyn CallService>,
        mode: InProcessMode,
    ) -> Arc<dyn PeerTransport> {
        Arc::new(InProcessTransport { service, mode })
    }

    /// Makes such a transport that claims to be of `kind`, and that its peer can be reached in
    /// `ways`.
    pub fn posing_as(
        kind: TransportKind,
        ways: TransportWays,
        service: Arc<dyn CallService>,
        mode: InProcessMode,
    ) -> Arc<dyn PeerTransport> {
        Arc::new(posing_transport::PosingTransport {
            inner: Self::make_transport(service, mode),
            kind,
            ways,
        })
    }
}

struct InProcessTransport {
    service: Arc<dyn CallService>,
    mode: InProcessMode,
}

#[async_trait]
impl PeerTransport for InProcessTransport {
    fn transport_kind(&self) -> TransportKind {
        match self.mode {
            InProcessMode::Share => TransportKind::Shm,
            InProcessMode::Copy(_) => TransportKind::Tcp,
        }
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError> {
        if let InProcessMode::Copy(faults) = &self.mode
            && faults.fault_state().refuses_connect()
        {
            return Err(TransportError::Unreachable {
                peer: peer.tcp.to_string(),
                cause: UnreachableCause::Injected,
            });
        }
        Ok(InProcess::open_connection(self.service.clone(), self.mode.clone()))
    }
}
