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

pub use geometry::{Geometry, GeometryError, Span};
pub use ids::{
    BlockHash, BlockIndex, Epoch, Generation, HolderId, KeyHash, ObjectKey, PageIndex, Slot,
    Version, Volume, WorkerId, WriteId, is_strong_etag,
};
pub use lease::{Holder, LEASE_MS_MAX, RECALLED_KEYS_MAX, RECALLS_WAIT_MS, Recalled, Recalls};
pub use look::{Here, LOOKED_OBJECTS_MAX, Look, Looked, LookedFor};
pub use membership::{ClusterMember, Membership, MembershipChange};
pub use messages::{
    Absent, Announce, Attributes, ByteRange, CacheVerdict, DecodeError, Forget, GoneVersion, Holds,
    Lease, Listed, ListedEntry, Open, Opened, PROTOCOL_VERSION, Piece, Question, Read, Refusal,
    RefusalKind, Reply, Report, Request, Shown, TakeOver, TraceContext, UfsAnswer, Warm, WarmTier,
    Warmed, WriteOutcome,
};
pub use pauses::PauseWatch;
pub use placement::{Member, Placement, PlacementError, RANKING, SLOTS, SPREAD_BYTES_MIN};
pub use tend::{ForgetPrefix, TENDED_BLOCKS_MAX, Tend, TendAct, Tended, TendedBlock};
pub use word::{Heard, Relayed, Word};
