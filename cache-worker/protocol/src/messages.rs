//! Defines the messages inside the transport's frames: requests and replies. Encoded with postcard.
//!
//! Object bytes are never in a message: they are pushed into a landing beside the message that
//! vouches for them. Every answer has carried lease and generation since the first version, granted
//! or not. Enum variants are appended, never reordered; any other change raises
//! [`PROTOCOL_VERSION`].

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::{
    BlockIndex, ContentVersion, Epoch, KeyGeneration, ObjectKey, ObjectVolume, PageIndex, WriteId,
};
use crate::lease_recall::{LeaseHolder, RecallPollMessage, RecallReply};
use crate::maintenance::{ForgetPrefix, TendBlocksReply, TendMessage};
use crate::object_look::{ObjectLookMessage, ObjectLookReply};

/// Version in the handshake. Peers of different versions refuse each other.
pub const PROTOCOL_VERSION: u32 = 1;

/// Request of a gateway, or of another worker, to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerRequest {
    Open(OpenMessage),
    Read(ReadMessage),
    Announce(AnnounceMessage),
    Report(ReportMessage),
    Forget(ForgetMessage),
    Listed(ListingMessage),
    /// Asks under which epoch the worker answers, and whether it holds a lease.
    Standing,
    Warm(WarmMessage),
    /// An open or a read on behalf of a trace span. It holds a [`TracedRequest`], so that a peer
    /// can't nest requests.
    Traced(TraceContext, TracedRequest),
    Tend(TendMessage),
    ForgetPrefix(ForgetPrefix),
    /// From another worker: the pages of the range that this worker holds, in memory or on disk.
    /// Fills nothing.
    ReadHeld(ReadMessage),
    /// From another worker: is it worth asking for these pages?
    Holds(HoldsMessage),
    /// From a worker that leaves, to the block's new owner.
    TakeOver(TakeOver),
    /// A `WarmMessage` without a version, for an object whose length a listing shows.
    WarmListed(WarmMessage, u64),
    /// Reads a hot block at a worker that does not own it. The worker asks the owner for what it
    /// lacks, and fills nothing.
    ReadReplica(ReadMessage),
    Look(ObjectLookMessage),
    /// An `OpenMessage` from a client that would hold a lease on the attributes. Sent only if the
    /// home has said that it grants leases.
    OpenBy(OpenMessage, LeaseHolder),
    Recalls(RecallPollMessage),
    GoneVersion(GoneVersion),
}

/// Requests that may be traced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TracedRequest {
    Open(OpenMessage),
    Read(ReadMessage),
    ReadReplica(ReadMessage),
    OpenBy(OpenMessage, LeaseHolder),
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

impl WorkerRequest {
    /// Wraps the request in a span, if there is one and requests of this kind are traced.
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

/// Asks for an object's attributes and, in the same round trip, for wanted bytes of its first
/// block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMessage {
    pub object: ObjectKey,
    /// Version id that the client named.
    pub version_id: Option<String>,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    /// Largest age of cached attributes; older ones are asked for at the UFS. 0 asks every time,
    /// `u64::MAX` never (immutable).
    pub attributes_age_ms_max: u64,
    /// Largest age of a cached absence.
    pub absence_age_ms_max: u64,
    /// The client wants the object's checksums (`x-amz-checksum-mode`).
    pub checksums: bool,
    /// Bytes that the client wants; `None` for HEAD, for which the UFS's errors have no bodies. The
    /// answer holds only the part in block 0, and no more than the landing holds.
    pub want: Option<ByteRange>,
    /// Most bytes of the answer; 0 asks only for attributes. The landing is cut at page borders for
    /// a read from offset 0.
    pub piece_bytes_max: u32,
}

/// Byte range as the client wrote it. Whoever knows the length resolves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByteRange {
    All,
    /// First byte, and the last byte (inclusive) if one was named.
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
    /// Resolves the range for an object's length. `None`: not satisfiable (416).
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

/// Asks for bytes of one block of one version.
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
    /// Bytes past `end` in this block that the reader will probably want next; a hint for the fill.
    pub ahead_bytes: u32,
}

/// Asks whether a worker seems to hold a page of an object's block 0, of the version that it last
/// knew. A hint: the UFS decides which version is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldsMessage {
    pub object: ObjectKey,
    pub version_id: Option<String>,
    pub geometry: BlockGeometry,
    pub page: PageIndex,
}

/// Tells a block's owner to fetch it from its former owner now, not at the first read. Never asks
/// the UFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOver {
    pub object: ObjectKey,
    pub version: ContentVersion,
    /// Epoch of the map by which the receiver owns the block.
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    pub block: BlockIndex,
    /// Heat of the block: bytes read from it, with older reads weighted less.
    pub heat_bytes: u64,
}

/// Announces that a write is about to become visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnounceMessage {
    pub volume: ObjectVolume,
    /// Keys of this home; a batch delete names many.
    pub keys: Vec<String>,
    pub write: WriteId,
    pub epoch: Epoch,
    /// How long reads of these keys ask the UFS if no report follows. Another announcement renews
    /// it.
    pub uncertain_ms: u64,
}

/// Reports that a write is over, with any outcome. Invalidates; never installs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportMessage {
    pub volume: ObjectVolume,
    pub keys: Vec<String>,
    pub write: WriteId,
    pub epoch: Epoch,
    pub outcome: WriteOutcome,
}

/// Outcome of a write as far as the gateway knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOutcome {
    /// The UFS has acknowledged the write.
    Done,
    /// The UFS has refused it, or it was never sent: nothing changed.
    Refused,
    /// It was sent and no answer came: the key stays uncertain until its time is over.
    Unknown,
}

/// Drops what is cached of these keys (explicit invalidation).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetMessage {
    pub volume: ObjectVolume,
    pub keys: Vec<String>,
}

/// Reports that the UFS no longer has this version. The home drops what it knows of the key if that
/// is of this version. Then the next read asks the UFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneVersion {
    pub object: ObjectKey,
    pub version: ContentVersion,
}

/// Tells a home what a listing showed of its keys. The home drops cached attributes that contradict
/// the listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingMessage {
    pub volume: ObjectVolume,
    pub entries: Vec<ListedEntry>,
}

/// Key of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedEntry {
    pub key: String,
    /// `None`: the object does not exist; its newest version is a delete marker.
    pub shown: Option<ListedAttributes>,
}

/// Attributes of an object in a listing. An absent field contradicts nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListedAttributes {
    /// Strong, quotes included.
    pub etag: Option<String>,
    pub bytes: Option<u64>,
    /// Milliseconds since 1970: listings are finer than `Last-Modified` is in some stores.
    pub last_modified_ms: Option<i64>,
}

impl ListedAttributes {
    /// Returns whether these attributes are of another state of the object. `Last-Modified` counts
    /// seconds: a store may have cut or rounded.
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

/// Makes pages of one block present before anybody reads them. The answer is [`WarmPagesReply`],
/// after signs of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmMessage {
    pub object: ObjectKey,
    /// `None`: the UFS's present version, whose attributes come with it. Only for block 0, at its
    /// home.
    pub version: Option<ContentVersion>,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    pub block: BlockIndex,
    /// First page in the block. Pages past the block's end are left out. An empty run asks only for
    /// attributes.
    pub first_page: u16,
    pub pages: u16,
    /// See [`OpenMessage`]; used without a version.
    pub attributes_age_ms_max: u64,
    pub tier: WarmTier,
    /// Time up to which the pages are kept, in milliseconds since 1970; 0: no longer than others.
    pub pin_until_ms: u64,
    /// Fills nothing, and only reports what is here.
    pub look_only: bool,
}

/// Tier that warmed pages go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarmTier {
    Memory,
    Disk,
}

/// Result of warming pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmPagesReply {
    /// Version of the pages.
    pub version: ContentVersion,
    /// Bytes that were there already.
    pub held_bytes: u32,
    /// Bytes that came from the UFS meanwhile, for any reader.
    pub loaded_bytes: u32,
    /// Bytes that are not there; only with `look_only`.
    pub missing_bytes: u32,
    /// Random number drawn at the start of the worker's process. What it reported under another
    /// number may be gone.
    pub life: u64,
}

/// Reply of a worker. The bytes of a [`BlockPiece`] lie in the landing at the part's offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerReply {
    /// Answers `OpenMessage`. Further parts are `Data`.
    Opened(Box<OpenObjectReply>),
    /// Answers `OpenMessage`: the UFS says that the object does not exist.
    Absent(AbsentReply),
    /// Bytes. Answers `ReadMessage`, or follows `Opened`. For `ReadHeld` these are whole pages,
    /// with gaps for absent ones, and an empty last part.
    Data(BlockPiece),
    /// Answers `AnnounceMessage`, `ReportMessage`, `ForgetMessage`, `ListingMessage` and
    /// `ForgetPrefix`.
    Done { generation: KeyGeneration, lease: AttributeLease },
    /// Refuses the request; the kind says what to do instead.
    Refused(WorkerRefusal),
    /// Answers `AnnounceMessage` and `ReportMessage`: done, by a home whose lease is over. It
    /// counts only if every member of the map answers so.
    Unleased { generation: KeyGeneration },
    /// Answers `Standing`. Epoch 0: none, the worker is between two maps.
    Standing { epoch: Epoch, leased: bool },
    /// Answers `WarmMessage`.
    Warmed(WarmPagesReply),
    /// Answers `TendMessage`.
    Tended(TendBlocksReply),
    /// Answers `HoldsMessage`.
    Holds { likely: bool },
    /// Answers `TakeOver`: how much of the block came from its former owner.
    TakenOver { bytes: u64 },
    /// Answers `ObjectLookMessage`.
    Looked(ObjectLookReply),
    /// Answers `RecallPollMessage`.
    Recalled(RecallReply),
}

/// Where the bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheVerdict {
    Hit,
    /// Some pages were there.
    Partial,
    Miss,
}

/// Reply to `OpenMessage` for an object that exists: its attributes and, if wanted, bytes of block
/// 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenObjectReply {
    pub attributes: HeadAttributes,
    pub generation: KeyGeneration,
    pub lease: AttributeLease,
    /// The attributes came from the cache; if not set, from the UFS just now.
    pub attributes_cached: bool,
    pub piece: Option<BlockPiece>,
}

/// The right to answer from these attributes without asking the home, until it ends or is recalled.
/// Its time counts from when the question was sent. Zero: no lease. An id without time: the home
/// grants leases to clients that poll it for recalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttributeLease {
    pub id: u64,
    pub milliseconds: u32,
}

/// Attributes of one version, as HEAD answers them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadAttributes {
    pub version: ContentVersion,
    /// The UFS's Last-Modified in seconds since 1970.
    pub last_modified: Option<i64>,
    /// The UFS's representation headers (lower-case names) in its order: HEAD's whole answer
    /// without Content-Length, Content-Range, Accept-Ranges, the date and the request ids.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The headers hold the object's checksums if it has any.
    pub checksums_known: bool,
}

/// Run of bytes of one block, which lies in the landing beside the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPiece {
    pub block: BlockIndex,
    /// Bytes within the block.
    pub start: u32,
    pub length: u32,
    /// CRC64NVME of each page's part of the run, in order. For a whole page it is the one stored at
    /// fill; for a cut page the worker computes it.
    pub checksums: Vec<u64>,
    pub verdict: CacheVerdict,
}

/// The UFS's own error answer, which the client gets unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UfsAnswer {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    /// XML, at most 64 KiB; empty for HEAD.
    pub body: Vec<u8>,
}

/// Reply to `OpenMessage` for an object that the UFS does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentReply {
    pub answer: UfsAnswer,
    pub generation: KeyGeneration,
    pub cached: bool,
}

/// Refusal of a request, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRefusal {
    pub kind: RefusalKind,
    /// Text for the asking side's log.
    pub reason: String,
}

/// Kind of a refusal, which tells the asker what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// A write of this key is in flight, or its outcome is unknown: ask the UFS, cache nothing.
    Uncertain,
    /// No memory, or too many fills: ask a replica or the UFS.
    Busy,
    /// The object can't be cached (no strong ETag, encrypted with a client's key): ask the UFS.
    Uncacheable,
    /// The UFS no longer has this version: ask for attributes anew.
    VersionGone,
    /// The UFS answered with an error.
    Ufs(UfsAnswer),
    /// The UFS could not be reached, or its answer broke off.
    UfsUnreachable,
    /// This worker's configuration has no such volume.
    UnknownVolume,
    /// The asker and the worker have different block or page sizes.
    GeometryMismatch(BlockGeometry),
    /// The message makes no sense.
    Malformed,
    /// The asker and the worker have different placement maps, and perhaps different homes for this
    /// key. Holds the worker's own epoch.
    WrongEpoch(Epoch),
    /// The home has been cut off from the coordinators for too long to take part in writes.
    NoLease,
    /// Answers `ReadReplica`: neither this worker nor the owner holds the bytes. Ask the owner,
    /// which fills them.
    NotHeld,
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

wire!(WorkerRequest, "request");
wire!(WorkerReply, "reply");

#[cfg(test)]
mod tests;
