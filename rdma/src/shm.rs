//! Gateway and worker on one host: calls over a unix socket, replies handed over in the worker's
//! own memory.
//!
//! Owns the options. `pass` hands the worker's arena to a requester that has proved the secret;
//! `view` is that arena as the requester sees it, read-only; `pins` is what the worker keeps for
//! it, `releases` how the requester gives it back. `owner` and `borrower` are the two sides of the
//! stream. What is said over it is `calls`'.
//!
//! A pin ends when the requester releases it, or when the requester has unmapped the arena, which
//! the kernel reports by the lifeline (`pass`), also for a process that was killed. Never by time,
//! and never because the worker wants it.

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

/// What both sides need.
#[derive(Debug, Clone)]
pub struct ShmOptions {
    pub calls: CallOptions,
}

impl ShmOptions {
    /// Options with the defaults of `CallOptions`.
    pub fn new(secret: HandshakeSecret) -> Self {
        Self { calls: CallOptions::new(secret) }
    }
}

/// How much of the worker's memory one connection may keep from being used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinQuota {
    /// Parts of replies that are handed over and not released.
    pub pins_max: u32,
    /// Bytes of these parts. A piece of a cell keeps all of the cell.
    pub bytes_max: u64,
}

impl Default for PinQuota {
    /// A gateway with some hundred bodies of a few MiB under way on each of its connections.
    fn default() -> Self {
        Self { pins_max: 4096, bytes_max: 256 << 20 }
    }
}
