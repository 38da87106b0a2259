//! The transport within one process: shares memory (`verbs3 dev`), or copies it as a NIC would
//! (tests).
//!
//! Owns the choice between the two. `share` is a product path; `copy` with `faults` is what every
//! crate's tests drive.

mod copy_connection;
mod faults;
mod posing_transport;
mod share_connection;

use std::sync::Arc;

use async_trait::async_trait;

use crate::peer::TransportWays;
use crate::transport::{
    CallService, PeerAddress, PeerConnection, PeerTransport, TransportError, TransportKind,
};

pub use faults::{FaultHandle, InProcessFaults};

/// How an in-process connection moves bytes.
#[derive(Clone)]
pub enum InProcessMode {
    /// The owner's `Bytes` are handed over; no landing, no task: the handler runs inside the
    /// requester's poll.
    Share,
    /// Bytes are copied into the landing, the handler runs in a task of its own, and faults may
    /// happen.
    Copy(InProcessFaults),
}

/// Makes connections to a service of this process.
pub struct InProcess;

impl InProcess {
    /// An established connection to `service`. `Copy` needs a tokio runtime around its calls.
    pub fn open_connection(
        service: Arc<dyn CallService>,
        mode: InProcessMode,
    ) -> Arc<dyn PeerConnection> {
        match mode {
            InProcessMode::Share => share_connection::open_share_connection(service),
            InProcessMode::Copy(faults) => copy_connection::open_copy_connection(service, faults),
        }
    }

    /// A transport whose every connection reaches `service`, whatever the address.
    pub fn make_transport(
        service: Arc<dyn CallService>,
        mode: InProcessMode,
    ) -> Arc<dyn PeerTransport> {
        Arc::new(InProcessTransport { service, mode })
    }

    /// The same, but it says that it is of `transport_kind`, and that its peer can be reached in `ways`.
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
                reason: "refused by an injected fault".into(),
            });
        }
        Ok(InProcess::open_connection(self.service.clone(), self.mode.clone()))
    }
}
