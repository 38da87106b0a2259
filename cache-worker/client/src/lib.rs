//! The gateway's side of the cache tier: which worker to ask, how long to wait for it, whom to ask
//! next, and whether the bytes are right. Knows no HTTP and no UFS: where the tier can't help it
//! says so, and the gateway goes to the UFS.
#![forbid(unsafe_code)]

mod attempt;
mod between;
mod gone;
mod health;
mod homes;
mod hot;
mod lease;
mod listed;
mod look;
pub mod metrics;
mod neighbours;
mod open;
mod options;
mod place;
mod recalls;
mod relay;
mod span;
mod tend;
mod tier;
mod verify;
mod warm;
mod write;

pub use health::HealthOptions;
pub use hot::HotBlockReplicas;
pub use lease::TierBootClock;
pub use look::ObjectLookOutcome;
pub use neighbours::{
    HeldRead, HeldRequest, NeighbourClient, NeighbourError, NeighbourOptions, TakeOverOutcome,
};
pub use open::{OpenOutcome, OpenRequest, OpenedObject};
pub use options::{TierOptions, TierOptionsError};
pub use relay::{NoticeRelay, RelayError, TierRelayOptions};
pub use span::{BypassReason, SpanItem, SpanRead};
pub use tend::{InvalidObjects, TendError};
pub use tier::{CacheTierClient, SpanRequest, TierError};
pub use warm::{WarmOutcome, WarmRequest};
pub use write::{CoherenceError, TierWriteGuard};

#[cfg(test)]
mod tests;
