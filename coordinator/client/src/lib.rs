//! Lets other processes speak with the coordinators: messages, their proof, the client, a worker's
//! lease, and the followers of the map and of hot blocks. Decides nothing about placement. What is
//! specific to a process is handed in ([`LeasedWorker`], [`PlacementAdopter`], [`PeerSource`]).
#![forbid(unsafe_code)]

pub mod api;
mod client;
mod cluster_secrets;
mod connector;
pub mod hot_blocks;
mod hot_follower;
pub mod lease_clock;
mod lease_keeper;
mod leased_worker;
mod map_follower;
mod member_peers;
mod placement_follower;
pub mod proof;
pub mod worker_lease;

pub use client::{AnswerFlaw, AskError, CoordinatorClient, CoordinatorClientOptions};
pub use cluster_secrets::{ClusterSecrets, VerifiedProof};
pub use connector::{CoordinatorTls, PlainForbidden};
pub use hot_follower::HotFollower;
pub use lease_keeper::WorkerLeaseKeeper;
pub use leased_worker::{LeasedWorker, PlacementActivation, WorkerLeaseRest, WorkerLeaseTerm};
pub use map_follower::{MapFollower, MapWatch};
pub use member_peers::{MemberPeers, PeerSource, PeersByWorker, RESOLVE_PAUSE, resolve_address};
pub use placement_follower::{PlacementAdopter, follow_placement};
