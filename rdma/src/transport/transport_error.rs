//! Owns the reasons why a call, or a connection, ended without its reply.
//!
//! A cause is part of its error's text, because a log line shows an error by that alone. It is no
//! `#[source]` beside that, or a chain of errors would say it twice.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::calls::{FrameError, FrameKind, HandshakeError};
use crate::landing::LandingClaimError;

/// Reason why a call, or a connection, ended without its reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransportError {
    /// The peer can't be reached at all; nothing was sent.
    #[error(
        "can't connect to {peer}: {cause}; check that the worker runs and that its data address \
        is reachable"
    )]
    Unreachable { peer: String, cause: UnreachableCause },
    /// The handshake failed: other version, other secret, other page or frame bounds.
    #[error("handshake with {peer} failed: {cause}")]
    Handshake { peer: String, cause: Arc<HandshakeError> },
    /// The connection broke while the call was in flight. The peer may or may not have acted on it.
    #[error("connection to {peer} was lost: {cause}")]
    Lost { peer: String, cause: LossCause },
    /// The peer sent something that the protocol forbids. The connection has been cut.
    #[error("{peer} broke the protocol: {breach}")]
    Protocol { peer: String, breach: ProtocolBreach },
    /// The peer's handler ended without a reply: it failed, panicked, or the peer shuts down. The
    /// connection is fine.
    #[error("{peer} gave no reply: {cause}")]
    Failed { peer: String, cause: NoReplyCause },
    /// A bound of this side was exceeded: a message larger than a frame may be, or a reply larger
    /// than the landing.
    #[error("refused here: {cause}")]
    Bound { cause: CallRefusal },
    /// The requester gave the call up (seen by the serving side only).
    #[error("the requester gave the call up")]
    Cancelled,
}

impl TransportError {
    /// Returns whether the peer refused the ticket that was shown, or wants one.
    pub(crate) fn is_about_ticket(&self) -> bool {
        use HandshakeError::{Plain, Ticket};
        matches!(self, Self::Handshake { cause, .. } if matches!(**cause, Plain | Ticket))
    }

    /// Returns whether the peer works, but has no room for one more connection now.
    pub(crate) fn is_about_room(&self) -> bool {
        match self {
            Self::Handshake { cause, .. } => matches!(**cause, HandshakeError::Full),
            Self::Unreachable { cause, .. } => matches!(cause, UnreachableCause::Crowded),
            _ => false,
        }
    }
}

/// Reason why a peer can't be reached.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UnreachableCause {
    #[error("{0}")]
    Connect(Arc<io::Error>),
    #[error("no answer in {0:?}")]
    Deadline(Duration),
    #[error("it has as many handshakes in progress as it may; raise its handshakes_max")]
    Crowded,
    #[error("it has no socket on this host")]
    NoSocket,
    #[error("it has no rail")]
    NoRail,
    #[error("no tcp transport is configured for it")]
    NoTcp,
    #[error("the attempt was given up")]
    GivenUp,
    #[error("the attempt panicked")]
    Panicked,
    #[error("it is closed here")]
    Closed,
    /// The peer rests after this error; nothing was tried for the call.
    #[error("resting: {0}")]
    Resting(Arc<TransportError>),
    /// The call's connection ended by this error before the call was sent.
    #[error("{0}")]
    Broken(Arc<TransportError>),
    #[error("refused by an injected fault")]
    Injected,
}

impl From<io::Error> for UnreachableCause {
    fn from(error: io::Error) -> Self {
        Self::Connect(Arc::new(error))
    }
}

/// Reason why a connection ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LossCause {
    #[error("{0}")]
    Line(Arc<io::Error>),
    #[error("the stream ended in the middle of a frame")]
    Truncated,
    #[error("the peer closed it")]
    ClosedByPeer,
    #[error("closed here")]
    ClosedHere,
    #[error("it closed")]
    Closed,
    #[error("the peer is shutting down")]
    ShuttingDown,
    #[error("no acknowledgement of a cancel in {0:?}")]
    CancelOverdue(Duration),
    #[error("nothing came over it")]
    Silent,
    #[error("broken by an injected fault")]
    Injected,
}

impl From<io::Error> for LossCause {
    fn from(error: io::Error) -> Self {
        Self::Line(Arc::new(error))
    }
}

/// What a peer did that the protocol forbids.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProtocolBreach {
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A rule of one transport's line.
    #[error("the peer broke the rules of the line: {0}")]
    LineRules(String),
    #[error("{kind:?} frame to a {to}")]
    WrongSide { kind: FrameKind, to: &'static str },
    #[error("{kind:?} for call {call}, which is not open")]
    NotOpen { kind: FrameKind, call: u64 },
    #[error(transparent)]
    Landing(#[from] LandingClaimError),
    #[error("data placed in a landing that the peer was not told of")]
    UndescribedLanding,
    #[error("more parts than a requester can be made to hold")]
    TooManyParts,
    #[error("acknowledged no cancel of call {call}")]
    NoCancel { call: u64 },
    #[error("call {call} after call {newest}")]
    CallOrder { call: u64, newest: u64 },
    #[error("more than {calls_max} calls in flight")]
    TooManyCalls { calls_max: usize },
    #[error("push for call {call}, unasked")]
    UnaskedPush { call: u64 },
    #[error("push of {got} bytes where {wanted} were wanted")]
    PushBytes { got: u64, wanted: u64 },
    #[error("cancel of call {call}, which was never made")]
    NeverMade { call: u64 },
    #[error("acknowledged no end of call {call}")]
    NoEnd { call: u64 },
}

/// Reason why a peer's handler gave no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoReplyCause {
    /// The peer's own words.
    #[error("{0}")]
    Told(String),
    #[error("the call ended before the push")]
    EndedBeforePush,
    #[error("the handler no longer waits for the push")]
    PushNotAwaited,
    #[error("the handler panicked: {message}")]
    Panicked { message: String },
    #[error("its handler panicked")]
    Unwound,
    #[error("its handler ended before the last part")]
    HandlerEnded,
}

/// Reason why this side refuses what its own caller wants.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallRefusal {
    #[error("message of {bytes} bytes; the bound is {bytes_max}")]
    MessageBytes { bytes: usize, bytes_max: usize },
    #[error(
        "reply bytes {offset} to {end} lie outside the requester's landing of {landing_bytes} bytes"
    )]
    OutsideLanding { offset: u64, end: u64, landing_bytes: u64 },
    #[error(transparent)]
    Landing(#[from] LandingClaimError),
    #[error("memory lent for an earlier push is still with the requester")]
    PushMemoryOut,
    #[error("the call was polled after its end")]
    PolledAfterEnd,
    #[error("the peer wants nothing pushed")]
    NothingWanted,
    #[error("the peer wants {wanted} bytes, {pushed} were pushed")]
    PushBytes { wanted: u64, pushed: u64 },
}
