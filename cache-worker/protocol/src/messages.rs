//! The messages inside the transport's frames: what is asked and what is answered. Encoded with
//! postcard.
//!
//! Bytes of objects are never in here: they are pushed into a landing beside the message that
//! vouches for them. Lease and generation travel in every answer from the first version on, granted
//! or not. Enum variants are appended, never reordered; anything else raises [`PROTOCOL_VERSION`].

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::{
    BlockIndex, ContentVersion, Epoch, KeyGeneration, ObjectKey, ObjectVolume, PageIndex, WriteId,
};
use crate::lease_recall::{LeaseHolder, RecallPollMessage, RecallReply};
use crate::maintenance::{ForgetPrefix, TendBlocksReply, TendMessage};
use crate::object_look::{ObjectLookMessage, ObjectLookReply};

/// Spoken in the handshake. Peers of different versions refuse each other.
pub const PROTOCOL_VERSION: u32 = 1;

/// What a gateway, or another worker, asks a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerRequest {
    Open(OpenMessage),
    Read(ReadMessage),
    Announce(AnnounceMessage),
    Report(ReportMessage),
    Forget(ForgetMessage),
    Listed(ListingMessage),
    /// Under which epoch the worker answers, and whether it holds a lease.
    Standing,
    Warm(WarmMessage),
    /// An open or a read on behalf of a span of a trace. Not a request within a request: a peer
    /// must not nest them.
    Traced(TraceContext, TracedRequest),
    Tend(TendMessage),
    ForgetPrefix(ForgetPrefix),
    /// Of one worker to another: the pages of the range that it holds, in memory or on disk.
    /// Nothing is filled for it.
    ReadHeld(ReadMessage),
    /// Of one worker to another: is it worth asking for these?
    Holds(HoldsMessage),
    /// Of one worker, which leaves, to another, which owns the block now.
    TakeOver(TakeOver),
    /// A `WarmMessage` without a version, of an object that a listing shows with so many bytes.
    WarmListed(WarmMessage, u64),
    /// A read of a hot block at a worker that is not its owner. What it lacks it asks the owner
    /// for, and fills nothing.
    ReadReplica(ReadMessage),
    Look(ObjectLookMessage),
    /// An `OpenMessage` of who would hold a lease on the attributes: only where a home has said that it
    /// grants some.
    OpenBy(OpenMessage, LeaseHolder),
    Recalls(RecallPollMessage),
    GoneVersion(GoneVersion),
}

/// What may be traced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TracedRequest {
    Open(OpenMessage),
    Read(ReadMessage),
    ReadReplica(ReadMessage),
    OpenBy(OpenMessage, LeaseHolder),
}

/// The span that something is asked for, as W3C's trace context has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    pub trace: u128,
    pub span: u64,
    /// Whether spans are noted; if not, the context is passed on all the same.
    pub sampled: bool,
    /// `tracestate`, as the client sent it.
    pub state: Option<String>,
}

impl WorkerRequest {
    /// The same on behalf of a span, if there is one and requests of this kind are traced.
    #[must_use]
    pub fn with_trace(self, context: Option<&TraceContext>) -> Self {
        match (self, context) {
            (Self::Open(open), Some(context)) => {
                Self::Traced(context.clone(), TracedRequest::Open(open))
            }
            (Self::Read(read), Some(context)) => {
                Self::Traced(context.clone(), TracedRequest::Read(read))
            }
            (Self::ReadReplica(read), Some(context)) => {
                Self::Traced(context.clone(), TracedRequest::ReadReplica(read))
            }
            (Self::OpenBy(open, holder), Some(context)) => {
                Self::Traced(context.clone(), TracedRequest::OpenBy(open, holder))
            }
            (other, _) => other,
        }
    }
}

/// Attributes of an object and, in the same round trip, the wanted bytes of its first block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMessage {
    pub object: ObjectKey,
    /// A version id that the client named.
    pub version_id: Option<String>,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    /// Cached attributes older than this are asked again at the UFS; 0 asks every time, `u64::MAX`
    /// never (immutable).
    pub attributes_age_ms_max: u64,
    /// The same for a cached absence.
    pub absence_age_ms_max: u64,
    /// The client wants the object's checksums (`x-amz-checksum-mode`).
    pub checksums: bool,
    /// The bytes that the client wants; `None` for HEAD, which gets the UFS's errors without
    /// bodies. Only the part in block 0 is answered, and no more than the landing holds.
    pub want: Option<ByteRange>,
    /// Most bytes to answer with; 0 asks for attributes alone. The landing is cut at page borders
    /// for a read from offset 0.
    pub piece_bytes_max: u32,
}

/// A range as the client wrote it; resolved by whoever knows the length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByteRange {
    All,
    /// First byte, and the last byte (inclusive) where one was named.
    From {
        first: u64,
        last: Option<u64>,
    },
    /// The last `bytes` bytes.
    Suffix {
        bytes: u64,
    },
}

impl ByteRange {
    /// Resolves against an object's length. `None`: not satisfiable (416).
    pub fn resolve_range(self, object_bytes: u64) -> Option<std::ops::Range<u64>> {
        match self {
            Self::All => Some(0..object_bytes),
            Self::From { first, last } => {
                let end =
                    last.map_or(object_bytes, |last| last.saturating_add(1).min(object_bytes));
                (first < end).then_some(first..end)
            }
            Self::Suffix { bytes } => (bytes > 0 && object_bytes > 0)
                .then(|| object_bytes.saturating_sub(bytes)..object_bytes),
        }
    }
}

/// Bytes of one block of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMessage {
    pub object: ObjectKey,
    pub version: ContentVersion,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    pub block: BlockIndex,
    /// Bytes within the block.
    pub start: u32,
    pub end: u32,
    /// Bytes past `end` that the reader is likely to want next, in this block; a hint for the fill.
    pub ahead_bytes: u32,
}

/// Whether a worker seems to hold a page of an object's block 0, of the version that it knew last.
/// A hint: the UFS says which version there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldsMessage {
    pub object: ObjectKey,
    pub version_id: Option<String>,
    pub geometry: BlockGeometry,
    pub page: PageIndex,
}

/// Ask the former owner for this block now, and not only when it is read. Nothing is asked of the
/// UFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOver {
    pub object: ObjectKey,
    pub version: ContentVersion,
    /// Of the map by which the asked worker owns the block.
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    pub block: BlockIndex,
    /// How hot it was: bytes read of it, those of long ago counting less.
    pub heat_bytes: u64,
}

/// A write is about to become visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnounceMessage {
    pub volume: ObjectVolume,
    /// Keys of this home; a batch delete names many.
    pub keys: Vec<String>,
    pub write: WriteId,
    pub epoch: Epoch,
    /// How long reads of these keys ask the UFS if no report follows. Renewed by announcing again.
    pub uncertain_ms: u64,
}

/// A write is over, whatever its outcome. Invalidates; never installs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportMessage {
    pub volume: ObjectVolume,
    pub keys: Vec<String>,
    pub write: WriteId,
    pub epoch: Epoch,
    pub outcome: WriteOutcome,
}

/// How a write ended, as far as the gateway knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOutcome {
    /// The UFS has acknowledged the write.
    Done,
    /// The UFS has refused it, or it was never sent: nothing changed.
    Refused,
    /// Sent, and no answer came: the key stays uncertain until its time is over.
    Unknown,
}

/// Drop what is cached of these keys (explicit invalidation).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetMessage {
    pub volume: ObjectVolume,
    pub keys: Vec<String>,
}

/// A reader found that the UFS no longer has this version. Its home drops what it knows of the key,
/// if that is of this version: then the next read asks the UFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneVersion {
    pub object: ObjectKey,
    pub version: ContentVersion,
}

/// What a listing showed of keys of this home, which drops what it has cached of those that it
/// knows otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingMessage {
    pub volume: ObjectVolume,
    pub entries: Vec<ListedEntry>,
}

/// One key of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedEntry {
    pub key: String,
    /// `None`: there is no such object; its newest version is a delete marker.
    pub shown: Option<ListedAttributes>,
}

/// What a listing says of an object. What it leaves out contradicts nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListedAttributes {
    /// Strong, quotes included.
    pub etag: Option<String>,
    pub bytes: Option<u64>,
    /// Milliseconds since 1970: listings are finer than `Last-Modified` is in some stores.
    pub last_modified_ms: Option<i64>,
}

impl ListedAttributes {
    /// Whether these attributes are of another state of the object. `Last-Modified` has seconds: a
    /// store may have cut or rounded.
    pub fn contradicts_attributes(&self, attributes: &HeadAttributes) -> bool {
        let version = &attributes.version;
        let other_time = |(listed_ms, known): (i64, i64)| {
            let second = listed_ms.div_euclid(1000);
            known != second && !(known == second + 1 && listed_ms.rem_euclid(1000) > 0)
        };
        self.etag.as_ref().is_some_and(|etag| *etag != version.etag)
            || self.bytes.is_some_and(|bytes| bytes != version.bytes)
            || self.last_modified_ms.zip(attributes.last_modified).is_some_and(other_time)
    }
}

/// Have pages of one block ready before anybody reads them. Answered with [`WarmPagesReply`], after signs
/// of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmMessage {
    pub object: ObjectKey,
    /// `None`: what the UFS has now, whose attributes are learnt with it. Only of block 0, at its
    /// home.
    pub version: Option<ContentVersion>,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    pub block: BlockIndex,
    /// Of the block; those past its end are left out. None at all: only the attributes are wanted.
    pub first_page: u16,
    pub pages: u16,
    /// As in [`OpenMessage`]; without a version.
    pub attributes_age_ms_max: u64,
    pub tier: WarmTier,
    /// Milliseconds since 1970 up to which the pages are to be kept; 0: no longer than others.
    pub pin_until_ms: u64,
    /// Fill nothing: only say what is here.
    pub look_only: bool,
}

/// Where warmed pages are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarmTier {
    Memory,
    Disk,
}

/// What became of the pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmPagesReply {
    /// Of which version they are.
    pub version: ContentVersion,
    /// Bytes that were there already.
    pub held_bytes: u32,
    /// Bytes that came from the UFS meanwhile, for whomever.
    pub loaded_bytes: u32,
    /// Bytes that are not there: with `look_only`.
    pub missing_bytes: u32,
    /// A number that the worker's process has drawn at its start: what it told before under another
    /// one may be gone.
    pub life: u64,
}

/// What a worker answers. The bytes that a [`BlockPiece`] speaks of lie in the landing at the part's
/// offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerReply {
    /// To `OpenMessage`. Further parts are `Data`.
    Opened(Box<OpenObjectReply>),
    /// To `OpenMessage`: the UFS says that there is no such object.
    Absent(AbsentReply),
    /// Bytes; to `ReadMessage`, or after `OpenObjectReply`. To `ReadHeld`: whole pages, with gaps where there are
    /// none; an empty last one.
    Data(BlockPiece),
    /// To `AnnounceMessage`, `ReportMessage`, `ForgetMessage`, `ListingMessage`, `ForgetPrefix`.
    Done { generation: KeyGeneration, lease: AttributeLease },
    /// Not answered; what to do instead is in the kind.
    Refused(WorkerRefusal),
    /// To `AnnounceMessage`, `ReportMessage`: done, by a home whose lease is over. It is enough only if every
    /// member of the map stands by it.
    Unleased { generation: KeyGeneration },
    /// To `Standing`. Epoch 0: none, the worker is between two maps.
    Standing { epoch: Epoch, leased: bool },
    /// To `WarmMessage`.
    Warmed(WarmPagesReply),
    /// To `TendMessage`.
    Tended(TendBlocksReply),
    /// To `HoldsMessage`.
    Holds { likely: bool },
    /// To `TakeOver`: how much of the block came from its former owner.
    TakenOver { bytes: u64 },
    /// To `ObjectLookMessage`.
    Looked(ObjectLookReply),
    /// To `RecallPollMessage`.
    Recalled(RecallReply),
}

/// How the asked bytes were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheVerdict {
    Hit,
    /// Some pages were there.
    Partial,
    Miss,
}

/// The answer to `OpenMessage` for an object that exists: its attributes and, if wanted, bytes of
/// block 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenObjectReply {
    pub attributes: HeadAttributes,
    pub generation: KeyGeneration,
    pub lease: AttributeLease,
    /// Of the attributes: answered from the cache, or from the UFS now.
    pub attributes_cached: bool,
    pub piece: Option<BlockPiece>,
}

/// The right to answer from these attributes without asking the home, until it ends or is recalled;
/// counted from when the question was sent. Zero: none. An id without time: the home would grant
/// one to who polls it for recalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttributeLease {
    pub id: u64,
    pub milliseconds: u32,
}

/// What HEAD answers, for one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadAttributes {
    pub version: ContentVersion,
    /// Seconds since 1970, as the UFS's Last-Modified says.
    pub last_modified: Option<i64>,
    /// The UFS's representation headers (lower-case names), in its order: everything that HEAD
    /// answers but Content-Length, Content-Range, Accept-Ranges, the date and the request ids.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Whether the headers would hold the object's checksums if it had any.
    pub checksums_known: bool,
}

/// A run of bytes of one block, beside the message in the landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPiece {
    pub block: BlockIndex,
    /// Bytes within the block.
    pub start: u32,
    pub length: u32,
    /// CRC64NVME of each page's part of the run, in order: as stored at fill for a whole page, as
    /// computed by the worker for a cut one.
    pub checksums: Vec<u64>,
    pub verdict: CacheVerdict,
}

/// The UFS's own error answer, so that the client gets exactly that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UfsAnswer {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    /// XML, at most 64 KiB; empty for HEAD.
    pub body: Vec<u8>,
}

/// The answer to `OpenMessage` for an object that the UFS does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentReply {
    pub answer: UfsAnswer,
    pub generation: KeyGeneration,
    pub cached: bool,
}

/// A worker's word that it does not do what it was asked, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRefusal {
    pub kind: RefusalKind,
    /// For the log of the asking side.
    pub reason: String,
}

/// Why a worker refused, and so what the asker does instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// A write of this key is under way or was lost sight of: ask the UFS, cache nothing.
    Uncertain,
    /// No memory, or too many fills: ask a replica or the UFS.
    Busy,
    /// The object can't be cached (no strong ETag, encrypted with a client's key): ask the UFS.
    Uncacheable,
    /// This version is gone at the UFS: attributes must be asked anew.
    VersionGone,
    /// The UFS answered with an error.
    Ufs(UfsAnswer),
    /// The UFS could not be reached, or broke off.
    UfsUnreachable,
    /// This worker has no such volume in its configuration.
    UnknownVolume,
    /// Block or page size differ between asker and worker.
    GeometryMismatch(BlockGeometry),
    /// A message that makes no sense.
    Malformed,
    /// Asker and worker have different placement maps, and perhaps different homes for this key.
    /// The worker's own epoch.
    WrongEpoch(Epoch),
    /// A home that is cut off from the coordinators for too long to take part in writes.
    NoLease,
    /// To `ReadReplica`: neither this worker nor the owner holds the bytes. The owner is to be
    /// asked, which fills them.
    NotHeld,
}

/// A message that can't be read.
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
            /// Encodes for the wire.
            pub fn encode(&self) -> Bytes {
                // Serialising to a growing vector fails only for types postcard can't represent;
                // ours are plain data.
                Bytes::from(postcard::to_stdvec(self).expect("plain data always serialises"))
            }

            /// Decodes what a peer sent; rejects trailing bytes.
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

wire!(WorkerRequest, "request");
wire!(WorkerReply, "reply");

#[cfg(test)]
mod tests;
