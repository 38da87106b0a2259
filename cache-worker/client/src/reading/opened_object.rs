//! Defines what comes of an open.

use std::ops::Range;

use bytes::Bytes;
use verbs3_protocol::{AbsentReply, CacheVerdict, OpenObjectReply, UfsAnswer};
use verbs3_rdma::transport::TransportKind;

use crate::reading::bypass_reason::BypassReason;
use crate::reading::span_read::SpanRead;

/// Outcome of an open.
pub enum OpenOutcome {
    Found(Box<OpenedObject>),
    Absent(AbsentReply),
    /// The UFS answered the home with an error; the client gets exactly that.
    Ufs(UfsAnswer),
    /// The gateway has to ask the UFS instead.
    Bypass(BypassReason),
}

/// What the leases say to an open.
pub(super) enum LeaseAnswer {
    Known(OpenOutcome),
    AskHome,
    /// Ask the home for the whole of a small object of so many bytes, to hold it.
    AskWhole(u64),
}

impl LeaseAnswer {
    pub(super) fn found(found: OpenedObject) -> Self {
        Self::Known(OpenOutcome::Found(Box::new(found)))
    }
}

/// An object that was found, and the first of its wanted bytes.
pub struct OpenedObject {
    /// What the home said: the attributes, and how they were found.
    pub reply: OpenObjectReply,
    /// Verified bytes of the opened piece.
    pub data: Vec<Bytes>,
    /// What the answer came over. `None`: this process held all of it, bytes included.
    pub transport: Option<TransportKind>,
    /// The read of what follows `data` within `covered`; `None` if nothing does.
    pub rest: Option<SpanRead>,
    /// The bytes of the object that `data` and `rest` give. Empty where all wanted bytes are in
    /// later blocks.
    pub covered: Range<u64>,
}

impl OpenedObject {
    /// Returns how the first bytes were found or, without any, how the attributes were.
    pub fn cache_verdict(&self) -> CacheVerdict {
        let attributes =
            if self.reply.attributes_cached { CacheVerdict::Hit } else { CacheVerdict::Miss };
        self.reply.piece.as_ref().map_or(attributes, |piece| piece.verdict)
    }
}
