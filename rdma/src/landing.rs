//! Owns memory that a requester lends for one reply: the cut of a landing in segments, and who may
//! see which bytes of it. Does not move bytes.
//!
//! A range of a landing passes through three states. It is *lent*: it is in the [`Landing`] and
//! nobody reads it. It is *claimed* by the transport for one part: it is in a [`LandingFill`], and
//! that transport alone writes it. It is *vouched for*: it is `Bytes`, everyone may read it, and
//! nobody writes it. It can't be claimed twice, because claiming takes it out of the landing.

use std::io::IoSliceMut;
use std::sync::Arc;

use bytes::Bytes;

use crate::arena::Arena;
use crate::foreign_memory::{BodyPlace, ClaimedRange};
use crate::memory_span::{MemoryHold, MemorySpan};

/// The rail (NIC port) that a segment is to be filled over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RailId(pub u16);

/// Lent memory: consecutive segments, addressed by one offset from 0 to `total_bytes()`.
///
/// A lent landing is out of the requester's hands until the call is settled:
///
/// ```compile_fail,E0382
/// use verbs3_rdma::{landing::Landing, transport::PeerConnection};
/// fn lent_twice(connection: &dyn PeerConnection, landing: Landing) {
///     let first = connection.start_call("a".into(), Some(landing));
///     let second = connection.start_call("b".into(), Some(landing));
/// }
/// ```
/// Nobody can look into it, before or after: only vouched-for parts are `Bytes`.
///
/// ```compile_fail,E0608
/// fn peeks(landing: verbs3_rdma::landing::Landing) -> u8 {
///     landing[0]
/// }
/// ```
pub struct Landing {
    /// Ranges that have not been claimed, by ascending offset.
    lent: Vec<LentSegment>,
    /// Holds on all of the memory, claimed or not. Pieces that are dropped early must not give back
    /// memory that the peer can still write to. The landing is dropped when its call is settled.
    held: Vec<MemoryHold>,
    /// A place in memory of another process, which some segments lie in. The others lie in the arena;
    /// device memory (dmabuf) joins later.
    foreign: Option<Arc<BodyPlace>>,
    bytes: u64,
    /// Has the last word on when its memory goes back, where a NIC writes to it.
    taker: Option<Box<dyn TakeBack>>,
}

/// A keeper of a landing's memory until the peer can't write to it any more.
pub(crate) trait TakeBack: Send {
    fn take_back(self: Box<Self>, held: Vec<MemoryHold>);
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Some(taker) = self.taker.take() {
            self.lent.clear();
            taker.take_back(std::mem::take(&mut self.held));
        }
    }
}

struct LentSegment {
    offset: u64,
    span: MemorySpan,
    #[allow(
        dead_code,
        reason = "a call lives on one rail so far: read once one is cut over several"
    )]
    rail: RailId,
}

impl LentSegment {
    fn end_offset(&self) -> u64 {
        self.offset + self.span.len() as u64
    }
}

/// Reason why a range of a landing can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LandingClaimError {
    #[error("bytes {offset} to {end} lie outside the landing of {landing_bytes} bytes")]
    Outside { offset: u64, end: u64, landing_bytes: u64 },
    #[error("bytes {offset} to {end} of the landing were written before")]
    Overlap { offset: u64, end: u64 },
}

impl Landing {
    /// Loans one segment for each of `segment_bytes` (each ≤ the arena's largest cell); all or
    /// nothing.
    pub fn allocate_segments(arena: &Arena, segment_bytes: &[usize]) -> Option<Self> {
        let mut lent = Vec::with_capacity(segment_bytes.len());
        let mut held = Vec::with_capacity(segment_bytes.len());
        let mut offset = 0;
        for &bytes in segment_bytes.iter().filter(|&&bytes| bytes > 0) {
            let span = arena.allocate_cell(bytes)?.into_span();
            held.push(span.hold_memory());
            lent.push(LentSegment { offset, span, rail: RailId(0) });
            offset += bytes as u64;
        }
        Some(Self { lent, held, foreign: None, bytes: offset, taker: None })
    }

    /// Loans one segment in memory of another process.
    pub fn in_foreign_memory(claimed: ClaimedRange) -> Self {
        let empty =
            Self { lent: Vec::new(), held: Vec::new(), foreign: None, bytes: 0, taker: None };
        empty.and_foreign_memory(claimed)
    }

    /// Adds one segment in memory of another process. All such segments are of one body.
    #[must_use]
    pub fn and_foreign_memory(mut self, claimed: ClaimedRange) -> Self {
        self.foreign = Some(claimed.body_place());
        let span = claimed.into_span();
        self.held.push(span.hold_memory());
        let (offset, bytes) = (self.bytes, span.len() as u64);
        self.lent.push(LentSegment { offset, span, rail: RailId(0) });
        self.bytes += bytes;
        self
    }

    /// Returns the place in another process's memory that a part of it lies in.
    pub(crate) fn foreign_place(&self) -> Option<&Arc<BodyPlace>> {
        self.foreign.as_ref()
    }

    /// Returns whether a part of it lies in memory of another process.
    pub fn lies_in_foreign_memory(&self) -> bool {
        self.foreign.is_some()
    }

    /// Returns the length of all segments together, claimed or not.
    pub fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the memory go back through `taker` from now on.
    pub(crate) fn taken_back_by(&mut self, taker: Box<dyn TakeBack>) {
        self.taker = Some(taker);
    }

    /// Returns address and length of each lent range, by offset, for a NIC.
    pub(crate) fn lent_ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.lent.iter().map(|lent| (lent.span.start_address(), lent.span.len()))
    }

    /// Takes a range from `offset` out, so that one part can be written into it; all or nothing.
    pub(crate) fn claim_range(
        &mut self,
        offset: u64,
        bytes: u64,
    ) -> Result<LandingFill, LandingClaimError> {
        let end = offset.saturating_add(bytes);
        if end > self.bytes {
            return Err(LandingClaimError::Outside { offset, end, landing_bytes: self.bytes });
        }
        if bytes == 0 {
            return Ok(LandingFill::default());
        }
        let first = self.lent.partition_point(|lent| lent.end_offset() <= offset);
        let mut covered = offset;
        let mut last = first;
        while covered < end {
            match self.lent.get(last) {
                Some(lent) if lent.offset <= covered => covered = lent.end_offset(),
                _ => return Err(LandingClaimError::Overlap { offset, end }),
            }
            last += 1;
        }
        Ok(self.cut_range(first, last, offset, end))
    }

    /// Cuts `offset..end` out of the lent ranges `first..last`, which cover it.
    fn cut_range(&mut self, first: usize, last: usize, offset: u64, end: u64) -> LandingFill {
        let mut spans = Vec::with_capacity(last - first);
        let mut kept = Vec::new();
        for mut lent in self.lent.drain(first..last) {
            let rail = lent.rail;
            if lent.offset < offset {
                let before = (offset - lent.offset) as usize;
                let span = lent.span.split_to(before);
                kept.push(LentSegment { offset: lent.offset, span, rail });
                lent.offset = offset;
            }
            let wanted = (end.min(lent.end_offset()) - lent.offset) as usize;
            spans.push(lent.span.split_to(wanted));
            if lent.span.len() > 0 {
                lent.offset += wanted as u64;
                kept.push(lent);
            }
        }
        self.lent.splice(first..first, kept);
        LandingFill { spans, ..LandingFill::default() }
    }
}

/// A claimed range while it is written. Dropping it gives the range up and never shows its content.
#[derive(Default)]
pub(crate) struct LandingFill {
    spans: Vec<MemorySpan>,
    /// The span that is written next; below it, how far it is written.
    at: usize,
    filled: usize,
}

impl LandingFill {
    /// Returns the bytes still to be written.
    pub(crate) fn missing_bytes(&self) -> usize {
        let left: usize = self.spans[self.at..].iter().map(MemorySpan::len).sum();
        left - self.filled
    }

    /// Puts the unwritten ranges in order into `slices`. Returns how many there are.
    pub(crate) fn unwritten_slices<'a>(&'a mut self, slices: &mut [IoSliceMut<'a>]) -> usize {
        let mut skip = self.filled;
        let mut used = 0;
        for (span, slice) in self.spans[self.at..].iter_mut().zip(slices) {
            *slice = IoSliceMut::new(&mut span.as_mut()[skip..]);
            skip = 0;
            used += 1;
        }
        used
    }

    /// Records that the next `bytes` were written.
    pub(crate) fn record_written(&mut self, mut bytes: usize) {
        while let Some(span) = self.spans.get(self.at) {
            let left = span.len() - self.filled;
            if bytes < left {
                self.filled += bytes;
                return;
            }
            bytes -= left;
            self.at += 1;
            self.filled = 0;
        }
        assert_eq!(bytes, 0, "more bytes written than were claimed");
    }

    /// Copies from `source`, as a NIC would write. Returns how many bytes fitted.
    pub(crate) fn copy_from(&mut self, source: &[u8]) -> usize {
        let mut copied = 0;
        while copied < source.len() {
            let filled = self.filled;
            let Some(span) = self.spans.get_mut(self.at) else {
                break;
            };
            let target = &mut span.as_mut()[filled..];
            let bytes = target.len().min(source.len() - copied);
            target[..bytes].copy_from_slice(&source[copied..copied + bytes]);
            copied += bytes;
            self.record_written(bytes);
        }
        copied
    }

    /// Returns the claimed memory, in order, written or not.
    pub(crate) fn claimed_slices(&mut self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter_mut().map(|span| &*span.as_mut())
    }

    /// Records that the peer has written all of it by itself.
    pub(crate) fn record_placed(&mut self) {
        self.at = self.spans.len();
        self.filled = 0;
    }

    /// Returns the written bytes, once the peer has vouched for them.
    ///
    /// # Panics
    /// When some are still missing: they would be old bytes of another call.
    pub(crate) fn into_vouched_bytes(self) -> Vec<Bytes> {
        assert_eq!(self.missing_bytes(), 0, "vouched for bytes that were not written");
        self.spans.into_iter().map(MemorySpan::freeze).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::arena::ArenaOptions;
    use proptest::prelude::*;

    fn arena() -> Arena {
        Arena::map_memory(ArenaOptions {
            capacity_bytes: 16 << 20,
            cell_bytes_max: 256 << 10,
            populate: false,
        })
        .unwrap()
    }

    #[test]
    fn a_loan_that_does_not_fit_loans_nothing() {
        let arena = arena();
        assert!(Landing::allocate_segments(&arena, &[256 << 10; 65]).is_none());
        assert_eq!(arena.arena_usage().loaned_bytes, 0);
        assert_eq!(Landing::allocate_segments(&arena, &[]).unwrap().total_bytes(), 0);
    }

    #[test]
    fn pieces_are_cut_at_segment_borders() {
        let mut landing = Landing::allocate_segments(&arena(), &[10, 10, 10]).unwrap();
        let mut fill = landing.claim_range(5, 20).unwrap();
        assert_eq!(fill.copy_from(&[7; 30]), 20);
        let lengths: Vec<_> = fill.into_vouched_bytes().iter().map(Bytes::len).collect();
        assert_eq!(lengths, [5, 10, 5]);
        assert!(landing.claim_range(0, 5).is_ok());
        assert!(landing.claim_range(25, 5).is_ok());
    }

    #[test]
    fn a_range_can_be_claimed_once() {
        let mut landing = Landing::allocate_segments(&arena(), &[10, 10]).unwrap();
        landing.claim_range(4, 4).unwrap();
        for (offset, bytes) in [(4, 4), (0, 5), (7, 2), (0, 20), (7, 13)] {
            let error = landing.claim_range(offset, bytes).err().unwrap();
            assert!(matches!(error, LandingClaimError::Overlap { .. }), "{error}");
        }
        assert!(landing.claim_range(8, 12).is_ok());
        assert!(landing.claim_range(0, 4).is_ok());
    }

    #[test]
    fn a_range_outside_is_refused_without_overflow() {
        let mut landing = Landing::allocate_segments(&arena(), &[10]).unwrap();
        for (offset, bytes) in [(0, 11), (10, 1), (u64::MAX, 1), (1, u64::MAX)] {
            let error = landing.claim_range(offset, bytes).err().unwrap();
            assert!(matches!(error, LandingClaimError::Outside { .. }), "{error}");
        }
        assert!(landing.claim_range(10, 0).is_ok());
    }

    #[test]
    fn memory_stays_loaned_until_its_landing_and_pieces_are_gone() {
        for landing_first in [true, false] {
            let arena = arena();
            let mut landing = Landing::allocate_segments(&arena, &[10]).unwrap();
            let mut fill = landing.claim_range(0, 10).unwrap();
            fill.copy_from(&[1; 10]);
            let pieces = fill.into_vouched_bytes();
            let (first, second): (Box<dyn Send>, Box<dyn Send>) = if landing_first {
                (Box::new(landing), Box::new(pieces))
            } else {
                (Box::new(pieces), Box::new(landing))
            };
            drop(first);
            assert_eq!(arena.arena_usage().asked_bytes, 10);
            drop(second);
            assert_eq!(arena.arena_usage().asked_bytes, 0);
        }
    }

    #[test]
    #[should_panic(expected = "not written")]
    fn unwritten_bytes_are_never_vouched_for() {
        let mut landing = Landing::allocate_segments(&arena(), &[10]).unwrap();
        let mut fill = landing.claim_range(0, 10).unwrap();
        fill.copy_from(&[1; 9]);
        fill.into_vouched_bytes();
    }

    proptest! {
        #[test]
        fn parts_in_any_order_give_the_bytes_that_were_written(
            segments in proptest::collection::vec(1usize..5000, 1..6),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
            order in any::<u64>(),
        ) {
            let arena = arena();
            let mut landing = Landing::allocate_segments(&arena, &segments).unwrap();
            let total = landing.total_bytes() as usize;
            let mut edges: Vec<usize> = cuts.iter().map(|cut| cut.index(total)).collect();
            edges.extend([0, total]);
            edges.sort_unstable();
            let mut parts: Vec<_> = edges.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let turn = order as usize % parts.len();
            parts.rotate_left(turn);
            let source: Vec<u8> = (0..total).map(|at| (at % 251) as u8).collect();
            let mut seen = vec![0u8; total];
            for (from, to) in parts {
                let mut fill = landing.claim_range(from as u64, (to - from) as u64).unwrap();
                prop_assert_eq!(fill.copy_from(&source[from..to]), to - from);
                let mut at = from;
                for piece in fill.into_vouched_bytes() {
                    seen[at..at + piece.len()].copy_from_slice(&piece);
                    at += piece.len();
                }
                prop_assert_eq!(at, to);
            }
            prop_assert_eq!(seen, source);
            drop(landing);
            prop_assert_eq!(arena.arena_usage().loaned_bytes, 0);
        }
    }
}
