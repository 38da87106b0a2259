//! Where messages arrive: in a ring of a connection's own, or in buffers that all connections of a
//! rail share.
//!
//! Owns the buffers and their posting. How many chunks a peer may send is `chunk`'s arithmetic, who
//! may use how many shared buffers is that of `shares`.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;

use super::VerbsOptions;
use super::chunk::{SPARE_RECEIVES, Turn};
use super::rail::OpenRail;
use super::shares::{Doubt, Shares, Tally};
use super::sys::{Buffer, CmId, Domain, Sge, SharedQueue};
use crate::metrics::{GaugeGuard, metrics};

/// Set in the id of a receive request; the rest is the number of its buffer.
pub(super) const RECEIVE: u64 = 1 << 63;

/// Credits that the peer of a new connection has, where buffers are shared; fewer where it is to
/// have fewer at most.
const FIRST_CREDITS: u16 = 4;

/// The shared buffers of a rail.
pub(super) struct SharedRing {
    /// Gone before the memory.
    queue: Arc<SharedQueue>,
    buffers: Buffer,
    chunk_bytes: usize,
    depth: u16,
    state: Mutex<(Shares, Gauges)>,
    _depth: GaugeGuard,
}

impl SharedRing {
    pub(super) fn new(
        rail: &str,
        domain: &Arc<Domain>,
        options: &VerbsOptions,
    ) -> io::Result<Self> {
        let (depth, chunk_bytes) = (options.shared_receives, options.receive_bytes as usize);
        let queue = Arc::new(SharedQueue::new(domain.clone(), u32::from(depth))?);
        let buffers = Buffer::new(domain.clone(), usize::from(depth) * chunk_bytes)?;
        let gauge = |state: &str| metrics().shared_receives.with_label_values(&[rail, state]);
        let ring = Self {
            queue,
            buffers,
            chunk_bytes,
            depth,
            state: Mutex::new((Shares::new(depth), Gauges::new(gauge))),
            _depth: GaugeGuard::add(&gauge("all"), u64::from(depth)),
        };
        for buffer in 0..depth {
            ring.post(&mut ring.state.lock().0, buffer)?;
        }
        Ok(ring)
    }

    /// Under the lock, so that the order is that of the queue.
    fn post(&self, shares: &mut Shares, buffer: u16) -> io::Result<()> {
        let piece = piece(&self.buffers, buffer, self.chunk_bytes);
        // SAFETY: the queue is dropped before the buffers. A buffer is posted when it is new, or by
        // the one who has read its chunk or found it unread; until its completion nobody reads it.
        unsafe { self.queue.post(RECEIVE | u64::from(buffer), piece) }?;
        shares.posted(buffer);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn tally(&self) -> Tally {
        self.state.lock().0.tally()
    }

    fn give_back(&self, buffer: u16) -> io::Result<()> {
        let mut state = self.state.lock();
        self.post(&mut state.0, buffer)?;
        self.show(&mut state);
        Ok(())
    }

    fn show(&self, (shares, gauges): &mut (Shares, Gauges)) {
        gauges.show(shares.tally());
    }
}

/// What one ring puts into the gauges of its rail.
struct Gauges {
    shown: Tally,
    reserved: IntGauge,
    doubtful: IntGauge,
    lost: IntGauge,
}

impl Gauges {
    fn new(gauge: impl Fn(&str) -> IntGauge) -> Self {
        Self {
            shown: Tally::default(),
            reserved: gauge("reserved"),
            doubtful: gauge("doubtful"),
            lost: gauge("lost"),
        }
    }

    fn show(&mut self, now: Tally) {
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

impl Drop for Gauges {
    fn drop(&mut self) {
        self.show(Tally::default());
    }
}

/// One connection's share of a ring.
pub(super) struct Share {
    ring: Arc<SharedRing>,
    first_credits: u16,
    /// Buffers that it is good for, and what may be taken unseen when it ends.
    state: Mutex<Extent>,
}

#[derive(Default)]
struct Extent {
    buffers: u32,
    buffers_max: u32,
    doubt: Doubt,
}

impl Share {
    fn of(ring: &Arc<SharedRing>, options: &VerbsOptions) -> Option<Self> {
        let first_credits = FIRST_CREDITS.min(options.receive_count);
        let spare = u32::from(SPARE_RECEIVES);
        let extent = Extent {
            buffers: u32::from(first_credits) + spare,
            buffers_max: u32::from(options.receive_count) + spare,
            doubt: Doubt::default(),
        };
        let mut state = ring.state.lock();
        let fits = state.0.begin(extent.buffers);
        ring.show(&mut state);
        drop(state);
        fits.then(|| Self { ring: ring.clone(), first_credits, state: Mutex::new(extent) })
    }

    /// Posts a buffer whose chunk was read. A chunk that took a credit is the moment to change the
    /// share.
    fn repost(&self, buffer: u16, took_a_credit: bool) -> io::Result<Turn> {
        let (mut extent, mut state) = (self.state.lock(), self.ring.state.lock());
        self.ring.post(&mut state.0, buffer)?;
        let first = u32::from(self.first_credits + SPARE_RECEIVES);
        let turn = if !took_a_credit {
            Turn::Keep
        } else if extent.buffers < extent.buffers_max && state.0.grow() {
            extent.buffers += 1;
            Turn::Grow
        } else if extent.buffers > first && state.0.is_scarce() {
            extent.buffers -= 1;
            state.0.shrink();
            Turn::Shrink
        } else {
            Turn::Keep
        };
        self.ring.show(&mut state);
        Ok(turn)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let extent = self.state.get_mut();
        let mut state = self.ring.state.lock();
        state.0.end(extent.buffers, extent.doubt);
        self.ring.show(&mut state);
    }
}

/// The receive buffers of one connection.
pub(super) enum Receives {
    Own { ring: Buffer, count: u16, chunk_bytes: usize },
    Shared(Share),
}

impl Receives {
    /// Of a new connection: shared where the rail has such and there is room.
    pub(super) fn new(rail: &OpenRail, options: &VerbsOptions) -> io::Result<Self> {
        if let Some(share) = rail.shared.as_ref().and_then(|ring| Share::of(ring, options)) {
            return Ok(Self::Shared(share));
        }
        let (count, chunk_bytes) =
            (options.receive_count + SPARE_RECEIVES, options.receive_bytes as usize);
        let ring = Buffer::new(rail.domain.clone(), usize::from(count) * chunk_bytes)?;
        Ok(Self::Own { ring, count, chunk_bytes })
    }

    pub(super) fn queue(&self) -> Option<&Arc<SharedQueue>> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(share) => Some(&share.ring.queue),
        }
    }

    /// Buffers that can be completed and not looked at. A peer that keeps to no credit could take
    /// all that are shared: it must not overrun the completion queue, where they would be lost.
    pub(super) fn completions_max(&self) -> u32 {
        match self {
            Self::Own { count, .. } => u32::from(*count),
            Self::Shared(share) => u32::from(share.ring.depth),
        }
    }

    /// Depth of the queue pair's own receive queue.
    pub(super) fn own_depth(&self) -> u32 {
        match self {
            Self::Own { count, .. } => u32::from(*count),
            Self::Shared(_) => 0,
        }
    }

    /// Credits that the peer begins with.
    pub(super) fn first_credits(&self) -> u16 {
        match self {
            Self::Own { count, .. } => count - SPARE_RECEIVES,
            Self::Shared(share) => share.first_credits,
        }
    }

    /// Posts all of a ring.
    pub(super) fn fill(&self, id: &CmId) -> io::Result<()> {
        match self {
            Self::Own { count, .. } => (0..*count).try_for_each(|buffer| self.post_own(id, buffer)),
            Self::Shared(_) => Ok(()),
        }
    }

    fn post_own(&self, id: &CmId, buffer: u16) -> io::Result<()> {
        let Self::Own { ring, chunk_bytes, .. } = self else {
            return Ok(());
        };
        let piece = piece(ring, buffer, *chunk_bytes);
        // SAFETY: the ring lives as long as the wire, which destroys the queue pair before. A
        // buffer is posted when it is new, or when its chunk was read to the end; until its
        // completion nobody reads it.
        unsafe { id.post_receive(RECEIVE | u64::from(buffer), piece) }
    }

    /// A buffer is this side's, filled or not.
    pub(super) fn completed(&self, buffer: u16) {
        if let Self::Shared(share) = self {
            let mut state = share.ring.state.lock();
            state.0.completed(buffer);
            share.ring.show(&mut state);
        }
    }

    /// Gives a buffer that was read back to the NIC; `None` for the id of a queue pair that is
    /// gone.
    pub(super) fn repost(
        &self,
        id: Option<&CmId>,
        buffer: u16,
        took_a_credit: bool,
    ) -> io::Result<Turn> {
        match (self, id) {
            (Self::Own { .. }, Some(id)) => self.post_own(id, buffer).map(|()| Turn::Keep),
            (Self::Own { .. }, None) => Ok(Turn::Keep),
            (Self::Shared(share), _) => share.repost(buffer, took_a_credit && id.is_some()),
        }
    }

    /// Gives a buffer back that nobody will read. One that can't be posted is not used again.
    pub(super) fn give_back(&self, buffer: u16) {
        if let Self::Shared(share) = self {
            let _ = share.ring.give_back(buffer);
        }
    }

    /// The queue pair is gone; buffers may have been taken for chunks whose completion nobody sees.
    pub(super) fn end(&self, doubt: Doubt) {
        if let Self::Shared(share) = self {
            share.state.lock().doubt = doubt;
        }
    }

    /// Copies from `at` of a buffer.
    pub(super) fn read(&self, buffer: u16, at: usize, to: &mut [u8]) {
        let (memory, chunk_bytes) = match self {
            Self::Own { ring, chunk_bytes, .. } => (ring, *chunk_bytes),
            Self::Shared(share) => (&share.ring.buffers, share.ring.chunk_bytes),
        };
        memory.read(usize::from(buffer) * chunk_bytes + at, to);
    }
}

fn piece(memory: &Buffer, buffer: u16, chunk_bytes: usize) -> Sge {
    let address = memory.address(usize::from(buffer) * chunk_bytes);
    Sge { address, bytes: chunk_bytes as u32, lkey: memory.lkey() }
}
