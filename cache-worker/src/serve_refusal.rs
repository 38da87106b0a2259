//! Says why a request is not served: what peers are told, and what a person reads.

use std::ops::Range;

use verbs3_certificates::NodeRole;
use verbs3_protocol::{
    BlockGeometry, ContentVersion, DecodeError, Epoch, LOOKED_OBJECTS_MAX, ObjectVolume,
    RefusalKind, SETTLED_TOKENS_MAX, TENDED_BLOCKS_MAX, WorkerRefusal,
};

use crate::fill::PageFillError;
use crate::memory::StageError;
use crate::standing::StandingError;

/// A refusal: the reply to a request that is not served.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ServeRefusal {
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
    #[error("a node whose certificate is one of a {} does not ask {asked}", role.role_text())]
    OtherRole { role: NodeRole, asked: &'static str },
    #[error(
        "asked with {asked:?}, configured with {own:?}; use one block and page size everywhere"
    )]
    OtherGeometry { asked: BlockGeometry, own: BlockGeometry },
    #[error(
        "asked by epoch {:016x}, has {:016x}; where there is no coordinator, give gateways and \
        workers the same cluster.workers and cluster.replicas",
        asked.0, own.0
    )]
    OtherMap { asked: Epoch, own: Epoch },
    #[error("cut off from the coordinators for too long to take part in writes; bring them back")]
    NoLease,
    #[error("volume {0} is not in this worker's configuration; add its ufs")]
    UnknownVolume(ObjectVolume),
    #[error(
        "ufs {0} is another store here than where this was asked; give it the same endpoint (on \
        AWS: region) and namespace in every process, or the same store_id"
    )]
    OtherStore(String),
    #[error("{keys} keys in one message; name 1 to {keys_max}")]
    KeyCount { keys: usize, keys_max: usize },
    #[error("{0} objects in one message; name {LOOKED_OBJECTS_MAX} at most")]
    ObjectCount(usize),
    #[error("{0} blocks; ask for {TENDED_BLOCKS_MAX} at most")]
    BlockCount(u16),
    #[error("{0:?} names no version")]
    Unversioned(ContentVersion),
    /// The null version is overwritten in place, and its pages can't be requested by a name of
    /// their own.
    #[error("version id null names no version")]
    NullVersion,
    #[error("block {block} of {object_bytes} bytes")]
    BlockPastEnd { block: u32, object_bytes: u64 },
    #[error("bytes {range:?} of a block of {block_bytes} bytes")]
    OutsideBlock { range: Range<u32>, block_bytes: u32 },
    #[error("pages {} to {} of a block of {block_bytes} bytes", range.start, range.end)]
    NotWholePages { range: Range<u32>, block_bytes: u32 },
    #[error("bytes {range:?} for a landing of {landing_bytes} bytes")]
    ShortLanding { range: Range<u32>, landing_bytes: u64 },
    #[error("a block other than the first is warmed by its version")]
    WarmedUnversioned,
    #[error("pages are pinned on disk only; ask for tier disk")]
    PinInMemory,
    #[error("this worker has no disk tier; set worker.disk.folders")]
    NoDiskTier,
    #[error("the object changes faster than it can be asked about")]
    Changing,
    #[error("a write of this key is under way, or was lost sight of")]
    WriteUnderWay,
    #[error("too many objects are being asked about; raise worker.index.checks_in_flight_max")]
    TooManyChecks,
    #[error(
        "too many announced writes are open, or what is left is kept for other tenants; raise \
        worker.writes.open_max"
    )]
    TooManyWrites,
    #[error("no lease is granted to another gateway; raise worker.leases.holders_max")]
    TooManyHolders,
    #[error("gateways hold leases on these keys for a moment yet")]
    RecallsPending,
    #[error("an answer of {0} bytes is too large to pass on")]
    LargeAnswer(usize),
    #[error(
        "{pages} pages of {bytes} bytes in all from page {first_page} on; name whole pages of one block"
    )]
    StagedRange { first_page: u16, pages: usize, bytes: u32 },
    #[error("{0} tokens in one message; name 1 to {SETTLED_TOKENS_MAX}")]
    TokenCount(usize),
    #[error("block {0} belongs to another worker")]
    OtherOwner(u32),
    #[error("page {0} has other bytes than its checksum says")]
    OtherBytes(u16),
    #[error("the gateway did not push its pages")]
    NothingPushed,
    #[error("there is no memory for pages of writes now; raise worker.memory.capacity")]
    NoStageMemory,
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Fill(#[from] PageFillError),
    /// Refused by a check that several requests wait for.
    #[error(transparent)]
    Check(WorkerRefusal),
}

impl ServeRefusal {
    /// Returns what the asker should do instead.
    pub(crate) fn refusal_kind(&self) -> RefusalKind {
        match self {
            Self::Undecodable(_)
            | Self::KeyCount { .. }
            | Self::ObjectCount(_)
            | Self::BlockCount(_)
            | Self::Unversioned(_)
            | Self::BlockPastEnd { .. }
            | Self::OutsideBlock { .. }
            | Self::NotWholePages { .. }
            | Self::ShortLanding { .. }
            | Self::WarmedUnversioned
            | Self::StagedRange { .. }
            | Self::TokenCount(_)
            | Self::OtherBytes(_)
            | Self::Stage(StageError::OtherOwner) => RefusalKind::Malformed,
            Self::OtherOwner(_) => RefusalKind::NotHeld,
            Self::OtherRole { .. } => RefusalKind::Denied,
            Self::OtherGeometry { own, .. } => RefusalKind::GeometryMismatch(*own),
            Self::OtherMap { own, .. } => RefusalKind::WrongEpoch(*own),
            Self::NoLease => RefusalKind::NoLease,
            Self::UnknownVolume(_) | Self::OtherStore(_) => RefusalKind::UnknownVolume,
            Self::NullVersion | Self::PinInMemory | Self::NoDiskTier | Self::LargeAnswer(_) => {
                RefusalKind::Uncacheable
            }
            Self::Changing | Self::WriteUnderWay => RefusalKind::Uncertain,
            Self::TooManyChecks
            | Self::TooManyWrites
            | Self::TooManyHolders
            | Self::RecallsPending
            | Self::NothingPushed
            | Self::NoStageMemory
            | Self::Stage(
                StageError::Off | StageError::Bytes | StageError::Writes | StageError::Settled,
            ) => RefusalKind::Busy,
            Self::Fill(failure) => failure.refusal_kind(),
            Self::Check(refusal) => refusal.kind.clone(),
        }
    }

    /// Converts a refusal by the standing. A worker acts as a home only for callers with the same
    /// map. Two homes of one key would not learn of each other's writes.
    pub(crate) fn for_denial(denied: StandingError, asked: Epoch) -> Self {
        match denied {
            StandingError::Epoch(own) => Self::OtherMap { asked, own },
            StandingError::Lease => Self::NoLease,
        }
    }
}

/// The refusal as it travels.
impl From<ServeRefusal> for WorkerRefusal {
    fn from(refused: ServeRefusal) -> Self {
        match refused {
            ServeRefusal::Check(refusal) => refusal,
            refused => Self { kind: refused.refusal_kind(), reason: refused.to_string() },
        }
    }
}
