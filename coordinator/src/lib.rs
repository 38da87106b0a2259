//! The control plane: who belongs to the cluster, and the placement map that follows from it. Never
//! on the read path.
#![forbid(unsafe_code)]

mod claim;
pub mod cluster;
mod coordinator;
pub mod hot;
mod http;
mod lead;
pub mod metrics;
mod preload;
mod publish;
mod relays;
#[cfg(test)]
mod simulation;
pub mod store;

pub use claim::ClusterClaimError;
pub use coordinator::{CoordinatorError, CoordinatorOptions, CoordinatorServer};
pub use preload::PreloadSetup;
pub use relays::RelayQueueOptions;
