//! Owns the shared-memory transport between a gateway and a worker on one host, and its options.
//! Calls go over a unix socket; replies are handed over in the worker's own memory.
//!
//! `arena_offer` hands the worker's arena to a requester that has proved the secret. `arena_view`
//! is the requester's read-only view of it. `pin_registry` holds what the worker keeps for the
//! requester; `pin_releases` gives it back. `owner_halves` and `borrower_halves` are the two sides
//! of the stream. `calls` knows what is said over it.
//!
//! A pin ends when the requester releases it, or when the requester has unmapped the arena. The
//! kernel reports the latter by the lifeline (`arena_offer`), also for a killed process. A pin
//! never ends by time, and never because the worker wants it.

mod arena_offer;
mod arena_view;
mod borrower_halves;
mod client;
mod owner_halves;
mod pin_registry;
mod pin_releases;
mod server;
mod socket;

use crate::calls::{CallOptions, HandshakeSecret};

pub use client::ShmTransport;
pub use server::{ShmServer, ShmServerOptions};
pub use socket::ShmBindError;

/// Options that both sides need.
#[derive(Debug, Clone)]
pub struct ShmOptions {
    pub calls: CallOptions,
}

impl ShmOptions {
    /// Makes options with the defaults of `CallOptions`.
    pub fn new(secret: HandshakeSecret) -> Self {
        Self { calls: CallOptions::new(secret) }
    }
}

/// Bounds on the worker's memory that one connection may keep from being used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinQuota {
    /// Parts of replies that are handed over and not released.
    pub pins_max: u32,
    /// Bytes of these parts. A piece of a cell keeps all of the cell.
    pub bytes_max: u64,
}

impl Default for PinQuota {
    /// Fits a gateway with some hundred bodies of a few MiB in flight on each of its connections.
    fn default() -> Self {
        Self { pins_max: 4096, bytes_max: 256 << 20 }
    }
}
