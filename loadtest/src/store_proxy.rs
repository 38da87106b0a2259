//! A proxy that makes a store on the same machine as slow as a distant one: bandwidth, time to the
//! first byte, and connections. The bounds hold for all clients together. It counts bytes, so that
//! the store's traffic is known.
//!
//! It relays TCP and knows no HTTP: an answer begins when bytes come back after bytes have gone
//! out. Does not inject faults.

#[cfg(test)]
mod tests;
mod token_bucket;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use token_bucket::ProxyTokenBucket;

/// Bytes that are passed on at once; a connection takes twice this memory.
const PIECE_BYTES: usize = 64 << 10;

/// How slow the proxy makes its store.
#[derive(Debug, Clone)]
pub struct StoreProxyShape {
    /// Bytes a second in each direction, over all connections.
    pub bandwidth: Option<u64>,
    /// Bytes a second in each direction, for each connection.
    pub connection_bandwidth: Option<u64>,
    /// Time between the end of a request and the first byte of its answer, added to the store's
    /// own.
    pub first_byte: Duration,
    /// Most connections; further ones wait to be accepted.
    pub connections_max: usize,
}

#[derive(Debug, Default)]
struct StoreProxyCounters {
    from_store: AtomicU64,
    to_store: AtomicU64,
    answers: AtomicU64,
    connections: AtomicU64,
    full: AtomicU64,
}

/// Totals of what has passed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StoreProxyTotals {
    /// Bytes of answers, heads included.
    pub from_store: u64,
    pub to_store: u64,
    pub answers: u64,
    /// Connections accepted so far.
    pub connections: u64,
    /// Times that as many were open as may be, so that the next client waited.
    pub full: u64,
}

/// Listening proxy that passes connections on while it runs.
pub struct StoreProxyServer {
    listener: TcpListener,
    shared: Arc<StoreProxyInner>,
}

struct StoreProxyInner {
    store: SocketAddr,
    shape: StoreProxyShape,
    counters: StoreProxyCounters,
    began: Instant,
    down: Option<Mutex<ProxyTokenBucket>>,
    up: Option<Mutex<ProxyTokenBucket>>,
}

/// Reads the counters of a running proxy.
#[derive(Clone)]
pub struct StoreProxyMeter(Arc<StoreProxyInner>);

impl StoreProxyMeter {
    /// Returns the totals at this moment. The counters are read one after the other.
    pub fn read_totals(&self) -> StoreProxyTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.0.counters;
        StoreProxyTotals {
            from_store: read(&counters.from_store),
            to_store: read(&counters.to_store),
            answers: read(&counters.answers),
            connections: read(&counters.connections),
            full: read(&counters.full),
        }
    }
}

impl StoreProxyServer {
    /// Listens on `listen` (port 0 takes a free one) and passes on to `store`. Accepts nothing
    /// before `run`.
    pub async fn bind(
        listen: SocketAddr,
        store: SocketAddr,
        shape: StoreProxyShape,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let bucket =
            || shape.bandwidth.map(|bandwidth| Mutex::new(ProxyTokenBucket::new(bandwidth)));
        let (down, up) = (bucket(), bucket());
        let shared = StoreProxyInner {
            store,
            shape,
            counters: StoreProxyCounters::default(),
            began: Instant::now(),
            down,
            up,
        };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// Returns the address that clients connect to.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a handle on the counters, which outlives the proxy.
    pub fn proxy_meter(&self) -> StoreProxyMeter {
        StoreProxyMeter(self.shared.clone())
    }

    /// Runs until it is dropped, which also ends its connections.
    pub async fn run(self) {
        let connections = Arc::new(Semaphore::new(self.shared.shape.connections_max));
        let mut tasks = JoinSet::new();
        loop {
            if connections.available_permits() == 0 {
                self.shared.note_full();
            }
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
                if let Err(error) = shared.pass_connection(client).await {
                    // The client sees that the store is absent; the proxy's operator should see it,
                    // too.
                    eprintln!("connection to {}: {error}", shared.store);
                }
            });
        }
    }
}

impl StoreProxyInner {
    /// Counts that clients wait because of the bound on connections, and says so once.
    fn note_full(&self) {
        if self.counters.full.fetch_add(1, Ordering::Relaxed) == 0 {
            eprintln!(
                "{} connections are open, as many as may be: further clients wait, and figures show \
                that; --connections-max raises it",
                self.shape.connections_max
            );
        }
    }

    async fn pass_connection(&self, client: TcpStream) -> std::io::Result<()> {
        let store = TcpStream::connect(self.store).await?;
        client.set_nodelay(true)?;
        store.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_store, to_store) = store.into_split();
        // When the last byte of a request went out, in nanoseconds since the start; 0 once its
        // answer has begun.
        let asked = AtomicU64::new(0);
        let (up, down) = tokio::join!(
            self.forward_requests(from_client, to_store, &asked),
            self.forward_answers(from_store, to_client, &asked)
        );
        // Either side may close or reset at any time. The proxy passes that on; it is no fault of
        // its own.
        let _ = (up, down);
        Ok(())
    }

    async fn forward_requests(
        &self,
        mut from: tcp::OwnedReadHalf,
        mut to: tcp::OwnedWriteHalf,
        asked: &AtomicU64,
    ) -> std::io::Result<()> {
        let (mut piece, mut own) =
            (vec![0; PIECE_BYTES], self.shape.connection_bandwidth.map(ProxyTokenBucket::new));
        loop {
            let read = from.read(&mut piece).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            self.wait_for_tokens(read, own.as_mut(), self.up.as_ref()).await;
            // Stored before the write, because the answer may come at once.
            asked.store(self.began.elapsed().as_nanos() as u64 | 1, Ordering::Release);
            to.write_all(&piece[..read]).await?;
            self.counters.to_store.fetch_add(read as u64, Ordering::Relaxed);
        }
    }

    async fn forward_answers(
        &self,
        mut from: tcp::OwnedReadHalf,
        mut to: tcp::OwnedWriteHalf,
        asked: &AtomicU64,
    ) -> std::io::Result<()> {
        let (mut piece, mut own) =
            (vec![0; PIECE_BYTES], self.shape.connection_bandwidth.map(ProxyTokenBucket::new));
        loop {
            let read = from.read(&mut piece).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            self.counters.from_store.fetch_add(read as u64, Ordering::Relaxed);
            let since = asked.swap(0, Ordering::Acquire);
            if since != 0 {
                self.counters.answers.fetch_add(1, Ordering::Relaxed);
                // This is added to the store's own time, which is over now.
                tokio::time::sleep(self.shape.first_byte).await;
            }
            self.wait_for_tokens(read, own.as_mut(), self.down.as_ref()).await;
            to.write_all(&piece[..read]).await?;
        }
    }

    /// Waits until `bytes` may pass.
    async fn wait_for_tokens(
        &self,
        bytes: usize,
        own: Option<&mut ProxyTokenBucket>,
        all: Option<&Mutex<ProxyTokenBucket>>,
    ) {
        let now = self.began.elapsed();
        let mut until = now;
        if let Some(own) = own {
            until = until.max(own.reserve_bytes(now, bytes as u64));
        }
        if let Some(mut all) = all.and_then(|all| all.lock().ok()) {
            until = until.max(all.reserve_bytes(now, bytes as u64));
        }
        // Timers are a millisecond coarse; the buckets' burst makes up for sleeping too long.
        if until > now + Duration::from_micros(500) {
            tokio::time::sleep(until - now).await;
        }
    }
}

/// Answers every request on `listener` with the counters, as JSON.
pub async fn serve_counts(listener: TcpListener, counts: StoreProxyMeter) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 2048];
        let _ = stream.read(&mut request).await;
        let body = serde_json::to_string(&counts.read_totals()).unwrap_or_default();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \
            {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
}
