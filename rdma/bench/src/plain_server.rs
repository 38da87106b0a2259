//! Owns the reference for tcp: some plain streams without a protocol, each written and read by its
//! own thread.
//!
//! Pages come from the same memory as those of the calls, and land in as much of it. So caches help
//! both equally.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::pattern_pages::PatternPages;

/// Most streams at once.
const STREAMS_MAX: usize = 64;

/// Longest wait of a thread before it checks for the end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Length of the opening: the word, then the length of a write; both u64.
const OPENING_BYTES: usize = 16;

/// A server that listens in a thread, and writes in one thread for each stream, until dropped.
pub(super) struct PlainServer {
    pub(super) port: u16,
    shared: Arc<PlainServerState>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

struct PlainServerState {
    word: u64,
    source: Arc<PatternPages>,
    over: AtomicBool,
    streams: AtomicUsize,
}

impl PlainServer {
    pub(super) fn bind(
        address: SocketAddr,
        word: u64,
        source: Arc<PatternPages>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::new(address.ip(), 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(PlainServerState {
            word,
            source,
            over: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
        });
        let accepts = shared.clone();
        let accepting = std::thread::Builder::new()
            .name("plain-accept".into())
            // Ends by `over`, which `drop` sets before it knocks.
            .spawn(move || accept_streams(&listener, &accepts))?;
        Ok(Self { port, shared, accepting: Some(accepting) })
    }
}

impl Drop for PlainServer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        let _ =
            TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], self.port)), PATIENCE);
        // A listener on one address of a device does not hear the knock. Its thread ends with the
        // process.
        if let Some(accepting) = self.accepting.take().filter(std::thread::JoinHandle::is_finished)
        {
            let _ = accepting.join();
        }
    }
}

fn accept_streams(listener: &TcpListener, shared: &Arc<PlainServerState>) {
    for stream in listener.incoming() {
        if shared.over.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            std::thread::sleep(PATIENCE);
            continue;
        };
        if shared.streams.fetch_add(1, Ordering::AcqRel) >= STREAMS_MAX {
            shared.streams.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let shared = shared.clone();
        // Ends with its stream, or by `over`.
        std::thread::spawn(move || {
            // The reader closes when it has enough, which is the usual end.
            let _ = serve_stream(stream, &shared);
            shared.streams.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

fn serve_stream(mut stream: TcpStream, shared: &PlainServerState) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut opening = [0; OPENING_BYTES];
    stream.read_exact(&mut opening)?;
    let (word, bytes) = opening.split_at(8);
    if word != shared.word.to_le_bytes() {
        return Ok(());
    }
    let bytes = bytes.try_into().map_or(0, u64::from_le_bytes);
    let page_bytes = shared.source.page_bytes() as u64;
    let mut from = 0;
    while !shared.over.load(Ordering::Acquire) {
        for piece in shared.source.slice_pages(from, bytes.clamp(1, page_bytes)) {
            write_patiently(&mut stream, &piece, shared)?;
        }
        from = from.wrapping_add(1);
    }
    Ok(())
}

fn write_patiently(
    stream: &mut TcpStream,
    mut bytes: &[u8],
    shared: &PlainServerState,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if shared.over.load(Ordering::Acquire) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A load for a reader of plain streams.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlainLoad {
    pub(super) address: SocketAddr,
    pub(super) word: u64,
    pub(super) streams: usize,
    /// Length of a write and of a read, in bytes.
    pub(super) bytes: u64,
    /// Memory of each stream, which its bytes fill over and over.
    pub(super) memory_bytes: u64,
    pub(super) time: Duration,
}

/// Reads for the load's time. Returns the bytes, and how long it took.
pub(super) fn read(load: &PlainLoad) -> io::Result<(u64, Duration)> {
    let streams: Vec<_> =
        (0..load.streams).map(|_| open_stream(load)).collect::<io::Result<_>>()?;
    // Touch the memory before the clock starts.
    let memory_bytes = usize::try_from(load.memory_bytes.max(load.bytes)).unwrap_or(usize::MAX);
    let memories: Vec<_> = streams.iter().map(|_| vec![1; memory_bytes]).collect();
    let began = Instant::now();
    let counts = std::thread::scope(|scope| {
        let read = |(stream, memory)| scope.spawn(move || read_stream(stream, memory, load, began));
        let readers: Vec<_> = streams.into_iter().zip(memories).map(read).collect();
        let joined = |reader: std::thread::ScopedJoinHandle<'_, io::Result<u64>>| {
            reader.join().unwrap_or_else(|_| Err(io::Error::other("a reader panicked")))
        };
        readers.into_iter().map(joined).sum::<io::Result<u64>>()
    })?;
    Ok((counts, began.elapsed()))
}

fn open_stream(load: &PlainLoad) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&load.address, Duration::from_secs(5))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut opening = load.word.to_le_bytes().to_vec();
    opening.extend_from_slice(&load.bytes.to_le_bytes());
    stream.write_all(&opening)?;
    Ok(stream)
}

fn read_stream(
    mut stream: TcpStream,
    mut memory: Vec<u8>,
    load: &PlainLoad,
    began: Instant,
) -> io::Result<u64> {
    let step = usize::try_from(load.bytes).unwrap_or(usize::MAX);
    let (mut count, mut at) = (0, 0);
    while began.elapsed() < load.time {
        if at + step > memory.len() {
            at = 0;
        }
        match stream.read(&mut memory[at..at + step])? {
            0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the host closed a plain stream",
                ));
            }
            bytes => {
                count += bytes as u64;
                at += bytes;
            }
        }
    }
    Ok(count)
}
