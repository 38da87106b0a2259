//! Owns the reasons why a way between two hosts is not measured.

use std::io;
use std::sync::Arc;

use verbs3_rdma::peer::WaysError;
use verbs3_rdma::shm::ShmBindError;
use verbs3_rdma::transport::{TransportError, TransportKind};
use verbs3_rdma::verbs::NoRdma;

/// A way that is not measured, and the reason.
#[derive(Debug, Clone)]
pub struct LeftOut {
    pub kind: TransportKind,
    pub way: String,
    pub cause: LeftOutCause,
}

/// Reason why a way is not measured.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LeftOutCause {
    #[error("the host offers no socket")]
    NoSocket,
    #[error("the host is another one, or its socket can't be seen from here")]
    OtherHost,
    #[error("the host offers no rail; name its addresses with --rail there")]
    NoRail,
    #[error("it is down on the host")]
    RailDown,
    /// The host could not open the way; its own words.
    #[error("on the host: {0}")]
    OnHost(String),
    #[error(transparent)]
    NoRdma(#[from] NoRdma),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Ways(#[from] WaysError),
    #[error(transparent)]
    Shm(Arc<ShmBindError>),
    #[error(transparent)]
    Open(Arc<io::Error>),
}

impl From<ShmBindError> for LeftOutCause {
    fn from(error: ShmBindError) -> Self {
        Self::Shm(Arc::new(error))
    }
}

impl From<io::Error> for LeftOutCause {
    fn from(error: io::Error) -> Self {
        Self::Open(Arc::new(error))
    }
}
