//! How other processes speak with the coordinators: what is said, its proof, the client, and the
//! following of the map. Decides nothing about placement.
#![forbid(unsafe_code)]

pub mod api;
mod backoff;
mod client;
pub mod hot_blocks;
pub mod lease_clock;
mod map_follower;
pub mod proof;
pub mod worker_lease;

pub use client::{AskError, CoordinatorClient, CoordinatorClientOptions};
pub use hot_blocks::HotFollower;
pub use map_follower::{MapFollower, MapWatch};
