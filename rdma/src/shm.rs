//! Owns the shared-memory transport between a gateway and a worker on one host.
//! Calls go over a unix socket; replies are handed over in the worker's own memory. `inprocess`
//! reports kind `shm`, too, where it shares memory within one process; it has no socket.
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

use crate::settings::ShmSettings;

pub use client::ShmTransport;
pub use server::{ShmServer, ShmServerOptions};
pub use socket::ShmBindError;

/// Bounds on the worker's memory that one connection may keep from being used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinQuota {
    /// Parts of replies that are handed over and not released.
    pub pins_max: u32,
    /// Bytes of these parts. A piece of a cell keeps all of the cell.
    pub bytes_max: u64,
}

impl PinQuota {
    fn from_settings(settings: &ShmSettings) -> Self {
        Self { pins_max: settings.pins_max, bytes_max: settings.pinned_max.0 }
    }
}
