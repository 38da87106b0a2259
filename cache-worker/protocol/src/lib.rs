//! The language between gateways and workers: identifiers, geometry, placement and messages. Pure:
//! no I/O, no clock.
#![forbid(unsafe_code)]

mod answer_headers;
mod block_read;
mod block_tending;
mod geometry;
mod head_list;
mod ids;
mod invalidation;
mod lease_recall;
mod listing;
mod membership;
mod messages;
mod object_look;
mod object_open;
mod page_staging;
mod page_warming;
mod pause_watch;
mod placement;
mod question;
mod refusal;
mod standing;
mod stated_version;
mod tenant_tag;
mod write_notice;

pub use answer_headers::AnswerHeaders;
pub use block_read::{
    BlockPiece, CacheVerdict, HoldsMessage, HoldsReply, ReadMessage, ReadSource, TakeOver,
    TakeOverReply,
};
pub use block_tending::{TENDED_BLOCKS_MAX, TendAct, TendBlocksReply, TendMessage, TendedBlock};
pub use geometry::{BlockGeometry, BlockSpan, GeometryError};
pub use head_list::{HeadListMessage, HeadListReply, LISTED_HEADS_MAX};
pub use ids::{
    BLOCKS_TOGETHER, BlockHash, BlockIndex, ContentVersion, Epoch, HashSlot, HolderId,
    KeyGeneration, KeyHash, ObjectKey, ObjectVolume, PageIndex, WorkerId, WriteId, is_strong_etag,
};
pub use invalidation::{ForgetMessage, ForgetPrefix, GoneVersion};
pub use lease_recall::{
    LEASE_MS_MAX, LeaseHolder, RECALLED_KEYS_MAX, RECALLS_WAIT_MS, RecallPollMessage, RecallReply,
};
pub use listing::{ListedAttributes, ListedEntry, ListingMessage};
pub use membership::{ClusterMember, MemberRoster, MembershipChange};
pub use messages::{DecodeError, RequestEnvelope, TraceContext, WorkerReply, WorkerRequest};
pub use object_look::{
    LOOKED_OBJECTS_MAX, LookedFor, ObjectHoldings, ObjectLookMessage, ObjectLookReply,
};
pub use object_open::{
    AbsentReply, AttributeLease, ByteRange, HeadAttributes, OpenAnswer, OpenMessage,
    OpenObjectReply, UfsAnswer,
};
pub use page_staging::{
    PopulateToken, SETTLED_TOKENS_MAX, STAGED_PAGES_MAX, SettleMessage, SettledPages, StageMessage,
    StagedPages,
};
pub use page_warming::{WarmAnswer, WarmMessage, WarmPagesReply, WarmTier};
pub use pause_watch::PauseWatch;
pub use placement::{
    PlacementError, PlacementMap, PlacementMember, RANKING, SLOTS, SPREAD_BYTES_MIN,
};
pub use question::{AnswerError, UnexpectedAnswer, WorkerQuestion};
pub use refusal::{RefusalKind, WorkerRefusal};
pub use standing::{StandingQuestion, StandingReply};
pub use stated_version::{StatedVersion, UncacheableError};
pub use tenant_tag::{TENANT_NAME_BYTES_MAX, TENANT_WEIGHT_MAX, TenantName, TenantTag};
pub use write_notice::{
    AnnounceMessage, HomeAcknowledgement, NoticeAnswer, NoticeRelayOutcome, ReportMessage,
    TenantNotice, WriteLeaseState, WriteNotice, WriteOutcome,
};
