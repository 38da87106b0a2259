//! Reasons why an exchange failed. Owns the kinds by which errors are counted.

use std::io;

use thiserror::Error;

/// Reason why an exchange failed.
#[derive(Debug, Error)]
pub enum BenchExchangeError {
    #[error("can't connect: {0}")]
    Connect(#[source] io::Error),
    #[error("no answer within the time allowed (load.timeout)")]
    Timeout,
    #[error("the server closed the connection after {got} bytes of the answer")]
    Closed { got: u64 },
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    #[error("the answer is not HTTP that is understood: {0}")]
    Malformed(&'static str),
    #[error("status {status}: {body}")]
    Status { status: u16, body: String },
    #[error("the body has {got} bytes, {wanted} were asked for")]
    Length { got: u64, wanted: u64 },
    #[error("content-range is {got:?}, {wanted:?} was asked for")]
    Range { got: String, wanted: String },
    #[error("wrong bytes: {0}")]
    Bytes(String),
    #[error("the request can't be made: {0}")]
    Request(String),
}

impl BenchExchangeError {
    /// Returns the kind that it is counted as.
    pub fn kind_label(&self) -> String {
        match self {
            Self::Connect(_) => "connect".into(),
            Self::Timeout => "timeout".into(),
            Self::Closed { .. } => "closed".into(),
            Self::Broken(_) => "broken".into(),
            Self::Malformed(_) => "malformed".into(),
            Self::Status { status, .. } => format!("status {status}"),
            Self::Length { .. } => "length".into(),
            Self::Range { .. } => "range".into(),
            Self::Bytes(_) => "wrong bytes".into(),
            Self::Request(_) => "request".into(),
        }
    }

    /// Returns whether the server sent something else than the object: the worst error.
    pub fn is_wrong_answer(&self) -> bool {
        matches!(self, Self::Length { .. } | Self::Range { .. } | Self::Bytes(_))
    }

    /// Converts an I/O error in the middle of an exchange.
    pub fn from_io_error(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Broken(error),
        }
    }
}
