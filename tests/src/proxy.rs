//! A proxy between verbs3 and its store that fails on purpose: by rules that a test lays down, or
//! at random from a seed.
//!
//! Speaks HTTP/1.1 on both sides and changes nothing unless a fault says so: `Host` and signature
//! stay the client's, so any S3 store can stand behind it. Judges nothing. Bandwidth and latency
//! for measuring are loadtest's proxy.

mod body;
mod faults;
mod serve;

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use faults::{Fault, Faults, Op};

/// A running proxy. Its connections end when it is dropped.
pub struct Proxy {
    pub address: SocketAddr,
    pub faults: Faults,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port, in front of the store at `upstream` (`http://HOST:PORT`, or the
    /// address alone).
    pub async fn start(upstream: &str) -> anyhow::Result<Self> {
        let upstream = upstream.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, faults) = (listener.local_addr()?, Faults::default());
        let task = tokio::spawn(serve::serve(listener, upstream, faults.clone()));
        Ok(Self { address, faults, task })
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
