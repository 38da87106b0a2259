//! The gateway's side of the cache tier. Decides which worker to ask, how long to wait, whom to ask
//! next, and whether the bytes are right. Knows no HTTP and no UFS: where the tier can't help, it
//! says so, and the gateway asks the UFS.
#![forbid(unsafe_code)]

mod attempt;
mod bypass_reason;
mod gone_version;
mod health;
mod home_batches;
mod hot_blocks;
mod lease_table;
mod listing_report;
mod maintenance;
mod map_agreement;
pub mod metrics;
mod neighbour_client;
mod object_look;
mod open;
mod options;
mod page_warming;
mod piece_check;
mod recalls;
mod relay_fallback;
mod span_read;
mod tier;
mod worker_map;
mod write_announcement;

pub use bypass_reason::BypassReason;
pub use health::HealthOptions;
pub use hot_blocks::HotBlockReplicas;
pub use lease_table::TierBootClock;
pub use maintenance::{InvalidObjects, TendError};
pub use neighbour_client::{
    HeldRead, HeldRequest, NeighbourClient, NeighbourError, NeighbourOptions, TakeOverOutcome,
};
pub use object_look::ObjectLookOutcome;
pub use open::{OpenOutcome, OpenRequest, OpenedObject};
pub use options::{TierOptions, TierOptionsError};
pub use page_warming::{WarmOutcome, WarmRequest};
pub use relay_fallback::{NoticeRelay, RelayError, TierRelayOptions};
pub use span_read::{SpanItem, SpanRead};
pub use tier::{CacheTierClient, SpanRequest, TierError};
pub use write_announcement::{CoherenceError, TierWriteGuard};

#[cfg(test)]
mod tests;
