//! A proxy that makes a store on the same machine as slow as one that is far away: bandwidth, time
//! to the first byte, and connections, the same for whoever comes through. It counts bytes, so that
//! it knows what left the store.
//!
//! It passes TCP on and knows no HTTP: an answer begins where bytes come back after bytes have gone
//! out. Deliberately not here: faults.

mod bucket;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use bucket::Bucket;

/// Passed on at once, bytes; memory of a connection is twice this.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Debug, Clone)]
pub struct Shape {
    /// Of all connections together, in each direction, bytes a second.
    pub bandwidth: Option<u64>,
    /// Of each connection, in each direction.
    pub connection_bandwidth: Option<u64>,
    /// Between the end of a request and the first byte of its answer, on top of the store's own.
    pub first_byte: Duration,
    /// Further ones wait to be accepted.
    pub connections_max: usize,
}

#[derive(Debug, Default)]
struct Counters {
    from_store: AtomicU64,
    to_store: AtomicU64,
    answers: AtomicU64,
    connections: AtomicU64,
}

/// What has passed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Passed {
    /// Bytes of answers, heads included.
    pub from_store: u64,
    pub to_store: u64,
    pub answers: u64,
    /// Accepted so far.
    pub connections: u64,
}

pub struct Proxy {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    store: SocketAddr,
    shape: Shape,
    counters: Counters,
    began: Instant,
    down: Option<Mutex<Bucket>>,
    up: Option<Mutex<Bucket>>,
}

/// Reads the counters of a proxy that runs.
#[derive(Clone)]
pub struct Counts(Arc<Shared>);

impl Counts {
    pub fn passed(&self) -> Passed {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.0.counters;
        Passed {
            from_store: read(&counters.from_store),
            to_store: read(&counters.to_store),
            answers: read(&counters.answers),
            connections: read(&counters.connections),
        }
    }
}

impl Proxy {
    pub async fn bind(
        listen: SocketAddr,
        store: SocketAddr,
        shape: Shape,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let bucket = || shape.bandwidth.map(|bandwidth| Mutex::new(Bucket::new(bandwidth)));
        let (down, up) = (bucket(), bucket());
        let shared =
            Shared { store, shape, counters: Counters::default(), began: Instant::now(), down, up };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub fn counts(&self) -> Counts {
        Counts(self.shared.clone())
    }

    /// Until it is dropped, which ends its connections too.
    pub async fn run(self) {
        let connections = Arc::new(Semaphore::new(self.shared.shape.connections_max));
        let mut tasks = JoinSet::new();
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else { return };
            let client = match self.listener.accept().await {
                Ok((client, _)) => client,
                Err(error) => {
                    eprintln!("can't accept: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            while tasks.try_join_next().is_some() {}
            let shared = self.shared.clone();
            tasks.spawn(async move {
                let _permit = permit;
                shared.counters.connections.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = shared.pass(client).await {
                    // A store that is not there is seen by the client; who runs the proxy wants to
                    // know too.
                    eprintln!("connection to {}: {error}", shared.store);
                }
            });
        }
    }
}

impl Shared {
    async fn pass(&self, client: TcpStream) -> std::io::Result<()> {
        let store = TcpStream::connect(self.store).await?;
        client.set_nodelay(true)?;
        store.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_store, to_store) = store.into_split();
        // When the last byte of a request went out, in nanoseconds since the start; 0 once its
        // answer has begun.
        let asked = AtomicU64::new(0);
        let (up, down) = tokio::join!(
            self.requests(from_client, to_store, &asked),
            self.answers(from_store, to_client, &asked)
        );
        // Either side may close or reset whenever it likes: that is passed on, and no fault of the
        // proxy.
        let _ = (up, down);
        Ok(())
    }

    async fn requests(
        &self,
        mut from: tcp::OwnedReadHalf,
        mut to: tcp::OwnedWriteHalf,
        asked: &AtomicU64,
    ) -> std::io::Result<()> {
        let (mut piece, mut own) =
            (vec![0; PIECE_BYTES], self.shape.connection_bandwidth.map(Bucket::new));
        loop {
            let read = from.read(&mut piece).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            self.wait(read, own.as_mut(), self.up.as_ref()).await;
            // Before it is written: the answer may be there at once.
            asked.store(self.began.elapsed().as_nanos() as u64 | 1, Ordering::Release);
            to.write_all(&piece[..read]).await?;
            self.counters.to_store.fetch_add(read as u64, Ordering::Relaxed);
        }
    }

    async fn answers(
        &self,
        mut from: tcp::OwnedReadHalf,
        mut to: tcp::OwnedWriteHalf,
        asked: &AtomicU64,
    ) -> std::io::Result<()> {
        let (mut piece, mut own) =
            (vec![0; PIECE_BYTES], self.shape.connection_bandwidth.map(Bucket::new));
        loop {
            let read = from.read(&mut piece).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            self.counters.from_store.fetch_add(read as u64, Ordering::Relaxed);
            let since = asked.swap(0, Ordering::Acquire);
            if since != 0 {
                self.counters.answers.fetch_add(1, Ordering::Relaxed);
                // On top of the store's own time, which is over now.
                tokio::time::sleep(self.shape.first_byte).await;
            }
            self.wait(read, own.as_mut(), self.down.as_ref()).await;
            to.write_all(&piece[..read]).await?;
        }
    }

    /// Until `bytes` may pass.
    async fn wait(&self, bytes: usize, own: Option<&mut Bucket>, all: Option<&Mutex<Bucket>>) {
        let now = self.began.elapsed();
        let mut until = now;
        if let Some(own) = own {
            until = until.max(own.take(now, bytes as u64));
        }
        if let Some(mut all) = all.and_then(|all| all.lock().ok()) {
            until = until.max(all.take(now, bytes as u64));
        }
        // Timers are a millisecond coarse; the buckets' burst makes up for what is slept too long.
        if until > now + Duration::from_micros(500) {
            tokio::time::sleep(until - now).await;
        }
    }
}

/// Answers every request on `listener` with the counters, as JSON.
pub async fn serve_counts(listener: TcpListener, counts: Counts) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 2048];
        let _ = stream.read(&mut request).await;
        let body = serde_json::to_string(&counts.passed()).unwrap_or_default();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \
            {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
}
