//! S3 over RDMA for clients that are no members of the cluster (docs/decisions/s3-over-rdma.md).
//!
//! Owns what such a client is told. `rdma_decline` keeps requests right that ask for a payload by
//! RDMA and don't get it so.

mod rdma_decline;

pub(crate) use rdma_decline::{RdmaWish, decline_control};
