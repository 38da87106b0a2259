//! Opens an object: the question for its attributes and first bytes, and the answer.

use serde::{Deserialize, Serialize};

use crate::answer_headers::AnswerHeaders;
use crate::block_read::BlockPiece;
use crate::geometry::BlockGeometry;
use crate::ids::{ContentVersion, Epoch, KeyGeneration, ObjectKey};
use crate::lease_recall::LeaseHolder;

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
    /// The client would hold a lease on the answer. Set only if the home has said that it grants
    /// leases.
    pub holder: Option<LeaseHolder>,
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
    /// Returns the first byte. `None`: it depends on the object's length.
    pub fn first_byte(self) -> Option<u64> {
        match self {
            Self::All => Some(0),
            Self::From { first, .. } => Some(first),
            Self::Suffix { .. } => None,
        }
    }

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

/// First part of the answer to [`OpenMessage`]. Pieces may follow, as for a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenAnswer {
    Opened(Box<OpenObjectReply>),
    Absent(AbsentReply),
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

/// The right to answer the same without asking the home, until it ends or is recalled.
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
    pub headers: AnswerHeaders,
    /// The headers hold the object's checksums if it has any.
    pub checksums_known: bool,
}

/// Reply to `OpenMessage` for an object that the UFS does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentReply {
    pub answer: UfsAnswer,
    pub generation: KeyGeneration,
    pub lease: AttributeLease,
    pub cached: bool,
}

/// The UFS's own error answer, which the client gets unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UfsAnswer {
    pub status: u16,
    pub headers: AnswerHeaders,
    /// XML, at most 64 KiB; empty for HEAD.
    pub body: Vec<u8>,
}
