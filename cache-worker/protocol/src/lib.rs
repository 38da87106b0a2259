//! What gateways and workers say to each other: identifiers, geometry, placement and messages.
//! Pure: no I/O, no clock.
#![forbid(unsafe_code)]

mod geometry;
mod ids;
mod lease;
mod look;
mod membership;
mod messages;
mod pauses;
mod placement;
mod tend;
mod word;

pub use geometry::{BlockGeometry, BlockSpan, GeometryError};
pub use ids::{
    BlockHash, BlockIndex, ContentVersion, Epoch, HashSlot, HolderId, KeyGeneration, KeyHash,
    ObjectKey, ObjectVolume, PageIndex, WorkerId, WriteId, is_strong_etag,
};
pub use lease::{
    LEASE_MS_MAX, LeaseHolder, RECALLED_KEYS_MAX, RECALLS_WAIT_MS, RecallPollMessage, RecallReply,
};
pub use look::{LOOKED_OBJECTS_MAX, LookedFor, ObjectHoldings, ObjectLookMessage, ObjectLookReply};
pub use membership::{ClusterMember, MemberRoster, MembershipChange};
pub use messages::{
    AbsentReply, AnnounceMessage, AttributeLease, BlockPiece, ByteRange, CacheVerdict, DecodeError,
    ForgetMessage, GoneVersion, HeadAttributes, HoldsMessage, ListedAttributes, ListedEntry,
    ListingMessage, OpenMessage, OpenObjectReply, PROTOCOL_VERSION, ReadMessage, RefusalKind,
    ReportMessage, TakeOver, TraceContext, TracedRequest, UfsAnswer, WarmMessage, WarmPagesReply,
    WarmTier, WorkerRefusal, WorkerReply, WorkerRequest, WriteOutcome,
};
pub use pauses::PauseWatch;
pub use placement::{
    PlacementError, PlacementMap, PlacementMember, RANKING, SLOTS, SPREAD_BYTES_MIN,
};
pub use tend::{
    ForgetPrefix, TENDED_BLOCKS_MAX, TendAct, TendBlocksReply, TendMessage, TendedBlock,
};
pub use word::{NoticeAnswer, NoticeRelayOutcome, WriteNotice};
