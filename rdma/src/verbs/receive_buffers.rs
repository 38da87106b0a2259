//! Owns the receive buffers of a connection and their posting: its own ring, or buffers that all
//! connections of a rail share.
//!
//! `chunk` computes how many chunks a peer may send. `buffer_ledger` computes who may use how many
//! shared buffers.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;
use verbs3_metrics::MetricFamily;

use super::VerbsOptions;
use super::buffer_ledger::{BufferDoubt, BufferLedger, BufferTally};
use super::chunk::{CreditChange, SPARE_RECEIVES};
use super::sys::{CmQueuePair, GatherElement, ProtectionDomain, RegisteredBuffer, SharedQueue};
use crate::metrics::{GaugeGuard, ReceiveBufferState, rail_metrics};

/// Mark in the id of a receive request; the other bits are the buffer's number.
pub(super) const RECEIVE: u64 = 1 << 63;

/// Credits of a new connection's peer where buffers are shared. The peer gets fewer where its
/// maximum is lower.
const FIRST_CREDITS: u16 = 4;

/// The shared buffers of a rail.
pub(super) struct SharedRing {
    /// Declared first, to go before the memory.
    queue: Arc<SharedQueue>,
    buffers: RegisteredBuffer,
    chunk_bytes: usize,
    depth: u16,
    state: Mutex<SharedRingState>,
    _depth: GaugeGuard,
}

/// Who may use how many buffers of a ring, and what the gauges show of it.
struct SharedRingState {
    ledger: BufferLedger,
    gauges: SharedRingGauges,
}

impl SharedRingState {
    fn update_gauges(&mut self) {
        self.gauges.show_tally(self.ledger.current_tally());
    }
}

impl SharedRing {
    pub(super) fn new(
        rail: &str,
        domain: &Arc<ProtectionDomain>,
        options: &VerbsOptions,
    ) -> io::Result<Self> {
        let (depth, chunk_bytes) =
            (options.settings.shared_receives, options.settings.receive_buffer.as_usize());
        let queue = Arc::new(SharedQueue::new(domain.clone(), u32::from(depth))?);
        let buffers = RegisteredBuffer::new(domain.clone(), usize::from(depth) * chunk_bytes)?;
        let gauges = rail_metrics(rail).shared_receives;
        let ring = Self {
            queue,
            buffers,
            chunk_bytes,
            depth,
            state: Mutex::new(SharedRingState {
                ledger: BufferLedger::new(depth),
                gauges: SharedRingGauges::new(&gauges),
            }),
            _depth: GaugeGuard::add_to(&gauges[ReceiveBufferState::All], u64::from(depth)),
        };
        for buffer in 0..depth {
            ring.post_buffer(&mut ring.state.lock().ledger, buffer)?;
        }
        Ok(ring)
    }

    /// Posts a buffer. Runs under the lock, so that the ledger's order is that of the queue.
    fn post_buffer(&self, shares: &mut BufferLedger, buffer: u16) -> io::Result<()> {
        let piece = buffer_piece(&self.buffers, buffer, self.chunk_bytes);
        // SAFETY: the queue is dropped before the buffers. A buffer is posted when it is new, or by
        // the one who has read its chunk or found it unread; until its completion nobody reads it.
        unsafe { self.queue.post_buffer(RECEIVE | u64::from(buffer), piece) }?;
        shares.record_post(buffer);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn tally(&self) -> BufferTally {
        self.state.lock().ledger.current_tally()
    }

    fn give_back(&self, buffer: u16) -> io::Result<()> {
        let mut state = self.state.lock();
        self.post_buffer(&mut state.ledger, buffer)?;
        state.update_gauges();
        Ok(())
    }
}

/// Share of one ring in the gauges of its rail.
struct SharedRingGauges {
    shown: BufferTally,
    reserved: IntGauge,
    doubtful: IntGauge,
    lost: IntGauge,
}

impl SharedRingGauges {
    fn new(gauges: &MetricFamily<ReceiveBufferState, IntGauge>) -> Self {
        Self {
            shown: BufferTally::default(),
            reserved: gauges[ReceiveBufferState::Reserved].clone(),
            doubtful: gauges[ReceiveBufferState::Doubtful].clone(),
            lost: gauges[ReceiveBufferState::Lost].clone(),
        }
    }

    fn show_tally(&mut self, now: BufferTally) {
        let before = std::mem::replace(&mut self.shown, now);
        if before == now {
            return;
        }
        let shown = [
            (&self.reserved, before.reserved, now.reserved),
            (&self.doubtful, before.doubtful, now.doubtful),
            (&self.lost, before.lost, now.lost),
        ];
        for (gauge, before, now) in shown {
            gauge.add(i64::from(now) - i64::from(before));
        }
    }
}

impl Drop for SharedRingGauges {
    fn drop(&mut self) {
        self.show_tally(BufferTally::default());
    }
}

/// One connection's share of a ring.
pub(super) struct RingReservation {
    ring: Arc<SharedRing>,
    first_credits: u16,
    /// Buffers that are reserved, and those that may be taken unseen when the connection ends.
    state: Mutex<ReservationState>,
}

#[derive(Default)]
struct ReservationState {
    buffers: u32,
    buffers_max: u32,
    doubt: BufferDoubt,
}

impl RingReservation {
    fn try_reserve(ring: &Arc<SharedRing>, options: &VerbsOptions) -> Option<Self> {
        let first_credits = FIRST_CREDITS.min(options.settings.receive_count);
        let spare = u32::from(SPARE_RECEIVES);
        let extent = ReservationState {
            buffers: u32::from(first_credits) + spare,
            buffers_max: u32::from(options.settings.receive_count) + spare,
            doubt: BufferDoubt::default(),
        };
        let mut state = ring.state.lock();
        let fits = state.ledger.reserve_share(extent.buffers);
        state.update_gauges();
        drop(state);
        fits.then(|| Self { ring: ring.clone(), first_credits, state: Mutex::new(extent) })
    }

    /// Posts a buffer whose chunk was read. Changes the share only for a chunk that took a credit.
    fn repost_buffer(&self, buffer: u16, took_a_credit: bool) -> io::Result<CreditChange> {
        let (mut extent, mut state) = (self.state.lock(), self.ring.state.lock());
        self.ring.post_buffer(&mut state.ledger, buffer)?;
        let first = u32::from(self.first_credits + SPARE_RECEIVES);
        let turn = if !took_a_credit {
            CreditChange::Keep
        } else if extent.buffers < extent.buffers_max && state.ledger.grow_share() {
            extent.buffers += 1;
            CreditChange::Grow
        } else if extent.buffers > first && state.ledger.is_scarce() {
            extent.buffers -= 1;
            state.ledger.shrink_share();
            CreditChange::Shrink
        } else {
            CreditChange::Keep
        };
        state.update_gauges();
        Ok(turn)
    }
}

impl Drop for RingReservation {
    fn drop(&mut self) {
        let extent = self.state.get_mut();
        let mut state = self.ring.state.lock();
        state.ledger.release_share(extent.buffers, extent.doubt);
        state.update_gauges();
    }
}

/// The receive buffers of one connection.
pub(super) enum ReceiveBuffers {
    Own { ring: RegisteredBuffer, count: u16, chunk_bytes: usize },
    Shared(RingReservation),
}

impl ReceiveBuffers {
    /// Makes the buffers of a new connection in `domain`. They are those of `shared`, the rail's
    /// ring, where there is one with room.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        shared: Option<&Arc<SharedRing>>,
        options: &VerbsOptions,
    ) -> io::Result<Self> {
        if let Some(share) = shared.and_then(|ring| RingReservation::try_reserve(ring, options)) {
            return Ok(Self::Shared(share));
        }
        let (count, chunk_bytes) = (
            options.settings.receive_count + SPARE_RECEIVES,
            options.settings.receive_buffer.as_usize(),
        );
        let ring = RegisteredBuffer::new(domain.clone(), usize::from(count) * chunk_bytes)?;
        Ok(Self::Own { ring, count, chunk_bytes })
    }

    pub(super) fn shared_queue(&self) -> Option<&Arc<SharedQueue>> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(share) => Some(&share.ring.queue),
        }
    }

    /// Returns how many buffers can be completed and not yet polled. A peer that ignores its
    /// credits could take all shared buffers. It must not overrun the completion queue, which would
    /// lose them.
    pub(super) fn completions_max(&self) -> u32 {
        match self {
            Self::Own { count, .. } => u32::from(*count),
            Self::Shared(share) => u32::from(share.ring.depth),
        }
    }

    /// Returns the depth of the queue pair's own receive queue.
    pub(super) fn own_depth(&self) -> u32 {
        match self {
            Self::Own { count, .. } => u32::from(*count),
            Self::Shared(_) => 0,
        }
    }

    /// Returns the credits that the peer begins with.
    pub(super) fn first_credits(&self) -> u16 {
        match self {
            Self::Own { count, .. } => count - SPARE_RECEIVES,
            Self::Shared(share) => share.first_credits,
        }
    }

    /// Posts all of a ring.
    pub(super) fn post_all(&self, pair: &CmQueuePair) -> io::Result<()> {
        match self {
            Self::Own { count, .. } => {
                (0..*count).try_for_each(|buffer| self.post_own(pair, buffer))
            }
            Self::Shared(_) => Ok(()),
        }
    }

    fn post_own(&self, pair: &CmQueuePair, buffer: u16) -> io::Result<()> {
        let Self::Own { ring, chunk_bytes, .. } = self else {
            return Ok(());
        };
        let piece = buffer_piece(ring, buffer, *chunk_bytes);
        // SAFETY: the ring lives as long as the wire, which destroys the queue pair before. A
        // buffer is posted when it is new, or when its chunk was read to the end; until its
        // completion nobody reads it.
        unsafe { pair.post_receive(RECEIVE | u64::from(buffer), piece) }
    }

    /// Records that a buffer belongs to this side again, filled or not.
    pub(super) fn record_completion(&self, buffer: u16) {
        if let Self::Shared(share) = self {
            let mut state = share.ring.state.lock();
            state.ledger.record_completion(buffer);
            state.update_gauges();
        }
    }

    /// Gives a read buffer back to the NIC. `pair` is `None` when the queue pair is gone.
    pub(super) fn repost_buffer(
        &self,
        pair: Option<&CmQueuePair>,
        buffer: u16,
        took_a_credit: bool,
    ) -> io::Result<CreditChange> {
        match (self, pair) {
            (Self::Own { .. }, Some(pair)) => {
                self.post_own(pair, buffer).map(|()| CreditChange::Keep)
            }
            (Self::Own { .. }, None) => Ok(CreditChange::Keep),
            (Self::Shared(share), _) => {
                share.repost_buffer(buffer, took_a_credit && pair.is_some())
            }
        }
    }

    /// Gives back a buffer that stays unread. A buffer that can't be posted is not used again.
    pub(super) fn give_back(&self, buffer: u16) {
        if let Self::Shared(share) = self {
            let _ = share.ring.give_back(buffer);
        }
    }

    /// Records the end of a queue pair. It may have taken buffers for chunks whose completion
    /// nobody sees.
    pub(super) fn leave_doubt(&self, doubt: BufferDoubt) {
        if let Self::Shared(share) = self {
            share.state.lock().doubt = doubt;
        }
    }

    /// Copies from position `at` of a buffer.
    pub(super) fn read(&self, buffer: u16, at: usize, to: &mut [u8]) {
        let (memory, chunk_bytes) = self.memory();
        memory.read(usize::from(buffer) * chunk_bytes + at, to);
    }

    /// Shows the first `bytes` bytes of a buffer to `reader`.
    pub(super) fn with_bytes<T>(
        &self,
        buffer: u16,
        bytes: usize,
        reader: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let (memory, chunk_bytes) = self.memory();
        memory.with_bytes(usize::from(buffer) * chunk_bytes, bytes.min(chunk_bytes), reader)
    }

    /// Returns the memory of all buffers, and the length of one.
    fn memory(&self) -> (&RegisteredBuffer, usize) {
        match self {
            Self::Own { ring, chunk_bytes, .. } => (ring, *chunk_bytes),
            Self::Shared(share) => (&share.ring.buffers, share.ring.chunk_bytes),
        }
    }
}

fn buffer_piece(memory: &RegisteredBuffer, buffer: u16, chunk_bytes: usize) -> GatherElement {
    let address = memory.address_at(usize::from(buffer) * chunk_bytes);
    GatherElement { address, bytes: chunk_bytes as u32, lkey: memory.local_key() }
}
