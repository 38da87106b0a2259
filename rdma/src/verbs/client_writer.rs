//! Writes into memory of one client, for one transfer: what is on its way, who keeps the memory
//! that it goes out of, and the end of the queue pair.
//!
//! Chooses no rail, and does not know what the bytes are.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::unix::AsyncFd;
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
use crate::arena::Arena;
use crate::client_memory::{
    ClientEnd, ClientMemoryError, ClientMemoryWriter, ClientPlace, PortGid, WriterEnd,
};
use crate::metrics::{GaugeGuard, rail_metrics};

/// Longest write, and its cell in the arena: that of an arena's usual page.
pub const CLIENT_PIECE_BYTES: usize = 256 << 10;
/// Writes of one client on their way at once. With the length above: 2 MiB, the product of 100 Gb/s
/// and 160 µs.
pub const CLIENT_PIECES: usize = 8;

/// Pause between two looks at the completions of a queue pair that ends.
const DRAIN_PAUSE: Duration = Duration::from_micros(50);
/// Completions that one look takes.
const POLL_MAX: usize = 16;

/// What a rail gives to a writer.
pub(super) struct WriterRail {
    pub(super) open: Arc<OpenRail>,
    pub(super) lost: CancellationToken,
    pub(super) row: GidRow,
    /// In bytes.
    pub(super) path_mtu: u16,
    pub(super) completions: Arc<CompletionQueue>,
    pub(super) pair: NumberedQueuePair,
    pub(super) first_packet: u32,
}

/// A writer over one queue pair.
pub(super) struct VerbsClientWriter {
    end: WriterEnd,
    gid_index: u8,
    path_mtu: u16,
    arena: Arena,
    completions: AsyncFd<ReadableSource<CompletionQueue>>,
    /// `None` once its end has begun.
    pair: Option<EndingPair>,
    lost: CancellationToken,
    tasks: TaskTracker,
    /// Id of the last request.
    made: u64,
    _counted: GaugeGuard,
}

/// A queue pair, with all that must outlive it.
struct EndingPair {
    pair: NumberedQueuePair,
    completions: Arc<CompletionQueue>,
    /// Requests that are not known to be complete, and the memory that they read.
    posted: VecDeque<(u64, Bytes)>,
    rail: Arc<OpenRail>,
}

impl VerbsClientWriter {
    pub(super) fn new(made: WriterRail, arena: Arena, tasks: TaskTracker) -> io::Result<Self> {
        let WriterRail { open, lost, row, path_mtu, completions, pair, first_packet } = made;
        let end = WriterEnd {
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
            arena,
            completions: watch_readable(completions.clone())?,
            pair: Some(EndingPair { pair, completions, posted: VecDeque::new(), rail: open }),
            lost,
            tasks,
            made: 0,
            _counted: counted,
        })
    }

    fn live_pair(&mut self) -> Result<&mut EndingPair, ClientMemoryError> {
        let ended = || ClientMemoryError::Device(io::ErrorKind::NotConnected.into());
        self.pair.as_mut().ok_or_else(ended)
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
        self.made += 1;
        let id = self.made;
        let live = self.live_pair()?;
        let (address, length) = (piece.as_ptr().addr(), piece.len());
        let region = live.rail.device.regions.region_of(address, length);
        let lkey = region.ok_or(ClientMemoryError::NoMemory)?.lkey;
        let mut sges = [GatherElement { address: 0, bytes: 0, lkey: 0 }; SGES_MAX];
        sges[0] = GatherElement { address: address as u64, bytes: length as u32, lkey };
        let ClientPlace { address, key } = place;
        let op = match immediate {
            None => WorkOperation::Write { address, key },
            Some(value) => WorkOperation::WriteWithImmediate { address, key, value },
        };
        let work = WorkRequest { id, op, sges, sges_used: 1, signalled: true, inline: false };
        // First, so that a request that is half posted keeps its memory.
        live.posted.push_back((id, piece));
        // SAFETY: the piece is published, so nobody changes it. `posted` keeps it until its
        // completion, or until `end_pair` has destroyed the queue pair; where that fails, for ever.
        unsafe { live.pair.post_write(work) }.map_err(ClientMemoryError::Device)
    }

    /// Takes completions. Returns whether there was one.
    fn take_completions(&mut self) -> Result<bool, ClientMemoryError> {
        let live = self.live_pair()?;
        let mut polled = [WorkCompletion::NONE; POLL_MAX];
        let count = live.completions.poll(&mut polled).map_err(ClientMemoryError::Device)?;
        for completion in &polled[..count] {
            if let Err(status) = completion.status {
                let metrics = rail_metrics(&live.rail.rail.metric_label());
                metrics.errors[WorkCompletion::work_failure(status)].inc();
                let cause = io::Error::other(WorkCompletion::describe_status(status));
                return Err(ClientMemoryError::Refused(cause));
            }
            while live.posted.front().is_some_and(|(id, _)| *id <= completion.id) {
                live.posted.pop_front();
            }
        }
        Ok(count > 0)
    }

    /// Waits until fewer than `posted_max` requests are on their way.
    async fn await_room(&mut self, posted_max: usize) -> Result<(), ClientMemoryError> {
        while self.live_pair()?.posted.len() >= posted_max {
            if self.take_completions()? {
                continue;
            }
            let queue = self.completions.get_ref().0.clone();
            queue.arm_notify(NotifyEvent::Completion).map_err(ClientMemoryError::Device)?;
            // What came before it was armed makes no event.
            if self.take_completions()? {
                continue;
            }
            let mut ready = self.completions.readable().await.map_err(ClientMemoryError::Device)?;
            while queue.take_event() {}
            ready.clear_ready();
        }
        Ok(())
    }
}

#[async_trait]
impl ClientMemoryWriter for VerbsClientWriter {
    fn writer_end(&self) -> WriterEnd {
        self.end
    }

    async fn connect_client(&mut self, client: ClientEnd) -> Result<(), ClientMemoryError> {
        let ClientEnd { pair_number, gid: PortGid(peer_gid), first_packet } = client;
        let ends = NumberedEnds {
            gid_index: self.gid_index,
            own_packet: PacketNumber(self.end.first_packet),
            peer_gid,
            peer_pair: pair_number,
            peer_packet: PacketNumber(first_packet),
            path_mtu: self.path_mtu,
        };
        // Aside: the kernel may look for the client's address for a second. Where this future is
        // dropped meanwhile, the queue pair ends with its last holder; nothing is posted yet.
        self.live_pair()?;
        let Some(ending) = self.pair.take() else { return Ok(()) };
        let connecting = run_blocking_aside(&self.tasks, move || {
            let connected = ending.pair.connect_ends(&ends);
            (ending, connected)
        });
        let (ending, connected) = connecting.await.map_err(ClientMemoryError::Device)?;
        self.pair = Some(ending);
        // The client has named the other end.
        connected.map_err(ClientMemoryError::Refused)
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

    async fn await_written(&mut self) -> Result<(), ClientMemoryError> {
        self.await_room(1).await
    }

    async fn await_loss(&self) {
        self.lost.cancelled().await;
    }

    async fn close_writer(mut self: Box<Self>) {
        if let Some(ending) = self.pair.take() {
            let _ = run_blocking_aside(&self.tasks, move || ending.end_pair()).await;
        }
    }
}

impl Drop for VerbsClientWriter {
    fn drop(&mut self) {
        if let Some(ending) = self.pair.take() {
            spawn_blocking_aside(&self.tasks, move || ending.end_pair());
        }
    }
}

impl EndingPair {
    /// Ends the queue pair. Its memory is free again once the device can't read it any more.
    fn end_pair(self) {
        let Self { pair, completions, posted, rail } = self;
        let stopped = pair.stop_traffic();
        let is_silent = posted.is_empty() || rail.device.health.is_fatal();
        if stopped.is_ok() && !is_silent && pair.post_beacon().is_ok() {
            drain_completions(&completions);
        }
        let Err(error) = pair.destroy() else { return };
        let label = rail.rail.metric_label();
        let Err(not_stopped) = stopped else {
            tracing::warn!(
                rail = label, %error,
                "a queue pair to a client stays with its device; it is stopped, so its memory is \
                used again"
            );
            return;
        };
        if rail.device.domain.is_disassociated() {
            tracing::warn!(rail = label, "a queue pair to a client has ended with its device");
            return;
        }
        rail_metrics(&label).queue_pairs_surviving.inc();
        tracing::error!(
            rail = label, %error, %not_stopped,
            "a queue pair to a client can be neither stopped nor destroyed; the memory that it \
            reads is not used again until this process is restarted"
        );
        std::mem::forget(posted);
    }
}

/// Takes completions until the beacon's: the device is done with all requests before it.
fn drain_completions(completions: &CompletionQueue) {
    let until = Instant::now() + DRAIN_MAX;
    let mut polled = [WorkCompletion::NONE; POLL_MAX];
    while Instant::now() < until {
        match completions.poll(&mut polled) {
            Ok(0) => std::thread::sleep(DRAIN_PAUSE),
            Ok(count) if polled[..count].iter().any(|taken| taken.id == BEACON) => return,
            Ok(_) => {}
            Err(_) => return,
        }
    }
}
