//! What the tier needs of a way to one worker.

use std::sync::Arc;

use futures::future::BoxFuture;
use verbs3_rdma::transport::{Connection, TransportError};

/// A way to one worker, over whatever transport works best now.
pub trait Link: Send + Sync {
    /// The connection to use now, if there is one.
    fn ready(&self) -> Option<Arc<dyn Connection>>;
    /// Connects, bounded by the transport's own deadline.
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, TransportError>>;
}
