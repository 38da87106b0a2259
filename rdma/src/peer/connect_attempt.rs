//! Owns an attempt to connect that several calls wait for, and its result.

use std::sync::Arc;

use futures::future::{BoxFuture, Shared};

use crate::transport::{PeerConnection, TransportError};

/// An attempt to connect. All who need its connection hold it, and get the same result.
pub(super) type ConnectAttempt = Shared<BoxFuture<'static, ConnectResult>>;

pub(super) type ConnectResult = Result<Arc<dyn PeerConnection>, TransportError>;
