//! The language between gateways and workers: identifiers, geometry, placement and messages. Pure:
//! no I/O, no clock.
#![forbid(unsafe_code)]

mod geometry;
mod ids;
mod lease_recall;
mod maintenance;
mod membership;
mod messages;
mod object_look;
mod pause_watch;
mod placement;
mod write_notice;

pub use geometry::{BlockGeometry, BlockSpan, GeometryError};
pub use ids::{
    BlockHash, BlockIndex, ContentVersion, Epoch, HashSlot, HolderId, KeyGeneration, KeyHash,
    ObjectKey, ObjectVolume, PageIndex, WorkerId, WriteId, is_strong_etag,
};
pub use lease_recall::{
    LEASE_MS_MAX, LeaseHolder, RECALLED_KEYS_MAX, RECALLS_WAIT_MS, RecallPollMessage, RecallReply,
};
pub use maintenance::{
    ForgetPrefix, TENDED_BLOCKS_MAX, TendAct, TendBlocksReply, TendMessage, TendedBlock,
};
pub use membership::{ClusterMember, MemberRoster, MembershipChange};
pub use messages::{
    AbsentReply, AnnounceMessage, AttributeLease, BlockPiece, ByteRange, CacheVerdict, DecodeError,
    ForgetMessage, GoneVersion, HeadAttributes, HoldsMessage, ListedAttributes, ListedEntry,
    ListingMessage, OpenMessage, OpenObjectReply, PROTOCOL_VERSION, ReadMessage, RefusalKind,
    ReportMessage, TakeOver, TraceContext, TracedRequest, UfsAnswer, WarmMessage, WarmPagesReply,
    WarmTier, WorkerRefusal, WorkerReply, WorkerRequest, WriteOutcome,
};
pub use object_look::{
    LOOKED_OBJECTS_MAX, LookedFor, ObjectHoldings, ObjectLookMessage, ObjectLookReply,
};
pub use pause_watch::PauseWatch;
pub use placement::{
    PlacementError, PlacementMap, PlacementMember, RANKING, SLOTS, SPREAD_BYTES_MIN,
};
pub use write_notice::{NoticeAnswer, NoticeRelayOutcome, WriteNotice};
