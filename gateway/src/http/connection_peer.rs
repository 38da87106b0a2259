//! What a request is told of its connection.

use std::sync::Arc;

use super::client_progress::ClientProgress;
use super::connection_caller::ConnectionCaller;

/// The state that all requests of a connection share.
#[derive(Clone)]
pub(crate) struct ConnectionPeer {
    pub progress: Arc<ClientProgress>,
    pub caller: Arc<ConnectionCaller>,
}
