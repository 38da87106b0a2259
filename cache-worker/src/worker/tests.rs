//! The worker over the in-process transport, in front of a store that counts, holds and breaks.
#![allow(clippy::unwrap_used)]

mod bed;
mod coherence;
mod disk;
mod fills;
mod former;
mod head_list;
mod history;
mod leases;
mod life;
mod membership;
mod opens;
mod parts;
mod populate;
mod pressure;
mod replica;
mod store;
mod tend;
mod together;
mod warm;
