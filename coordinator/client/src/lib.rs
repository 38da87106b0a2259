//! How other processes speak with the coordinators: what is said, its proof, the client, and the
//! following of the map. Decides nothing about placement.
#![forbid(unsafe_code)]

pub mod api;
mod client;
pub mod clock;
mod follow;
pub mod hot;
mod pause;
pub mod proof;
pub mod tenure;

pub use client::{AskError, CoordinatorClient, CoordinatorClientOptions};
pub use follow::{MapFollower, MapWatch};
pub use hot::HotFollower;
