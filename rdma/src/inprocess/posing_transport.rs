//! Owns the disguise of an in-process transport as one of another kind, for tests of code that
//! chooses among transports.
//!
//! Bytes move as the transport below moves them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::landing::Landing;
use crate::peer::TransportWays;
use crate::transport::{
    CallLoad, LandingUse, OutgoingCall, PeerAddress, PeerConnection, PeerTransport, TransportError,
    TransportKind,
};

pub(super) struct PosingTransport {
    pub(super) inner: Arc<dyn PeerTransport>,
    pub(super) kind: TransportKind,
    pub(super) ways: TransportWays,
}

struct PosingConnection {
    inner: Arc<dyn PeerConnection>,
    kind: TransportKind,
    ways: TransportWays,
}

#[async_trait]
impl PeerTransport for PosingTransport {
    fn transport_kind(&self) -> TransportKind {
        self.kind
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let inner = self.inner.connect(peer).await?;
        Ok(Arc::new(PosingConnection { inner, kind: self.kind, ways: self.ways.clone() }))
    }
}

impl PeerConnection for PosingConnection {
    fn transport_kind(&self) -> TransportKind {
        self.kind
    }

    fn landing_use(&self) -> LandingUse {
        self.inner.landing_use()
    }

    fn start_call(&self, message: Bytes, landing: Option<Landing>) -> OutgoingCall {
        self.inner.start_call(message, landing)
    }

    fn broken_reason(&self) -> Option<TransportError> {
        self.inner.broken_reason()
    }

    fn call_load(&self) -> CallLoad {
        self.inner.call_load()
    }

    fn peer_ways(&self) -> &TransportWays {
        &self.ways
    }
}
