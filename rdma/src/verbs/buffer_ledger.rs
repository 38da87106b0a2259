//! Owns the ledger of a shared receive queue: who may use how many of its buffers. It is pure, so
//! that a test can prove "it never runs dry".
//!
//! Every connection has a share. The share bounds the buffers that are taken for it and not posted
//! again. The shares never sum up to more than is posted, so every credit finds a buffer.
//!
//! A queue pair that ends may have taken buffers whose completion nobody sees. Only the maximum of
//! their number is known; that many are in doubt. Devices take buffers in the order of their
//! posting. A doubt is over once all buffers posted before the queue pair's end are completed or
//! passed over. A buffer passed over for so long that nobody will complete it is lost. A lost
//! buffer's memory stays the device's. If it is completed after all, it is found again.
//!
//! A doubt lasts on a rail without traffic. Without the cluster's secret, nobody may put every
//! buffer in doubt by connecting again and again. So peers that never proved the secret share a
//! bound on what they leave in doubt. An honest peer that fails at the handshake has been heard to
//! the end. No share covers what other peers take beyond their credits; it shows when it is passed
//! over.

use std::collections::VecDeque;

/// Postings after which a buffer that is not completed counts as lost, as a multiple of all
/// buffers.
const PASSED_OVER: usize = 3;

/// Divisor of all buffers: the part that no share grows into. It is kept for new connections.
const KEPT_FOR_NEW: u32 = 8;

/// Divisor of all buffers: the part that peers which never proved the secret can leave in doubt.
const LEFT_BY_UNPROVEN: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BufferTally {
    pub(super) reserved: u32,
    pub(super) doubtful: u32,
    pub(super) lost: u32,
}

struct PostedBuffer {
    buffer: u16,
    pending: bool,
}

/// Buffers that a queue pair may have taken unseen when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BufferDoubt {
    pub(super) buffers: u32,
    /// The peer proved the secret.
    pub(super) proven: bool,
}

pub(super) struct BufferLedger {
    depth: u32,
    tally: BufferTally,
    /// Posted buffers in the order of posting, from the first that is not completed.
    order: VecDeque<PostedBuffer>,
    /// Number of the first in `order`, counting all postings.
    first: u64,
    /// The number of each buffer's last posting, by buffer.
    number: Vec<u64>,
    lost: Vec<bool>,
    /// The doubts of ended queue pairs. Each has the number of the posting that came next.
    doubts: VecDeque<(u64, BufferDoubt)>,
    /// Buffers in doubt because of peers that never proved the secret.
    unproven: u32,
}

impl BufferLedger {
    /// Makes a ledger of `depth` buffers, none of which is posted.
    pub(super) fn new(depth: u16) -> Self {
        Self {
            depth: u32::from(depth),
            tally: BufferTally::default(),
            order: VecDeque::new(),
            first: 0,
            number: vec![0; usize::from(depth)],
            lost: vec![false; usize::from(depth)],
            doubts: VecDeque::new(),
            unproven: 0,
        }
    }

    pub(super) fn current_tally(&self) -> BufferTally {
        self.tally
    }

    /// Returns the count of buffers that nobody has a right to.
    fn free_buffers(&self) -> u32 {
        let BufferTally { reserved, doubtful, lost } = self.tally;
        self.depth.saturating_sub(reserved + doubtful + lost)
    }

    /// Takes a share for a new connection. Returns `false` where there is no room for it.
    pub(super) fn reserve_share(&mut self, buffers: u32) -> bool {
        let fits = self.free_buffers() >= buffers;
        if fits {
            self.tally.reserved += buffers;
        }
        fits
    }

    /// Makes a share larger by one, where that leaves room for new connections.
    pub(super) fn grow_share(&mut self) -> bool {
        self.free_buffers() > self.depth / KEPT_FOR_NEW && self.reserve_share(1)
    }

    /// Returns true when shares should shrink, because new connections have no room.
    pub(super) fn is_scarce(&self) -> bool {
        self.free_buffers() < self.depth / KEPT_FOR_NEW / 2
    }

    pub(super) fn shrink_share(&mut self) {
        self.tally.reserved = self.tally.reserved.saturating_sub(1);
    }

    /// Releases the share of a queue pair that is gone.
    pub(super) fn release_share(&mut self, buffers: u32, mut doubt: BufferDoubt) {
        self.tally.reserved = self.tally.reserved.saturating_sub(buffers);
        doubt.buffers = doubt.buffers.min(buffers);
        if !doubt.proven {
            doubt.buffers =
                doubt.buffers.min((self.depth / LEFT_BY_UNPROVEN).saturating_sub(self.unproven));
        }
        if doubt.buffers > 0 && !self.order.is_empty() {
            self.tally.doubtful += doubt.buffers;
            self.unproven += doubt.unproven_buffers();
            self.doubts.push_back((self.first + self.order.len() as u64, doubt));
        }
    }

    /// Records a buffer given to the device.
    pub(super) fn record_post(&mut self, buffer: u16) {
        self.number[usize::from(buffer)] = self.first + self.order.len() as u64;
        self.order.push_back(PostedBuffer { buffer, pending: true });
        while self.order.len() > PASSED_OVER * self.depth as usize {
            if let Some(passed) = self.order.pop_front() {
                debug_assert!(passed.pending, "the first is never completed");
                self.first += 1;
                self.lost[usize::from(passed.buffer)] = true;
                self.tally.lost += 1;
            }
            self.settle_doubts();
        }
    }

    /// Records a buffer that came back.
    pub(super) fn record_completion(&mut self, buffer: u16) {
        if std::mem::take(&mut self.lost[usize::from(buffer)]) {
            self.tally.lost -= 1;
            return;
        }
        let place = self.number[usize::from(buffer)].checked_sub(self.first);
        if let Some(posted) =
            place.and_then(|place| self.order.get_mut(usize::try_from(place).ok()?))
        {
            posted.pending = false;
        }
        self.settle_doubts();
    }

    /// Forgets completed buffers at the front, and doubts that are over.
    fn settle_doubts(&mut self) {
        while self.order.front().is_some_and(|posted| !posted.pending) {
            self.order.pop_front();
            self.first += 1;
        }
        while let Some(&(until, doubt)) = self.doubts.front()
            && until <= self.first
        {
            self.doubts.pop_front();
            self.tally.doubtful -= doubt.buffers;
            self.unproven -= doubt.unproven_buffers();
        }
    }
}

impl BufferDoubt {
    fn unproven_buffers(self) -> u32 {
        if self.proven { 0 } else { self.buffers }
    }
}

#[cfg(test)]
mod tests;
