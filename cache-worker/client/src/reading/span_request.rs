//! What is asked of the tier for a span, and what comes of it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use verbs3_protocol::{BlockSpan, ContentVersion, ObjectKey, TenantTag, TraceContext};
use verbs3_rdma::foreign_memory::{BodyPlace, ClaimedRange};

use crate::reading::bypass_reason::BypassReason;

/// Next item of a span's read. After anything but `Bytes` nothing more comes.
#[derive(Debug)]
pub enum SpanItem {
    /// The next bytes, verified.
    Bytes(Vec<Bytes>),
    End,
    /// The rest has to come from the UFS, from
    /// [`next_byte`](super::span_read::SpanRead::next_byte) on.
    Bypass(BypassReason),
    /// The UFS no longer has this version.
    VersionGone,
}

/// One span of one object version, to be read from the tier.
#[derive(Debug, Clone)]
pub struct SpanRequest {
    pub object: Arc<ObjectKey>,
    pub version: Arc<ContentVersion>,
    pub span: BlockSpan,
    /// Bytes after the span, in its block, that the reader is likely to want next.
    pub ahead_bytes: u32,
    /// Bytes of the object that the reader goes through, of which the span is a part.
    pub request_range: Range<u64>,
    /// Trace context of the client's request, where it is traced.
    pub trace: Option<TraceContext>,
    /// The tenant that the client belongs to.
    pub tenant: Option<TenantTag>,
    /// Where the bytes are to land, if they can.
    pub place: Option<ObjectBytesPlace>,
}

/// The place of an object's bytes in memory that a process has lent.
#[derive(Debug, Clone)]
pub struct ObjectBytesPlace {
    pub body: Arc<BodyPlace>,
    /// Byte of the object at the place's beginning.
    pub first_byte: u64,
}

impl ObjectBytesPlace {
    /// Claims the place of `bytes` of the object from byte `at`. `None`: they are to land elsewhere.
    pub(crate) fn claim_range(&self, at: u64, bytes: u32) -> Option<ClaimedRange> {
        self.body.claim_range(at.checked_sub(self.first_byte)?, bytes.into())
    }
}
