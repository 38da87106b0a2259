//! What a client is made with, and what can go wrong.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use verbs3_lending_protocol::LendingRefusal;

use crate::memory_pinner::MemoryPinner;

/// What a client is made with.
#[derive(Clone)]
pub struct LendingClientOptions {
    /// The gateway's socket, by the path that the gateway was configured with.
    pub socket: PathBuf,
    pub access_key: String,
    pub secret_key: String,
    pub region: String,
    /// Memory that is lent: bodies that are in use, and some 16 KiB for each read in flight.
    pub memory_bytes: u64,
    /// Most reads in flight. A power of two.
    pub reads_max: u32,
    /// Most answers that lie in pages of a worker at once. A file is open for each connection between
    /// gateway and worker, not for each answer.
    pub page_loans: u32,
    /// How long a gateway that is gone is waited for.
    pub reconnect_for: Duration,
    /// How long the next answer is waited for, and each message of a handshake.
    pub read_for: Duration,
    /// How long a thread looks for an answer before it sleeps, where the last answers came as fast.
    pub poll_for: Duration,
    /// Pins the memory for a device.
    pub pinner: Option<Arc<dyn MemoryPinner>>,
}

/// Without the secret.
impl fmt::Debug for LendingClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LendingClientOptions")
            .field("socket", &self.socket)
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// Why a request has no answer. An S3 error is an answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientLendingError {
    #[error("no gateway answers at {path}; is one running, with gateway.lending.socket set to it?")]
    Unavailable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the gateway at {path} takes no memory of this process: {refusal}")]
    Refused { path: PathBuf, refusal: LendingRefusal },
    #[error("memory of {bytes} bytes can't be made to be lent")]
    Memory {
        bytes: u64,
        #[source]
        source: io::Error,
    },
    #[error("memory of {bytes} bytes can't be pinned: {source}")]
    Pinning {
        bytes: u64,
        #[source]
        source: io::Error,
    },
    #[error(
        "{wanted} bytes have no place in the lent memory; release answers that are read, or lend \
        more"
    )]
    MemoryFull { wanted: u64 },
    #[error("the request, or the head of its answer, is too long to go this way")]
    TooLong,
    #[error("the gateway could not finish the request")]
    Failed,
    #[error("the body of the write is shorter than was announced")]
    Incomplete,
    #[error("this gateway takes no writes from lent memory; it is older than this client")]
    Unsupported,
    #[error("the gateway did not answer in time")]
    TimedOut,
    #[error("the connection to the gateway has ended")]
    Disconnected,
    #[error("the answer landed in the process that this one was forked from; read it again here")]
    OtherProcess,
}
