//! A relay of TCP between a gateway and a worker that keeps what the gateway said, and can spoil
//! what the worker says. Knows nothing of the protocol.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A running relay. Its connections end when it is dropped.
pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// What the requester has sent, by connection, up to [`KEPT_MAX`].
    said: Mutex<Vec<Vec<u8>>>,
    /// One byte of so many that the worker sends is flipped; 0: none.
    spoil_every: AtomicU64,
    spoiled: AtomicU64,
}

/// Of each connection: some dozens of messages.
const KEPT_MAX: usize = 64 << 10;

impl Relay {
    pub async fn start(worker: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, shared) = (listener.local_addr()?, Arc::new(Shared::default()));
        let task = tokio::spawn(serve(listener, worker, shared.clone()));
        Ok(Self { address, shared, task })
    }

    /// What requesters have said so far, one entry for each connection.
    pub fn said(&self) -> Vec<Vec<u8>> {
        self.shared.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on one byte in so many of the worker's is flipped; 0 ends it.
    pub fn spoil(&self, every: u64) {
        self.shared.spoil_every.store(every, Ordering::Relaxed);
    }

    pub fn spoiled(&self) -> u64 {
        self.shared.spoiled.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, worker: SocketAddr, shared: Arc<Shared>) {
    let mut pumps = JoinSet::new();
    loop {
        let Ok((requester, _)) = listener.accept().await else { continue };
        let Ok(to) = TcpStream::connect(worker).await else { continue };
        let index = {
            let mut said = shared.said.lock().unwrap_or_else(PoisonError::into_inner);
            said.push(Vec::new());
            said.len() - 1
        };
        let ((from_requester, to_requester), (from_worker, to_worker)) =
            (requester.into_split(), to.into_split());
        pumps.spawn(keep(from_requester, to_worker, index, shared.clone()));
        pumps.spawn(spoil(from_worker, to_requester, shared.clone()));
        while pumps.try_join_next().is_some() {}
    }
}

async fn keep(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, index: usize, shared: Arc<Shared>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        {
            let mut said = shared.said.lock().unwrap_or_else(PoisonError::into_inner);
            let room = KEPT_MAX.saturating_sub(said[index].len()).min(length);
            said[index].extend_from_slice(&buffer[..room]);
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn spoil(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: Arc<Shared>) {
    let (mut buffer, mut passed) = (vec![0; 64 << 10], 0);
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let every = shared.spoil_every.load(Ordering::Relaxed);
        passed += length as u64;
        if every != 0 && passed >= every {
            passed = 0;
            buffer[length / 2] ^= 0x10;
            shared.spoiled.fetch_add(1, Ordering::Relaxed);
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
