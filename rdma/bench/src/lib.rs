//! Owns the measurement of the ways between two hosts: how long one call takes, and how many bytes
//! many calls move, over each transport.
//!
//! `host` serves, `requester` finds the ways to it, `measure` times the calls. `plain_server` is
//! the reference that tcp is compared with. Uses the transports like any caller, without shortcuts.
//! The caller prints.
//!
//! Every reply is checked: the ends of each page always, all of it on request. Pages differ from
//! call to call, so that bytes of an earlier call in a landing do not pass.

mod checked_call;
mod host;
mod left_out;
mod measure;
mod message;
mod pattern_pages;
mod plain_server;
mod requester;
mod service;
mod transfer_cost;

pub use host::{BenchHost, HostOptions};
pub use left_out::{LeftOut, LeftOutCause};
pub use measure::{BandwidthResult, RoundTrips, TransferDirection, TransferLoad};
pub use message::ECHO_BYTES_MAX;
pub use requester::{ALL_RAILS, BenchRequester, DialOptions, MeasuredWay};
pub use transfer_cost::TransferCost;

use verbs3_rdma::transport::TransportError;

/// Reason why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(
        "{way} delivered wrong bytes at offset {at} of {bytes}: do not use it, and report this"
    )]
    Corrupt { way: String, at: u64, bytes: u64 },
    #[error("no room for another {bytes} bytes here; lower the depth or the size")]
    NoRoom { bytes: u64 },
    #[error("the host refused: {0}")]
    Refused(String),
    #[error("the host answered {0}; run the same release of verbs3 on both")]
    Malformed(String),
    #[error("can't {what}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

impl BenchError {
    fn io_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }
}

#[cfg(test)]
mod tests;
