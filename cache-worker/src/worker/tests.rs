//! The worker over the in-process transport, in front of a store that counts, holds and breaks.
#![allow(clippy::unwrap_used)]

mod absent_leases;
mod coherence;
mod disk;
mod fills;
mod former;
mod head_list;
mod history;
mod holding_store;
mod lease_recalls;
mod leases;
mod life;
mod membership;
mod opens;
mod parts;
mod populate;
mod pressure;
mod replica;
mod tend;
mod together;
mod warm;
mod worker_fixture;
