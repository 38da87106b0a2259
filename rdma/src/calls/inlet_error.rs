//! Owns the reasons why nothing more can be read from a connection, and how it ends by
//! them.

use std::io;

use super::frame::FrameError;
use crate::transport::{LossCause, ProtocolBreach, TransportError};

/// Reason why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InletError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the peer broke the rules of the line: {0}")]
    Rules(String),
    #[error("the stream ended in the middle of a frame")]
    Truncated,
    #[error(transparent)]
    Read(#[from] io::Error),
}

impl InletError {
    /// Returns how a connection to `peer` ends by this error.
    pub(crate) fn into_transport_error(self, peer: String) -> TransportError {
        let cause = match self {
            Self::Frame(error) => {
                return TransportError::Protocol { peer, breach: ProtocolBreach::Frame(error) };
            }
            Self::Rules(rule) => {
                return TransportError::Protocol { peer, breach: ProtocolBreach::LineRules(rule) };
            }
            Self::Truncated => LossCause::Truncated,
            Self::Read(error) => LossCause::from(error),
        };
        TransportError::Lost { peer, cause }
    }
}
