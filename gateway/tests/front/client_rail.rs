//! A rail over which no byte goes: clients' memory is a buffer of the test, which can hold up, refuse
//! and remember what is written to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use verbs3_rdma::client_memory::{
    ClientConnection, ClientEnd, ClientMemoryError, ClientMemoryRail, ClientPlace, OwnEnd, PortGid,
};

/// Where the clients' memory begins, for them and their devices.
pub const BASE: u64 = 0x7f00_0000_0000;

/// Longest read, and most of them ahead.
pub const PIECE_BYTES: u64 = 64 << 10;
/// Most bytes of a read that are taken at once.
pub const TAKEN_BYTES: usize = 24 << 10;
pub const READS_AHEAD: usize = 4;

#[derive(Default)]
pub struct TestRail {
    /// What is in the clients' memory.
    pub memory: Mutex<Vec<u8>>,
    /// Values that came behind the bytes.
    pub immediates: Mutex<Vec<u32>>,
    pub connected: Mutex<Vec<ClientEnd>>,
    /// Writers that are open.
    pub open: AtomicUsize,
    /// Writes wait for as long as this is set.
    pub holds_up: AtomicBool,
    /// The client's device refuses writes.
    pub refuses: AtomicBool,
    /// It refuses reads beyond so many bytes.
    pub readable: AtomicUsize,
    pub reads_posted: AtomicUsize,
    /// Where reads were posted, and by which key.
    pub read_places: Mutex<Vec<ClientPlace>>,
    /// A read panics.
    pub panics: AtomicBool,
    /// The client changes all of its memory behind each read.
    pub changes: AtomicBool,
    /// How long the end of a writer takes, in milliseconds.
    pub closing_ms: AtomicUsize,
    /// No rail is up.
    pub is_down: AtomicBool,
    /// It is up, and has no address of any client's kind.
    pub is_other: AtomicBool,
}

impl TestRail {
    pub fn with_memory(bytes: usize) -> Arc<Self> {
        let (memory, readable) = (Mutex::new(vec![0; bytes]), AtomicUsize::new(bytes));
        Arc::new(Self { memory, readable, ..Self::default() })
    }

    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

struct TestConnection {
    rail: Arc<TestRail>,
    pair_number: u32,
    /// Reads that are posted: where, and of how many bytes.
    posted: VecDeque<(usize, usize)>,
}

/// A rail, as the gateway has it.
pub struct SharedRail(pub Arc<TestRail>);

#[async_trait]
impl ClientMemoryRail for SharedRail {
    fn suits_client(&self, _: PortGid) -> Option<u8> {
        (!self.0.is_down.load(Ordering::SeqCst)).then_some(0)
    }

    async fn prepare_connection(
        &self,
        _: PortGid,
    ) -> Result<Box<dyn ClientConnection>, ClientMemoryError> {
        if self.0.is_other.load(Ordering::SeqCst) {
            return Err(ClientMemoryError::NoRail);
        }
        let pair_number = self.0.open.fetch_add(1, Ordering::SeqCst) as u32 + 0x11;
        Ok(Box::new(TestConnection { rail: self.0.clone(), pair_number, posted: VecDeque::new() }))
    }
}

#[async_trait]
impl ClientConnection for TestConnection {
    fn own_end(&self) -> OwnEnd {
        let gid = PortGid::from(std::net::IpAddr::from([10, 77, 0, 2]));
        OwnEnd { pair_number: self.pair_number, gid, first_packet: 0x00_0abc, port: 1 }
    }

    async fn connect_client(&mut self, client: ClientEnd) -> Result<(), ClientMemoryError> {
        self.rail.connected.lock().push(client);
        Ok(())
    }

    async fn write_bytes(
        &mut self,
        place: ClientPlace,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), ClientMemoryError> {
        while self.rail.holds_up.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if self.rail.refuses.load(Ordering::SeqCst) {
            return Err(ClientMemoryError::Refused(std::io::Error::other("the test wants it so")));
        }
        let at = usize::try_from(place.address - BASE).unwrap();
        self.rail.memory.lock()[at..at + bytes.len()].copy_from_slice(bytes);
        self.rail.immediates.lock().extend(immediate);
        Ok(())
    }

    fn post_read(&mut self, place: ClientPlace, bytes_max: u64) -> Result<u64, ClientMemoryError> {
        if self.posted.len() >= READS_AHEAD {
            return Ok(0);
        }
        let bytes = bytes_max.min(PIECE_BYTES);
        let at = usize::try_from(place.address - BASE).unwrap();
        self.posted.push_back((at, bytes as usize));
        self.rail.reads_posted.fetch_add(1, Ordering::SeqCst);
        self.rail.read_places.lock().push(place);
        Ok(bytes)
    }

    async fn take_read(&mut self) -> Result<Option<Bytes>, ClientMemoryError> {
        assert!(!self.rail.panics.load(Ordering::SeqCst), "the test wants it so");
        while self.rail.holds_up.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let Some((at, posted)) = self.posted.pop_front() else { return Ok(None) };
        let bytes = posted.min(TAKEN_BYTES);
        if bytes < posted {
            self.posted.push_front((at + bytes, posted - bytes));
        }
        if at + bytes > self.rail.readable.load(Ordering::SeqCst) {
            return Err(ClientMemoryError::Refused(std::io::Error::other("the test wants it so")));
        }
        let mut memory = self.rail.memory.lock();
        let read = Bytes::copy_from_slice(&memory[at..at + bytes]);
        if self.rail.changes.load(Ordering::SeqCst) {
            memory.fill(0xff);
        }
        Ok(Some(read))
    }

    async fn await_written(&mut self) -> Result<(), ClientMemoryError> {
        Ok(())
    }

    async fn await_loss(&self) {
        while !self.rail.is_down.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn close_connection(self: Box<Self>) {
        let closing_ms = self.rail.closing_ms.load(Ordering::SeqCst) as u64;
        tokio::time::sleep(Duration::from_millis(closing_ms)).await;
    }
}

impl Drop for TestConnection {
    fn drop(&mut self) {
        self.rail.open.fetch_sub(1, Ordering::SeqCst);
    }
}
