//! The control plane: owns membership of the cluster and the placement map. Never on the read path.
#![forbid(unsafe_code)]

mod activity_board;
mod activity_reports;
mod cluster_claim;
mod console_access;
mod coordinator;
mod coordinator_options;
pub mod hot_block_table;
mod http;
mod leader_preload;
mod leadership;
mod map_publication;
pub mod membership;
pub mod metrics;
mod published_map;
mod relay_dispatcher;
mod relay_queues;
mod settings;
#[cfg(test)]
mod simulation;
pub mod store;

pub use cluster_claim::ClusterClaimError;
pub use console_access::{
    ConsoleRole, ConsoleUsers, ConsoleUsersError, PasswordHashFlaw, make_user_entry,
};
pub use coordinator::{CoordinatorError, CoordinatorServer};
pub use coordinator_options::CoordinatorOptions;
pub use leader_preload::PreloadSetup;
pub use settings::{
    CoordinatorConsoleSettings, CoordinatorSettings, CoordinatorStoreKind, CoordinatorStoreSettings,
};
