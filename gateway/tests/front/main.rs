//! The gateway's front over real sockets: HTTP, signatures, policy, mounts, bodies, the homes' part
//! in writes. The store behind it is the local one; the cache tier is not here.
#![allow(clippy::unwrap_used)]

mod bodies;
mod certificates;
mod chunked;
mod client_rail;
mod coherence;
mod connections;
mod cors;
mod forms;
mod gateway_fixture;
mod http2;
mod identities;
mod if_range;
mod lending;
mod lending_writes;
mod lenient;
mod memory;
mod mounts;
mod oddities;
mod passing;
mod populating;
mod preload;
mod rdma_transfers;
mod rdma_uploads;
mod readiness;
mod remote;
mod rights;
mod s3_rdma;
mod signing;
mod slow;
mod strangers;
mod telemetry;
mod tenants;
mod unsigned;
