//! Writes into memory of one client, or reads out of it, for one transfer: what is on its way, who
//! keeps the memory that it goes through, and the end of the queue pair.
//!
//! Chooses no rail, and does not know what the bytes are.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::gid_table::GidRow;
use super::queue_pair_wire::DRAIN_MAX;
use super::rail::OpenRail;
use super::readable_source::{ReadableSource, watch_readable};
use super::setup_runtime::{run_blocking_aside, spawn_blocking_aside};
use super::sys::{
    BEACON, CompletionQueue, GatherElement, NotifyEvent, NumberedEnds, NumberedQueuePair,
    PacketNumber, SGES_MAX, WorkCompletion, WorkOperation, WorkRequest,
};
use crate::arena::{Arena, CellReader, CellWriter};
use crate::client_memory::{
    ClientConnection, ClientEnd, ClientMemoryError, ClientPlace, OwnEnd, PortGid,
};
use crate::metrics::{GaugeGuard, rail_metrics};

/// Longest write or read, and its cell in the arena: that of an arena's usual page.
pub const CLIENT_PIECE_BYTES: usize = 256 << 10;
/// Writes of one client on their way at once; of reads, those that wait to be taken count, too.
/// With the length above: 2 MiB, the product of 100 Gb/s and 160 µs.
pub const CLIENT_PIECES: usize = 8;

/// Most bytes of a read that are taken at once. Who takes them has counted with pieces such as
/// those of a body over HTTP.
const TAKEN_BYTES_MAX: usize = 64 << 10;
/// Pause between two looks at the completions of a queue pair that ends.
const DRAIN_PAUSE: Duration = Duration::from_micros(50);
/// Completions that one look takes.
const POLL_MAX: usize = 16;

/// What a rail gives to a connection.
pub(super) struct ConnectionRail {
    pub(super) open: Arc<OpenRail>,
    pub(super) lost: CancellationToken,
    pub(super) row: GidRow,
    /// In bytes.
    pub(super) path_mtu: u16,
    pub(super) completions: Arc<CompletionQueue>,
    pub(super) pair: NumberedQueuePair,
    pub(super) first_packet: u32,
}

/// A connection over one queue pair.
pub(super) struct VerbsClientConnection {
    end: OwnEnd,
    gid_index: u8,
    path_mtu: u16,
    reads_max: u8,
    arena: Arena,
    completions: AsyncFd<ReadableSource<CompletionQueue>>,
    /// `None` once its end has begun, and while it is connected.
    pair: Option<EndingPair>,
    /// The queue pair, with what became of its connection, once the step that has it is through.
    connecting: Option<oneshot::Receiver<(EndingPair, io::Result<()>)>>,
    lost: CancellationToken,
    tasks: TaskTracker,
    /// Id of the last request.
    made: u64,
    /// Reads that are complete, in the order of their posts, and not taken whole yet.
    arrived: VecDeque<ArrivedPiece>,
    /// A request has failed: nothing is moved any more.
    has_failed: bool,
    _counted: GaugeGuard,
}

/// A queue pair, with all that must outlive it.
struct EndingPair {
    pair: NumberedQueuePair,
    completions: Arc<CompletionQueue>,
    /// Requests that are not known to be complete, in their order.
    posted: VecDeque<PostedRequest>,
    rail: Arc<OpenRail>,
}

/// A request that the device has.
struct PostedRequest {
    id: u64,
    memory: PostedMemory,
}

/// The memory that the device has until the request is complete.
enum PostedMemory {
    /// It reads this.
    Source { _piece: Bytes },
    /// It writes into this.
    Target(ReadPiece),
}

/// A cell for the bytes of one read. Nobody sees them before the read is complete.
struct ReadPiece {
    writer: CellWriter,
    reader: CellReader,
    bytes: usize,
}

impl ReadPiece {
    /// Shows the bytes. The read has to be complete.
    fn show_bytes(mut self) -> ArrivedPiece {
        self.writer.publish_bytes(self.bytes);
        ArrivedPiece { reader: self.reader, bytes: self.bytes, taken: 0 }
    }
}

/// The bytes of a read that is complete.
struct ArrivedPiece {
    reader: CellReader,
    bytes: usize,
    taken: usize,
}

impl ArrivedPiece {
    /// Returns a copy of the next bytes. A copy: whoever has them may keep them for longer than the
    /// transfer, and its cells are another's then.
    fn take_bytes(&mut self) -> Option<Bytes> {
        let end = self.bytes.min(self.taken + TAKEN_BYTES_MAX);
        let next = self.reader.pinned_bytes(self.taken..end)?;
        self.taken = end;
        Some(Bytes::copy_from_slice(&next))
    }
}

impl VerbsClientConnection {
    pub(super) fn new(made: ConnectionRail, arena: Arena, tasks: TaskTracker) -> io::Result<Self> {
        let ConnectionRail { open, lost, row, path_mtu, completions, pair, first_packet } = made;
        let end = OwnEnd {
            pair_number: pair.pair_number(),
            gid: row.gid,
            first_packet,
            port: open.rail.port,
        };
        let counted = GaugeGuard::add_to(&rail_metrics(&open.rail.metric_label()).queue_pairs, 1);
        Ok(Self {
            end,
            gid_index: row.index,
            path_mtu,
            reads_max: open.device.reads_max,
            arena,
            completions: watch_readable(completions.clone())?,
            pair: Some(EndingPair { pair, completions, posted: VecDeque::new(), rail: open }),
            connecting: None,
            lost,
            tasks,
            made: 0,
            arrived: VecDeque::new(),
            has_failed: false,
            _counted: counted,
        })
    }

    fn live_pair(&mut self) -> Result<&mut EndingPair, ClientMemoryError> {
        self.pair.as_mut().filter(|_| !self.has_failed).ok_or_else(no_pair)
    }

    /// Copies `bytes`, at most [`CLIENT_PIECE_BYTES`], and posts their write.
    fn post_piece(
        &mut self,
        place: ClientPlace,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), ClientMemoryError> {
        // Always a whole one: cells of one width leave no gaps.
        let cell = self.arena.allocate_cell(CLIENT_PIECE_BYTES);
        let (mut writer, reader) = cell.ok_or(ClientMemoryError::NoMemory)?.split_writer_reader();
        writer.spare_bytes()[..bytes.len()].copy_from_slice(bytes);
        writer.publish_bytes(bytes.len());
        let piece = reader.pinned_bytes(0..bytes.len()).ok_or(ClientMemoryError::NoMemory)?;
        let op = match immediate {
            None => WorkOperation::Write { address: place.address, key: place.key },
            Some(value) => {
                let ClientPlace { address, key } = place;
                WorkOperation::WriteWithImmediate { address, key, value }
            }
        };
        let (address, length) = (piece.as_ptr().addr(), piece.len());
        self.post_operation(op, address, length, PostedMemory::Source { _piece: piece })
    }

    /// Posts a request whose local side is `length` bytes at `address`, in `memory`.
    fn post_operation(
        &mut self,
        op: WorkOperation,
        address: usize,
        length: usize,
        memory: PostedMemory,
    ) -> Result<(), ClientMemoryError> {
        self.made += 1;
        let id = self.made;
        let live = self.live_pair()?;
        let region = live.rail.device.regions.region_of(address, length);
        let lkey = region.ok_or(ClientMemoryError::NoMemory)?.lkey;
        let mut sges = [GatherElement { address: 0, bytes: 0, lkey: 0 }; SGES_MAX];
        sges[0] = GatherElement { address: address as u64, bytes: length as u32, lkey };
        let work = WorkRequest { id, op, sges, sges_used: 1, signalled: true, inline: false };
        // First, so that a request that is half posted keeps its memory.
        live.posted.push_back(PostedRequest { id, memory });
        // SAFETY: a source is published, so nobody changes it; a target is a cell's spare range, and
        // nobody but `show_bytes` has it, behind the completion. `posted` keeps it until its
        // completion, or until `end_pair` knows that the device is done with it; else for ever.
        unsafe { live.pair.post_request(work) }.map_err(ClientMemoryError::Device)
    }

    /// Takes completions. Returns whether there was one.
    fn take_completions(&mut self) -> Result<bool, ClientMemoryError> {
        let taken = self.take_polled();
        if taken.is_err() {
            // What came before the failure is a part of nothing.
            self.arrived.clear();
            self.has_failed = true;
        }
        taken
    }

    fn take_polled(&mut self) -> Result<bool, ClientMemoryError> {
        let live = self.pair.as_mut().ok_or_else(no_pair)?;
        let mut polled = [WorkCompletion::NONE; POLL_MAX];
        let count = live.completions.poll(&mut polled).map_err(ClientMemoryError::Device)?;
        for completion in &polled[..count] {
            if let Err(status) = completion.status {
                let metrics = rail_metrics(&live.rail.rail.metric_label());
                metrics.errors[WorkCompletion::work_failure(status)].inc();
                let cause = io::Error::other(WorkCompletion::describe_status(status));
                return Err(ClientMemoryError::Refused(cause));
            }
            // Each request has a completion of its own, and they come in order. One that does not
            // leaves all memory to the device.
            let done = live.posted.pop_front_if(|next| next.id == completion.id);
            match done.map(|done| done.memory) {
                Some(PostedMemory::Source { .. }) => {}
                Some(PostedMemory::Target(piece)) => self.arrived.push_back(piece.show_bytes()),
                None => {
                    let cause = io::Error::other("a completion is out of its turn");
                    return Err(ClientMemoryError::Device(cause));
                }
            }
        }
        Ok(count > 0)
    }

    /// Waits for the step that connects, if there is one, and takes the queue pair back.
    async fn await_connected(&mut self) -> Result<(), ClientMemoryError> {
        let Some(connecting) = &mut self.connecting else { return Ok(()) };
        let ended = connecting.await;
        self.connecting = None;
        let (ending, connected) =
            ended.map_err(|lost| ClientMemoryError::Device(io::Error::other(lost)))?;
        self.pair = Some(ending);
        // The client has named the other end.
        connected.map_err(ClientMemoryError::Refused)
    }

    /// Waits until fewer than `posted_max` requests are on their way.
    async fn await_room(&mut self, posted_max: usize) -> Result<(), ClientMemoryError> {
        while self.live_pair()?.posted.len() >= posted_max {
            self.await_completion().await?;
        }
        Ok(())
    }

    /// Waits for a completion, and takes it.
    async fn await_completion(&mut self) -> Result<(), ClientMemoryError> {
        loop {
            if self.take_completions()? {
                return Ok(());
            }
            let queue = self.completions.get_ref().0.clone();
            queue.arm_notify(NotifyEvent::Completion).map_err(ClientMemoryError::Device)?;
            // What came before it was armed makes no event.
            if self.take_completions()? {
                return Ok(());
            }
            let mut ready = self.completions.readable().await.map_err(ClientMemoryError::Device)?;
            while queue.take_event() {}
            ready.clear_ready();
        }
    }
}

#[async_trait]
impl ClientConnection for VerbsClientConnection {
    fn own_end(&self) -> OwnEnd {
        self.end
    }

    async fn connect_client(&mut self, client: ClientEnd) -> Result<(), ClientMemoryError> {
        let ClientEnd { pair_number, gid: PortGid(peer_gid), first_packet, reads_max } = client;
        let ends = NumberedEnds {
            gid_index: self.gid_index,
            own_packet: PacketNumber(self.end.first_packet),
            peer_gid,
            peer_pair: pair_number,
            peer_packet: PacketNumber(first_packet),
            path_mtu: self.path_mtu,
            own_reads: reads_max.clamp(1, self.reads_max),
            // No RDMA READ comes; some devices refuse a depth of 0.
            peer_reads: 1,
        };
        self.live_pair()?;
        let ending = self.pair.take().ok_or_else(no_pair)?;
        // Aside: the kernel may look for the client's address for a second.
        let (done, connecting) = oneshot::channel();
        self.connecting = Some(connecting);
        spawn_blocking_aside(&self.tasks, move || {
            let connected = ending.pair.connect_ends(&ends);
            // Where nobody waits any more, the queue pair ends here; nothing is posted yet.
            let _ = done.send((ending, connected));
        });
        self.await_connected().await
    }

    async fn write_bytes(
        &mut self,
        place: ClientPlace,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), ClientMemoryError> {
        let pieces = bytes.len().div_ceil(CLIENT_PIECE_BYTES);
        for (at, piece) in bytes.chunks(CLIENT_PIECE_BYTES).enumerate() {
            self.await_room(CLIENT_PIECES).await?;
            // Where completions are always there, nothing else would let others run.
            tokio::task::consume_budget().await;
            let address = place.address.wrapping_add((at * CLIENT_PIECE_BYTES) as u64);
            let immediate = immediate.filter(|_| at + 1 == pieces);
            self.post_piece(ClientPlace { address, ..place }, piece, immediate)?;
        }
        Ok(())
    }

    fn post_read(&mut self, place: ClientPlace, bytes_max: u64) -> Result<u64, ClientMemoryError> {
        let (posted, arrived) = (self.live_pair()?.posted.len(), self.arrived.len());
        if bytes_max == 0 || posted + arrived >= CLIENT_PIECES {
            return Ok(0);
        }
        let bytes = usize::try_from(bytes_max)
            .map_or(CLIENT_PIECE_BYTES, |bytes| bytes.min(CLIENT_PIECE_BYTES));
        let cell = self.arena.allocate_cell(CLIENT_PIECE_BYTES);
        let (mut writer, reader) = cell.ok_or(ClientMemoryError::NoMemory)?.split_writer_reader();
        let address = writer.spare_bytes().as_mut_ptr().expose_provenance();
        let target = PostedMemory::Target(ReadPiece { writer, reader, bytes });
        let ClientPlace { address: peer_address, key } = place;
        let op = WorkOperation::Read { address: peer_address, key };
        self.post_operation(op, address, bytes, target)?;
        Ok(bytes as u64)
    }

    async fn take_read(&mut self) -> Result<Option<Bytes>, ClientMemoryError> {
        // Where completions are always there, nothing else would let others run.
        tokio::task::consume_budget().await;
        while self.arrived.is_empty() {
            if self.live_pair()?.posted.is_empty() {
                return Ok(None);
            }
            self.await_completion().await?;
        }
        let Some(oldest) = self.arrived.front_mut() else { return Ok(None) };
        let bytes = oldest.take_bytes().ok_or(ClientMemoryError::NoMemory)?;
        if oldest.taken == oldest.bytes {
            self.arrived.pop_front();
        }
        Ok(Some(bytes))
    }

    async fn await_written(&mut self) -> Result<(), ClientMemoryError> {
        self.await_room(1).await
    }

    async fn await_loss(&self) {
        self.lost.cancelled().await;
    }

    async fn close_connection(mut self: Box<Self>) {
        // A step that was given up still has the queue pair.
        let _ = self.await_connected().await;
        if let Some(ending) = self.pair.take() {
            let _ = run_blocking_aside(&self.tasks, move || ending.end_pair()).await;
        }
    }
}

impl Drop for VerbsClientConnection {
    fn drop(&mut self) {
        if let Some(ending) = self.pair.take() {
            spawn_blocking_aside(&self.tasks, move || ending.end_pair());
        }
    }
}

impl EndingPair {
    /// Ends the queue pair. Its memory is free again once the device is done with it.
    fn end_pair(self) {
        let Self { pair, completions, posted, rail } = self;
        let stopped = pair.stop_traffic();
        let is_silent = posted.is_empty() || rail.device.health.is_fatal();
        let is_drained = stopped.is_ok()
            && !is_silent
            && pair.post_beacon().is_ok()
            && drain_completions(&completions);
        let Err(error) = pair.destroy() else { return };
        let label = rail.rail.metric_label();
        if rail.device.domain.is_disassociated() {
            tracing::warn!(rail = label, "a queue pair to a client has ended with its device");
            return;
        }
        if is_memory_free(&posted, stopped.is_ok(), is_drained) {
            tracing::warn!(
                rail = label, %error,
                "a queue pair to a client stays with its device; it is stopped, so its memory is \
                used again"
            );
            return;
        }
        rail_metrics(&label).queue_pairs_surviving.inc();
        tracing::error!(
            rail = label, %error, ?stopped,
            "a queue pair to a client can't be destroyed, and its device may not be done with its \
            memory; that is not used again until this process is restarted"
        );
        std::mem::forget(posted);
    }
}

/// Says that there is no queue pair to use: its end has begun.
fn no_pair() -> ClientMemoryError {
    ClientMemoryError::Device(io::ErrorKind::NotConnected.into())
}

/// Returns whether the memory of requests may be used again, though their queue pair is still
/// there. A device that is stopped sends nothing, so sources are free. Targets are free only once all
/// requests are known to be complete.
fn is_memory_free(posted: &VecDeque<PostedRequest>, is_stopped: bool, is_drained: bool) -> bool {
    let is_source = |request: &PostedRequest| matches!(request.memory, PostedMemory::Source { .. });
    is_drained || (is_stopped && posted.iter().all(is_source))
}

/// Takes completions until the beacon's. Returns whether it has come: the device is done with all
/// requests before it.
fn drain_completions(completions: &CompletionQueue) -> bool {
    let until = Instant::now() + DRAIN_MAX;
    let mut polled = [WorkCompletion::NONE; POLL_MAX];
    while Instant::now() < until {
        match completions.poll(&mut polled) {
            Ok(0) => std::thread::sleep(DRAIN_PAUSE),
            Ok(count) if polled[..count].iter().any(|taken| taken.id == BEACON) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests;
