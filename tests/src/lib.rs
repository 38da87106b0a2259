//! Whole-system tests: real processes, real sockets, real clients. The vocabulary lives here, the
//! tests in `tests/`.
#![forbid(unsafe_code)]

pub mod cluster;
mod cluster_builder;
pub mod configuration;
pub mod content;
mod failure;
#[allow(clippy::unwrap_used)]
pub mod folder_copy;
pub mod history;
pub mod hosts;
pub mod metrics;
mod process;
pub mod progress;
pub mod proxy;
pub mod reading;
pub mod receiver;
pub mod relay;
pub mod seed;
pub mod spread_cluster;
pub mod starved;
pub mod trust;

pub use cluster::{ACCESS_KEY, Cluster, Gateway, SECRET_KEY, free_address, s3_client};
pub use cluster_builder::{ClusterBuilder, PATIENT_TIER, Section};
pub use process::built_binary;
