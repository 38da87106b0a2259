//! Moves bytes between two hosts: registered memory (`arena`), lent memory (`landing`), and the
//! transports that fill it.
//!
//! Knows no bucket, no object and no block. The only crate of the workspace with `unsafe`.

pub mod arena;
pub mod bench;
mod call_credits;
pub mod calls;
pub mod doctor;
pub mod inprocess;
mod keyed_mac;
pub mod landing;
pub mod metrics;
pub mod peer;
mod pending_call;
pub mod rails;
pub mod settings;
#[cfg(not(miri))]
pub mod shm;
mod stream;
pub mod tcp;
pub mod transport;
pub mod verbs;
pub mod way_ticket;
