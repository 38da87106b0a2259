//! Lets other processes speak with the coordinators: messages, their proof, the client, and the
//! followers of the map and of hot blocks. Decides nothing about placement.
#![forbid(unsafe_code)]

pub mod api;
mod backoff;
mod client;
pub mod hot_blocks;
mod hot_follower;
pub mod lease_clock;
mod map_follower;
pub mod proof;
pub mod worker_lease;

pub use client::{AskError, CoordinatorClient, CoordinatorClientOptions};
pub use hot_follower::HotFollower;
pub use map_follower::{MapFollower, MapWatch};
