//! An in-process transport that passes for one of another kind: for tests of who chooses among
//! transports.
//!
//! Owns the disguise. Bytes move as the transport below moves them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::landing::Landing;
use crate::peer::Ways;
use crate::transport::{Call, Connection, PeerAddress, Transport, TransportError, TransportKind};

pub(super) struct Posing {
    pub(super) inner: Arc<dyn Transport>,
    pub(super) kind: TransportKind,
    pub(super) ways: Ways,
}

struct Posed {
    inner: Arc<dyn Connection>,
    kind: TransportKind,
    ways: Ways,
}

#[async_trait]
impl Transport for Posing {
    fn kind(&self) -> TransportKind {
        self.kind
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn Connection>, TransportError> {
        let inner = self.inner.connect(peer).await?;
        Ok(Arc::new(Posed { inner, kind: self.kind, ways: self.ways.clone() }))
    }
}

impl Connection for Posed {
    fn kind(&self) -> TransportKind {
        self.kind
    }

    fn wants_landing(&self) -> bool {
        self.inner.wants_landing()
    }

    fn call(&self, message: Bytes, landing: Option<Landing>) -> Call {
        self.inner.call(message, landing)
    }

    fn broken(&self) -> Option<TransportError> {
        self.inner.broken()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn ways(&self) -> &Ways {
        &self.ways
    }
}
