//! Defines the messages inside the transport's frames: requests and replies. Encoded with postcard.
//!
//! Object bytes are never in a message: they are pushed into a landing beside the message that
//! vouches for them. Which reply answers which request is said in [`crate::question`].

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::block_read::{
    BlockPiece, CacheVerdict, HoldsMessage, HoldsReply, ReadMessage, TakeOver, TakeOverReply,
};
use crate::block_tending::{TendBlocksReply, TendMessage};
use crate::head_list::{HeadListMessage, HeadListReply};
use crate::ids::BlockIndex;
use crate::invalidation::{ForgetMessage, ForgetPrefix, GoneVersion};
use crate::lease_recall::{RecallPollMessage, RecallReply};
use crate::listing::ListingMessage;
use crate::object_look::{ObjectLookMessage, ObjectLookReply};
use crate::object_open::{AbsentReply, OpenMessage, OpenObjectReply};
use crate::page_staging::{SettleMessage, SettledPages, StageMessage, StagedPages};
use crate::page_warming::{WarmMessage, WarmPagesReply};
use crate::refusal::WorkerRefusal;
use crate::standing::StandingReply;
use crate::tenant_tag::TenantTag;
use crate::write_notice::{AnnounceMessage, HomeAcknowledgement, ReportMessage};

/// What travels for one call: a question, the trace that it belongs to, and for whom it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEnvelope {
    pub trace: Option<TraceContext>,
    /// The tenant whose client asked; none for a stranger, a job, or a worker.
    pub tenant: Option<TenantTag>,
    pub question: WorkerRequest,
}

/// Span of a request, in terms of W3C's trace context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    pub trace: u128,
    pub span: u64,
    /// Spans are recorded; if not set, the context is passed on all the same.
    pub sampled: bool,
    /// `tracestate` as the client sent it.
    pub state: Option<String>,
}

/// Question of a gateway, or of another worker, to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerRequest {
    Open(OpenMessage),
    Read(ReadMessage),
    Announce(AnnounceMessage),
    Report(ReportMessage),
    Forget(ForgetMessage),
    ForgetPrefix(ForgetPrefix),
    GoneVersion(GoneVersion),
    Listed(ListingMessage),
    Recalls(RecallPollMessage),
    Standing,
    Warm(WarmMessage),
    Look(ObjectLookMessage),
    Tend(TendMessage),
    Holds(HoldsMessage),
    TakeOver(TakeOver),
    HeadList(HeadListMessage),
    Stage(StageMessage),
    Settle(SettleMessage),
}

/// Reply of a worker. The bytes of a [`BlockPiece`] lie in the landing at the part's offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerReply {
    Opened(Box<OpenObjectReply>),
    Absent(AbsentReply),
    /// Bytes. A piece of no bytes, unless it is the last part, is a sign of life: the worker is at
    /// work, and has nothing to send yet.
    Data(BlockPiece),
    Acknowledged(HomeAcknowledgement),
    Recalled(RecallReply),
    Standing(StandingReply),
    Warmed(WarmPagesReply),
    Looked(ObjectLookReply),
    Tended(TendBlocksReply),
    Holds(HoldsReply),
    TakenOver(TakeOverReply),
    Heads(HeadListReply),
    Staged(StagedPages),
    Settled(SettledPages),
    /// Refuses any question; the kind says what to do instead.
    Refused(WorkerRefusal),
}

impl WorkerRequest {
    /// Puts the question into an envelope that names no tenant.
    #[must_use]
    pub fn with_trace(self, trace: Option<&TraceContext>) -> RequestEnvelope {
        self.for_tenant(trace, None)
    }

    /// Puts the question into an envelope.
    #[must_use]
    pub fn for_tenant(
        self,
        trace: Option<&TraceContext>,
        tenant: Option<TenantTag>,
    ) -> RequestEnvelope {
        RequestEnvelope { trace: trace.cloned(), tenant, question: self }
    }
}

impl WorkerReply {
    /// Returns the sign of life of a worker that has nothing to send yet.
    pub fn sign_of_life() -> Self {
        Self::empty_piece(BlockIndex(0), CacheVerdict::Miss)
    }

    /// Returns a piece of no bytes. As the last part, it says that nothing more comes.
    pub fn empty_piece(block: BlockIndex, verdict: CacheVerdict) -> Self {
        Self::Data(BlockPiece { block, start: 0, length: 0, checksums: Vec::new(), verdict })
    }

    /// Returns whether this is a piece of no bytes: a sign of life, or the end of an answer.
    pub fn is_empty_piece(&self) -> bool {
        matches!(self, Self::Data(piece) if piece.length == 0)
    }

    /// Returns a name for messages to operators.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opened(_) => "attributes",
            Self::Absent(_) => "an absence",
            Self::Data(_) => "bytes",
            Self::Acknowledged(_) => "an acknowledgement",
            Self::Recalled(_) => "recalls",
            Self::Standing(_) => "its standing",
            Self::Warmed(_) => "warmed pages",
            Self::Looked(_) => "looked-up objects",
            Self::Tended(_) => "tended blocks",
            Self::Holds(_) => "a hint about a page",
            Self::TakenOver(_) => "a block taken over",
            Self::Heads(_) => "attributes of listed objects",
            Self::Refused(_) => "a refusal",
            Self::Staged(_) => "staged pages",
            Self::Settled(_) => "settled pages",
        }
    }
}

/// Error: a message can't be decoded.
#[derive(Debug, Clone, thiserror::Error)]
#[error("malformed {what}: {source}")]
pub struct DecodeError {
    what: &'static str,
    #[source]
    source: postcard::Error,
}

macro_rules! wire {
    ($type:ty, $what:literal) => {
        impl $type {
            /// Encodes the message.
            pub fn encode(&self) -> Bytes {
                // Serialising to a growing vector fails only for types that postcard can't
                // represent; ours are plain data.
                Bytes::from(postcard::to_stdvec(self).expect("plain data always serialises"))
            }

            /// Decodes a peer's message; rejects trailing bytes.
            pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                let fail = |source| DecodeError { what: $what, source };
                let (value, rest) = postcard::take_from_bytes(bytes).map_err(fail)?;
                if rest.is_empty() {
                    Ok(value)
                } else {
                    Err(fail(postcard::Error::DeserializeBadEncoding))
                }
            }
        }
    };
}

wire!(RequestEnvelope, "request");
wire!(WorkerReply, "reply");

#[cfg(test)]
mod tests;
