//! Owns the send order of one queue pair. It cuts frames into chunks, each behind the WRITEs that
//! it vouches for.
//!
//! Owns the queue of frames, and what must stay alive until the NIC is done. Posts nothing itself:
//! it fills a list of work requests.

use std::collections::VecDeque;

use bytes::Bytes;

use super::chunk::{CHUNK_HEADER_BYTES, ChunkCredits, ChunkHeader};
use super::chunk_slots::{ChunkSlots, GRANT_SLOTS};
use super::send_requests::{NO_SGES, SendRequests};
use super::session_seals::{DataSeal, SenderSeals, TAG_BYTES};
use super::sys::{GatherElement, RegisteredBuffer, WorkOperation, WorkRequest};
use super::window_pool::ClosingWindows;
use super::write_plan::{RdmaWriteRequest, plan_writes};
use crate::calls::{FrameHeader, FrameKind, OutgoingFrame};

/// Most data bytes that ride inside the SEND. For so few, a separate WRITE would cost more than the
/// two copies.
pub(super) const RIDE_BYTES_MAX: usize = 4 << 10;

/// Places in the send queue that only chunks may take, so that WRITEs never block their own SEND.
const SEND_RESERVE: u64 = 8;

/// Sizes of the sending side.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendSizes {
    /// Depth of the send queue.
    pub(super) queue: u32,
    /// Length of a slot, and of the peer's receive buffers.
    pub(super) chunk_bytes: u32,
    pub(super) slots: u16,
    pub(super) inline_bytes: u32,
    /// Windows are opened only while the peer's NIC has acknowledged everything. Linux's soft-RoCE
    /// runs a request that opens one again, and fails it, when it repeats what was sent before.
    pub(super) binds_after_acks: bool,
}

/// Lookup of the local key of data that the NIC may fetch by itself.
pub(super) trait LocalKeyLookup {
    fn lkey_of(&self, piece: &Bytes) -> Option<u32>;
}

struct SendQueueFrame {
    frame: OutgoingFrame,
    /// Bytes of the frame that are in chunks.
    packed: usize,
    /// The way of its data is decided; its WRITEs may be posted.
    begun: bool,
}

/// Everything that the NIC is done with. Drop it outside of locks.
#[derive(Default)]
pub(super) struct CompletedSends {
    pub(super) frames: Vec<OutgoingFrame>,
    /// Landings that the peer can no longer write to.
    pub(super) closed: Vec<ClosingWindows>,
}

pub(super) struct ChunkSender {
    sizes: SendSizes,
    /// Bound on one chunk.
    payload_bytes_max: usize,
    frames: VecDeque<SendQueueFrame>,
    /// Requests that open and close windows, ahead of frames queued later. Each has the memory that
    /// goes back behind it.
    locals: VecDeque<(WorkOperation, Option<ClosingWindows>)>,
    /// WRITEs of the first frame that are not posted yet.
    writes: VecDeque<RdmaWriteRequest>,
    /// Frames with WRITEs whose last byte is in the open chunk.
    packed: Vec<OutgoingFrame>,
    /// Frames that were copied into chunks completely. The NIC reads none of them.
    copied: Vec<OutgoingFrame>,
    /// Frames that the NIC may still read, by request.
    held_frames: VecDeque<(u64, OutgoingFrame)>,
    closing: VecDeque<(u64, ClosingWindows)>,
    /// The end is to be sent behind all frames, once there is a credit for it.
    end_due: bool,
    controls: usize,
    /// `None` until the handshake is done.
    seals: Option<SenderSeals>,
    /// The peer wants the data that it gets to be tagged.
    tags_due: bool,
    /// Data bytes of frames that ride in the stream, since the last read of this count.
    copied_bytes: u64,
    chunks: ChunkSlots,
    requests: SendRequests,
}

impl ChunkSender {
    pub(super) fn new(sizes: SendSizes) -> Self {
        Self {
            sizes,
            payload_bytes_max: sizes.chunk_bytes as usize - CHUNK_HEADER_BYTES - TAG_BYTES,
            frames: VecDeque::new(),
            locals: VecDeque::new(),
            writes: VecDeque::new(),
            packed: Vec::new(),
            copied: Vec::new(),
            held_frames: VecDeque::new(),
            closing: VecDeque::new(),
            end_due: false,
            controls: 0,
            seals: None,
            tags_due: false,
            copied_bytes: 0,
            chunks: ChunkSlots::new(sizes.slots, sizes.chunk_bytes),
            requests: SendRequests::new(sizes.queue),
        }
    }

    pub(super) fn push(&mut self, frame: OutgoingFrame) {
        self.controls += usize::from(frame.is_control());
        self.frames.push_back(SendQueueFrame { frame, packed: 0, begun: false });
    }

    /// Queues the end, which follows all frames.
    pub(super) fn queue_end(&mut self) {
        self.end_due = true;
    }

    /// Queues requests that open windows. Frames pushed from now on may tell the keys.
    pub(super) fn open_windows(&mut self, ops: Vec<WorkOperation>) {
        self.locals.extend(ops.into_iter().map(|op| (op, None)));
    }

    /// Queues requests that close windows. The memory goes back when they are complete.
    pub(super) fn close_windows(&mut self, closing: ClosingWindows) {
        self.locals.extend(closing.bound.invalidate_operations().into_iter().map(|op| (op, None)));
        if let Some(last) = self.locals.back_mut() {
            last.1 = Some(closing);
        }
    }

    /// Returns true while windows wait for the completion that closes them.
    pub(super) fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Makes a request that does nothing, unless one is in flight already.
    pub(super) fn make_nudge(&mut self) -> &[WorkRequest] {
        self.requests.begin_list();
        if self.requests.queue_free() > SEND_RESERVE {
            self.requests.add_nudge();
        }
        self.requests.signal_last()
    }

    /// Takes the memory whose windows the end of the queue pair closes.
    pub(super) fn take_closing(&mut self) -> Vec<ClosingWindows> {
        let queued = self.locals.drain(..).filter_map(|(_, closing)| closing);
        queued.chain(self.closing.drain(..).map(|(_, closing)| closing)).collect()
    }

    /// Returns the data bytes that rode in the stream since the last call.
    pub(super) fn take_copied_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.copied_bytes)
    }

    pub(super) fn control_frames(&self) -> usize {
        self.controls
    }

    /// Returns true when everything was sent, and the NIC is done with it.
    pub(super) fn is_idle(&self) -> bool {
        self.frames.is_empty() && self.outstanding_requests() == 0
    }

    /// Returns true while something waits for the completion of what was sent, or may soon: frames
    /// or windows that are queued, memory that the NIC may still read, places that run short.
    pub(super) fn needs_completions(&self) -> bool {
        !self.frames.is_empty()
            || !self.locals.is_empty()
            || !self.closing.is_empty()
            || !self.packed.is_empty()
            || !self.held_frames.is_empty()
            || self.end_due
            || self.chunks.is_running_short()
            || self.requests.queue_free() < u64::from(self.sizes.queue / 2)
    }

    /// Returns the count of requests that are posted and not known to be complete.
    pub(super) fn outstanding_requests(&self) -> u64 {
        self.requests.outstanding_requests()
    }

    /// Takes the frames that were copied completely. Drop them outside of locks.
    pub(super) fn take_copied(&mut self) -> Vec<OutgoingFrame> {
        std::mem::take(&mut self.copied)
    }

    /// Takes out the parts of a call of which nothing is in flight.
    pub(super) fn abandon_call(&mut self, call: u64) -> Vec<OutgoingFrame> {
        let mut dropped = Vec::new();
        let mut at = 0;
        while let Some(queued) = self.frames.get(at) {
            if !queued.begun && queued.frame.is_part_of(call) {
                dropped.extend(self.frames.remove(at).map(|queued| queued.frame));
            } else {
                at += 1;
            }
        }
        dropped
    }

    /// Records that all requests up to `id` are complete. Moves what they held to `done`.
    pub(super) fn record_completion(&mut self, id: u64, done: &mut CompletedSends) {
        self.requests.record_completion(id);
        self.chunks.release_slots(id);
        while self.held_frames.front().is_some_and(|(held, _)| *held <= id) {
            done.frames.extend(self.held_frames.pop_front().map(|(_, frame)| frame));
        }
        while self.closing.front().is_some_and(|(held, _)| *held <= id) {
            done.closed.extend(self.closing.pop_front().map(|(_, closing)| closing));
        }
    }

    /// Returns the requests that can be posted now, in order. Post them before the next call; it
    /// returns only later ones.
    pub(super) fn fill_requests(
        &mut self,
        credits: &mut ChunkCredits,
        slots: &RegisteredBuffer,
        memory: &impl LocalKeyLookup,
    ) -> &[WorkRequest] {
        self.requests.begin_list();
        // A frame that tells a key follows the request that opens its window.
        while self.post_locals() && self.advance_queue(credits, slots, memory) {}
        self.seal_chunk(credits, slots, ChunkHeader::default());
        if self.end_due && self.frames.is_empty() && self.open_chunk(credits) {
            self.end_due = false;
            self.seal_chunk(credits, slots, ChunkHeader { end: true, ..ChunkHeader::default() });
        }
        // Grants wait too: under a steady stream of them there would always be one on its way.
        if credits.must_grant() && !self.must_await_acks() {
            self.seal_bare_chunk(
                credits,
                slots,
                ChunkHeader { only_grants: true, ..ChunkHeader::default() },
            );
        }
        self.requests.signal_last()
    }

    /// Makes a chunk without a piece of a frame: a heartbeat. Returns no request where there is no
    /// credit or no slot.
    pub(super) fn make_bare_chunk(
        &mut self,
        credits: &mut ChunkCredits,
        slots: &RegisteredBuffer,
        header: ChunkHeader,
    ) -> &[WorkRequest] {
        self.requests.begin_list();
        self.seal_bare_chunk(credits, slots, header);
        self.requests.signal_last()
    }

    /// Makes a chunk of bytes that are no frame: the handshake. Returns `None` where they have no
    /// room yet.
    pub(super) fn make_raw_chunk(
        &mut self,
        bytes: &[u8],
        credits: &mut ChunkCredits,
        slots: &RegisteredBuffer,
    ) -> Option<&[WorkRequest]> {
        self.requests.begin_list();
        if !self.open_chunk(credits) {
            return None;
        }
        self.chunks.pack_bytes(bytes, self.payload_bytes_max, slots);
        self.seal_chunk(credits, slots, ChunkHeader::default());
        Some(self.requests.signal_last())
    }

    /// Sets the bound on payloads for a peer whose receive buffers have `bytes`.
    pub(super) fn set_payload_bytes_max(&mut self, bytes: u32) {
        self.payload_bytes_max =
            self.sizes.chunk_bytes.min(bytes) as usize - CHUNK_HEADER_BYTES - TAG_BYTES;
    }

    pub(super) fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// Seals all chunks from now on.
    pub(super) fn start_sealing(&mut self, seals: SenderSeals) {
        self.seals = Some(seals);
    }

    /// The seals of the session, to lie with.
    #[cfg(test)]
    pub(super) fn seals_mut(&mut self) -> &mut Option<SenderSeals> {
        &mut self.seals
    }

    /// Tags the data of frames from now on.
    pub(super) fn start_tagging(&mut self) {
        self.tags_due = true;
    }

    /// Drops everything, because the queue pair is gone.
    pub(super) fn clear(&mut self) -> Vec<OutgoingFrame> {
        self.controls = 0;
        self.writes.clear();
        let held = self.held_frames.drain(..).map(|(_, frame)| frame);
        let packed = self.packed.drain(..).chain(self.copied.drain(..));
        held.chain(packed).chain(self.frames.drain(..).map(|queued| queued.frame)).collect()
    }

    /// Returns true while the next request opens a window, and may not go out yet.
    fn must_await_acks(&self) -> bool {
        self.sizes.binds_after_acks
            && self.requests.awaits_acks()
            && matches!(self.locals.front(), Some((WorkOperation::Bind { .. }, _)))
    }

    /// Posts requests that open or close windows. Returns `false` where some wait for places in the
    /// queue, or for acknowledgements.
    fn post_locals(&mut self) -> bool {
        while self.requests.queue_free() > SEND_RESERVE
            && !self.must_await_acks()
            && let Some((op, closing)) = self.locals.pop_front()
        {
            let id = self.requests.add_request(op, NO_SGES, 0, false);
            self.closing.extend(closing.map(|closing| (id, closing)));
        }
        self.locals.is_empty()
    }

    /// Advances by one step. Returns `false` when nothing more can go out now.
    fn advance_queue(
        &mut self,
        credits: &mut ChunkCredits,
        slots: &RegisteredBuffer,
        memory: &impl LocalKeyLookup,
    ) -> bool {
        let Some(queued) = self.frames.front_mut() else {
            return false;
        };
        if !queued.begun {
            queued.begun = true;
            let data_seal = self.seals.as_ref().filter(|_| self.tags_due).map(|seals| &seals.data);
            let placed = place_data(&mut queued.frame, memory, &mut self.writes, data_seal);
            if !placed {
                self.copied_bytes +=
                    queued.frame.data.iter().map(|piece| piece.len() as u64).sum::<u64>();
            } else if self.chunks.open_chunk().is_some() {
                // Chunks packed already need not wait for the WRITEs of another frame.
                self.seal_chunk(credits, slots, ChunkHeader::default());
                return true;
            }
        }
        while let Some(write) = self.writes.front().copied() {
            if self.requests.queue_free() <= SEND_RESERVE {
                return false;
            }
            self.writes.pop_front();
            let op = WorkOperation::Write { address: write.address, key: write.key };
            self.requests.add_request(op, write.sges, write.sges_used, false);
        }
        if !self.open_chunk(credits) {
            return false;
        }
        self.pack_front(slots);
        if self.chunks.open_chunk().is_some_and(|open| open.filled == self.payload_bytes_max) {
            self.seal_chunk(credits, slots, ChunkHeader::default());
        }
        true
    }

    /// Copies as much of the first frame as fits. Takes it out once it is packed completely.
    fn pack_front(&mut self, slots: &RegisteredBuffer) {
        let Some(mut queued) = self.frames.pop_front() else {
            return;
        };
        let mut skip = queued.packed;
        let placed = queued.frame.header.placed;
        let (words, data) = (queued.frame.leading_slices(), &queued.frame.data[..]);
        let data = if placed { &[] } else { data };
        let mut whole = true;
        for piece in words.into_iter().chain(data.iter().map(|piece| &piece[..])) {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let taken = self.chunks.pack_bytes(&piece[skipped..], self.payload_bytes_max, slots);
            queued.packed += taken;
            if taken < piece.len() - skipped {
                whole = false;
                break;
            }
        }
        if whole {
            self.controls -= usize::from(queued.frame.is_control());
            let kept = if placed { &mut self.packed } else { &mut self.copied };
            kept.push(queued.frame);
        } else {
            self.frames.push_front(queued);
        }
    }

    /// Opens a chunk if none is open and one may go out.
    fn open_chunk(&mut self, credits: &ChunkCredits) -> bool {
        if self.chunks.open_chunk().is_some() {
            return true;
        }
        if !credits.may_send() || self.requests.queue_free() <= u64::from(GRANT_SLOTS) {
            return false;
        }
        self.chunks.open_next()
    }

    /// Makes a SEND of the open chunk.
    fn seal_chunk(
        &mut self,
        credits: &mut ChunkCredits,
        slots: &RegisteredBuffer,
        header: ChunkHeader,
    ) {
        let Some(open) = self.chunks.take_open() else {
            return;
        };
        if !header.only_grants {
            credits.spend_credit();
        }
        let header = ChunkHeader {
            granted: credits.take_grant(),
            payload_bytes: open.filled as u32,
            sealed: self.seals.is_some(),
            tags_wanted: self.seals.as_ref().is_some_and(|seals| seals.tags_wanted),
            ..header
        };
        let at = self.chunks.place_of(open.slot);
        slots.write(at, &header.encode());
        let mut bytes = (CHUNK_HEADER_BYTES + open.filled) as u32;
        if let Some(seals) = &mut self.seals {
            let tag = slots.with_bytes(at, bytes as usize, |chunk| seals.chunks.next_tag(chunk));
            slots.write(at + bytes as usize, &tag);
            bytes += TAG_BYTES as u32;
        }
        let mut sges = NO_SGES;
        sges[0] = GatherElement { address: slots.address_at(at), bytes, lkey: slots.local_key() };
        let id = self.requests.add_request(
            WorkOperation::Send,
            sges,
            1,
            bytes <= self.sizes.inline_bytes,
        );
        self.chunks.hold_slot(id, open.slot);
        self.held_frames.extend(self.packed.drain(..).map(|frame| (id, frame)));
        self.requests.count_send();
    }

    fn seal_bare_chunk(
        &mut self,
        credits: &mut ChunkCredits,
        slots: &RegisteredBuffer,
        header: ChunkHeader,
    ) {
        if header.only_grants {
            if self.requests.queue_free() == 0 || !self.chunks.open_grant() {
                return;
            }
        } else if !self.open_chunk(credits) {
            return;
        }
        self.seal_chunk(credits, slots, header);
    }
}

/// Decides how the data of a frame travels. Returns `true` for WRITEs, which are then in `writes`.
fn place_data(
    frame: &mut OutgoingFrame,
    memory: &impl LocalKeyLookup,
    writes: &mut VecDeque<RdmaWriteRequest>,
    data_seal: Option<&DataSeal>,
) -> bool {
    let bytes: usize = frame.data.iter().map(Bytes::len).sum();
    if frame.header.kind != FrameKind::Part || frame.target.is_empty() || bytes <= RIDE_BYTES_MAX {
        return false;
    }
    // A piece from outside the arena's registrations rides in the stream.
    if frame.data.is_empty() || frame.data.iter().any(|piece| memory.lkey_of(piece).is_none()) {
        return false;
    }
    let lkey_of = |piece: &Bytes| memory.lkey_of(piece).unwrap_or_default();
    if !plan_writes(&frame.data, frame.header.offset, &frame.target, lkey_of, writes) {
        return false;
    }
    let tag = data_seal.map(|seal| {
        let FrameHeader { call, offset, .. } = frame.header;
        seal.compute_tag(call, offset, frame.data.iter().map(|piece| &piece[..]))
    });
    frame.mark_placed(tag.unwrap_or_default());
    true
}
