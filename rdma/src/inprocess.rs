//! The transport within one process: shares memory (`verbs3 dev`), or copies it as a NIC would
//! (tests).
//!
//! Owns the choice between the two. `share` is a product path; `copy` with `faults` is what every
//! crate's tests drive.

mod copy;
mod faults;
mod pose;
mod share;

use std::sync::Arc;

use async_trait::async_trait;

use crate::peer::Ways;
use crate::transport::{
    Connection, PeerAddress, Service, Transport, TransportError, TransportKind,
};

pub use faults::{FaultHandle, Faults};

/// How an in-process connection moves bytes.
#[derive(Clone)]
pub enum Mode {
    /// The owner's `Bytes` are handed over; no landing, no task: the handler runs inside the
    /// requester's poll.
    Share,
    /// Bytes are copied into the landing, the handler runs in a task of its own, and faults may
    /// happen.
    Copy(Faults),
}

/// Makes connections to a service of this process.
pub struct InProcess;

impl InProcess {
    /// An established connection to `service`. `Copy` needs a tokio runtime around its calls.
    pub fn connection(service: Arc<dyn Service>, mode: Mode) -> Arc<dyn Connection> {
        match mode {
            Mode::Share => share::connection(service),
            Mode::Copy(faults) => copy::connection(service, faults),
        }
    }

    /// A transport whose every connection reaches `service`, whatever the address.
    pub fn transport(service: Arc<dyn Service>, mode: Mode) -> Arc<dyn Transport> {
        Arc::new(InProcessTransport { service, mode })
    }

    /// The same, but it says that it is of `kind`, and that its peer can be reached in `ways`.
    pub fn posing_as(
        kind: TransportKind,
        ways: Ways,
        service: Arc<dyn Service>,
        mode: Mode,
    ) -> Arc<dyn Transport> {
        Arc::new(pose::Posing { inner: Self::transport(service, mode), kind, ways })
    }
}

struct InProcessTransport {
    service: Arc<dyn Service>,
    mode: Mode,
}

#[async_trait]
impl Transport for InProcessTransport {
    fn kind(&self) -> TransportKind {
        match self.mode {
            Mode::Share => TransportKind::Shm,
            Mode::Copy(_) => TransportKind::Tcp,
        }
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn Connection>, TransportError> {
        if let Mode::Copy(faults) = &self.mode
            && faults.state().refuses_connect()
        {
            return Err(TransportError::Unreachable {
                peer: peer.tcp.to_string(),
                reason: "refused by an injected fault".into(),
            });
        }
        Ok(InProcess::connection(self.service.clone(), self.mode.clone()))
    }
}
