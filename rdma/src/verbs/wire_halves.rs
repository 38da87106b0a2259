//! Owns the two halves of a queue pair that `calls` uses, and the handshake's bytes.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use prometheus::Histogram;
use tokio_util::task::TaskTracker;

use super::chunk::ChunkHeader;
use super::chunk_sender::RIDE_BYTES_MAX;
use super::foreign_regions::{LandingRegions, RegionSearch};
use super::queue_pair_wire::QueuePairWire;
use super::rail::ArenaPurpose;
use super::session_seals::{DataSeal, SenderSeals, SessionSeals};
use super::setup_runtime::spawn_blocking_aside;
use crate::calls::{
    FrameBody, FrameHeader, FrameInlet, FrameOutlet, HEADER_BYTES, HandshakeChannel, HandshakeSide,
    InletError, MemorySegment, OutgoingFrame, QueuedBytesPermit, SEGMENT_BYTES, SessionKey,
};
use crate::landing::{Landing, LandingFill};
use crate::metrics::SealedMatter;
use crate::transport::TransportKind;

/// The sending half. Dropping it closes the queue pair.
pub(super) struct WireOutlet {
    wire: Arc<QueuePairWire>,
    /// Where the task that closes it belongs.
    tasks: TaskTracker,
}

impl WireOutlet {
    pub(super) fn new(wire: Arc<QueuePairWire>, tasks: &TaskTracker) -> Self {
        Self { wire, tasks: tasks.clone() }
    }
}

impl WireOutlet {
    /// Returns the registrations that a landing lies in. `None`: it lies in another process's memory,
    /// which this rail has not registered, or may not open to a peer.
    fn landing_regions(&self, landing: &Landing) -> Option<LandingRegions<'_>> {
        let device = &self.wire.rail.device;
        let arena = &device.regions;
        let Some(place) = landing.foreign_place() else {
            return Some(LandingRegions { arena, foreign: None });
        };
        // A tag is of bytes that nobody changes. Without windows, a key would open all of the other
        // process's memory, its rings too, for as long as it is there.
        if self.wire.tags_wanted || device.windows.is_none() {
            return None;
        }
        let memory = place.foreign_memory();
        match device.foreign.find_memory(memory) {
            RegionSearch::Found(region) => Some(LandingRegions { arena, foreign: Some(region) }),
            RegionSearch::Missing => None,
            RegionSearch::Wanted => {
                let (device, memory) = (device.clone(), memory.clone());
                spawn_blocking_aside(&self.tasks, move || device.foreign.register_memory(&memory));
                None
            }
        }
    }
}

impl Drop for WireOutlet {
    fn drop(&mut self) {
        self.wire.close();
    }
}

impl FrameOutlet for WireOutlet {
    const KIND: TransportKind = TransportKind::Verbs;

    fn rail_histogram(&self) -> Option<Histogram> {
        Some(self.wire.metrics.rail.call_seconds.clone())
    }

    /// Returns the addresses of a landing and their keys. Blocks grant no remote right: what a
    /// worker pulls travels in the stream.
    fn lend_landing(&self, landing: &mut Landing) -> Vec<MemorySegment> {
        let device = &self.wire.rail.device;
        // Data that fits in a SEND is never written, so nothing has to be opened for it.
        if device.usage != ArenaPurpose::Landings || landing.total_bytes() <= RIDE_BYTES_MAX as u64
        {
            return Vec::new();
        }
        // Memory that is not registered can't be described. The reply then travels in the stream.
        let Some(regions) = self.landing_regions(landing) else { return Vec::new() };
        let places: Vec<_> = landing.lent_ranges().collect();
        if device.windows.is_some() {
            return self.wire.open_windows(landing, &regions, &places);
        }
        let segment = |&(address, bytes): &(usize, usize)| {
            let key = regions.region_of(address, bytes)?.rkey;
            Some(MemorySegment { address: address as u64, bytes: bytes as u32, key })
        };
        // Nor can memory of another arena.
        let Some(segments) = places.iter().map(segment).collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        self.wire.guard_landing(landing);
        segments
    }

    async fn reserve_bytes(&self, bytes: u64) -> Option<QueuedBytesPermit> {
        self.wire.rooms.acquire_permit(bytes).await
    }

    async fn control_room(&self) {
        loop {
            let written = self.wire.written.notified();
            {
                let state = self.wire.state.lock();
                // Once the peer has hung up, only the inlet drives, and this is the inlet's reader.
                // What is left to read is bounded.
                if state.sender.control_frames() < self.wire.controls_max
                    || state.ended
                    || state.closed
                {
                    return;
                }
            }
            written.await;
        }
    }

    fn push_frame(&self, frame: OutgoingFrame) {
        let mut state = self.wire.state.lock();
        if !state.closed {
            self.wire.note_sent_frame(&frame.header);
            state.sender.push(frame);
        }
    }

    fn abandon_call(&self, call: u64) {
        let dropped = self.wire.state.lock().sender.abandon_call(call);
        drop(dropped);
    }

    fn flush_frames(&self) {
        self.wire.pump_sends();
        self.wire.wake_poller();
    }

    async fn run(&self) -> io::Result<()> {
        self.wire.driven.store(true, Ordering::Release);
        let finished = |state: &super::queue_pair_wire::QueuePairWireState| {
            state.closed || (state.finishing && state.sender.is_idle())
        };
        self.wire.drive_until(&mut |state| finished(state) || state.ended).await?;
        // From here on the inlet drives. Where the peer has hung up, the inlet reads what came
        // before, and then reports the end.
        self.wire.driven.store(false, Ordering::Release);
        self.wire.arrived.notify_one();
        if !finished(&self.wire.state.lock()) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn finish_writes(&self) {
        self.wire.state.lock().finishing = true;
        self.wire.work.notify_one();
    }

    fn shut_write(&self) {
        // It waits for a credit: the peer may not have read the last frames yet.
        self.wire.state.lock().sender.queue_end();
        self.wire.pump_sends();
    }

    async fn prepare_close(&self) {
        self.wire.close_aside(&self.tasks).await;
    }

    fn close(&self) {
        self.wire.close();
    }
}

/// Seals between the handshake's proof and its end.
struct ExpectedSeals {
    sender: SenderSeals,
    data_received: DataSeal,
}

/// The receiving half.
pub(super) struct WireInlet {
    wire: Arc<QueuePairWire>,
    message_bytes_max: u32,
    /// The chunk that is being read: its buffer, its header, and the read position.
    current: Option<(u16, ChunkHeader, usize)>,
    /// Seals of a session that has not begun.
    coming: Option<ExpectedSeals>,
    /// Checks data that the peer writes, where this side wants that.
    data_seal: Option<DataSeal>,
}

impl Drop for WireInlet {
    fn drop(&mut self) {
        if let Some((buffer, ..)) = self.current.take() {
            self.wire.give_back(buffer);
        }
    }
}

impl WireInlet {
    pub(super) fn new(wire: Arc<QueuePairWire>) -> Self {
        Self { wire, message_bytes_max: 0, current: None, coming: None, data_seal: None }
    }

    /// Begins the session that the handshake agreed on: sealed, and with its bound.
    pub(super) fn with_session(mut self, message_bytes_max: u32) -> Self {
        let tags_wanted = self.wire.tags_wanted;
        let unread = self
            .current
            .as_ref()
            .is_some_and(|(_, header, at)| !header.sealed && *at < header.payload_bytes as usize);
        if let Some(ExpectedSeals { sender, data_received }) = self.coming.take() {
            self.data_seal = Some(data_received).filter(|_| tags_wanted);
            self.wire.start_session(sender, unread);
        }
        self.message_bytes_max = message_bytes_max;
        self
    }

    /// Waits for bytes. Returns how many are left in the current chunk, 0 at the end.
    async fn wait_for_bytes(&mut self) -> io::Result<usize> {
        loop {
            if let Some((buffer, header, at)) = self.current {
                let left = header.payload_bytes as usize - at;
                if left > 0 {
                    return Ok(left);
                }
                self.current = None;
                let copied = {
                    let mut state = self.wire.state.lock();
                    self.wire.repost_buffer(&mut state, buffer, &header)?;
                    state.sender.take_copied()
                };
                drop(copied);
            }
            {
                let mut state = self.wire.state.lock();
                if let Some((buffer, header)) = state.received.pop_front() {
                    self.current = Some((buffer, header, 0));
                    continue;
                }
                if state.ended || state.closed {
                    return Ok(0);
                }
            }
            if self.wire.driven.load(Ordering::Acquire) {
                self.wire.arrived.notified().await;
            } else {
                let arrived = &mut |state: &mut super::queue_pair_wire::QueuePairWireState| {
                    !state.received.is_empty() || state.ended || state.closed
                };
                let driven = self.wire.drive_until(arrived).await;
                // Bytes that came before the line broke are still read. The failure stays for
                // later.
                if self.wire.state.lock().received.is_empty() {
                    driven?;
                }
            }
        }
    }

    /// Reads up to `to.len()` bytes. Returns 0 only at the end.
    async fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = self.wait_for_bytes().await?.min(to.len());
        if let Some((buffer, _, at)) = &mut self.current {
            self.wire.read(*buffer, *at, &mut to[..bytes]);
            *at += bytes;
        }
        Ok(bytes)
    }

    /// Fills `to`. Returns `false` when the stream ends before its first byte.
    async fn read_exact(&mut self, to: &mut [u8]) -> Result<bool, InletError> {
        let mut have = 0;
        while have < to.len() {
            match self.read(&mut to[have..]).await? {
                0 if have == 0 => return Ok(false),
                0 => return Err(InletError::Truncated),
                bytes => have += bytes,
            }
        }
        Ok(true)
    }

    async fn read_whole(&mut self, to: &mut [u8]) -> Result<(), InletError> {
        if self.read_exact(to).await? || to.is_empty() {
            Ok(())
        } else {
            Err(InletError::Truncated)
        }
    }
}

impl FrameInlet for WireInlet {
    async fn next_header(&mut self) -> Result<Option<FrameHeader>, InletError> {
        // Frames that have all arrived would otherwise never let another task of this thread run.
        tokio::task::consume_budget().await;
        let mut bytes = [0; HEADER_BYTES];
        if !self.read_exact(&mut bytes).await? {
            return Ok(None);
        }
        let header = FrameHeader::decode(&bytes, self.message_bytes_max)?;
        self.wire.note_frame(&header);
        Ok(Some(header))
    }

    async fn receive_body(
        &mut self,
        header: &FrameHeader,
        fill: &mut LandingFill,
    ) -> Result<FrameBody, InletError> {
        // Bounded by the decoder.
        let mut target = Vec::with_capacity(header.segments as usize);
        for _ in 0..header.segments {
            let mut bytes = [0; SEGMENT_BYTES];
            self.read_whole(&mut bytes).await?;
            target.push(MemorySegment::decode(&bytes));
        }
        let mut message = vec![0; header.message_bytes as usize];
        self.read_whole(&mut message).await?;
        if header.placed {
            if self.wire.rail.device.usage != ArenaPurpose::Landings {
                return Err(InletError::Rules("data placed where no memory was lent".into()));
            }
            // The SEND of this header vouches for the WRITEs before it, on the same queue pair.
            fill.record_placed();
            self.check_data(header, fill)?;
            self.wire.metrics.rail.landed_bytes.inc_by(header.data_bytes);
        } else {
            self.fill_landing(header, fill).await?;
        }
        Ok(FrameBody { message: Bytes::from(message), target, data: None })
    }
}

impl WireInlet {
    /// Checks that the peer of the handshake has written the data of a part, where that is wanted.
    fn check_data(&self, header: &FrameHeader, fill: &mut LandingFill) -> Result<(), InletError> {
        let Some(seal) = &self.data_seal else {
            return Ok(());
        };
        let written = fill.claimed_slices();
        if seal.accepts_tag(header.call, header.offset, written, &header.data_tag) {
            return Ok(());
        }
        self.wire.metrics.rail.seals_refused[SealedMatter::Data].inc();
        Err(InletError::Rules("data was written that the peer has not tagged so".into()))
    }

    /// Reads data that rides in the stream into the landing.
    async fn fill_landing(
        &mut self,
        header: &FrameHeader,
        fill: &mut LandingFill,
    ) -> Result<(), InletError> {
        debug_assert_eq!(header.data_bytes, fill.missing_bytes() as u64, "claimed for this frame");
        while fill.missing_bytes() > 0 {
            let mut piece = [IoSliceMut::new(&mut [])];
            fill.unwritten_slices(&mut piece);
            let bytes = self.read(&mut piece[0]).await?;
            if bytes == 0 {
                return Err(InletError::Truncated);
            }
            fill.record_written(bytes);
        }
        Ok(())
    }
}

impl HandshakeChannel for WireInlet {
    async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.send_raw(bytes).await
    }

    async fn receive_bytes(&mut self, to: &mut [u8]) -> io::Result<()> {
        self.read_whole(to).await.map_err(|error| match error {
            InletError::Read(error) => error,
            other => io::Error::new(io::ErrorKind::UnexpectedEof, other.to_string()),
        })
    }

    fn expect_seals(&mut self, key: &SessionKey, side: HandshakeSide) {
        let SessionSeals { chunks_sent, chunks_received, data_sent, data_received } =
            SessionSeals::new(key, side);
        self.wire.state.lock().received_seal = Some(chunks_received);
        let tags_wanted = self.wire.tags_wanted;
        let sender = SenderSeals { chunks: chunks_sent, data: data_sent, tags_wanted };
        self.coming = Some(ExpectedSeals { sender, data_received });
    }
}
