//! Owns where the rings and their cursors lie in lent memory. The client chooses; the gateway takes
//! only what lies in the memory, is aligned, and does not overlap.
//!
//! Each cursor has a cache line. A client that lays its landings over them misleads only itself:
//! the gateway keeps cursors of its own and compares.

use crate::handshake::MemoryOffer;
use crate::ring_entries::ENTRY_BYTES;

/// Most entries of a ring: what a client may have in flight.
pub const RING_ENTRIES_MAX: u32 = 4096;

/// Bytes of the control block: one cache line for each number in it.
const CONTROL_BYTES: u64 = 6 * LINE_BYTES;
const LINE_BYTES: u64 = 64;
const FLAG_BYTES: u64 = 4;

/// Where things are. Its offsets are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLayout {
    offer: MemoryOffer,
}

/// The offered layout can't be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rings are not in the memory, not aligned to 64 bytes, overlap, or have a wrong size")]
pub struct LayoutProblem;

impl RingLayout {
    /// Checks an offer against the memory's length.
    pub fn check_offer(offer: MemoryOffer, memory_bytes: u64) -> Result<Self, LayoutProblem> {
        let has_entries = offer.entries.is_power_of_two() && offer.entries <= RING_ENTRIES_MAX;
        if !has_entries || offer.page_loans > RING_ENTRIES_MAX {
            return Err(LayoutProblem);
        }
        let parts = offered_parts(offer);
        let mut ends = [0; 4];
        for (at, (offset, bytes)) in parts.into_iter().enumerate() {
            let end = offset.checked_add(bytes).filter(|&end| end <= memory_bytes);
            ends[at] = end.filter(|_| offset % LINE_BYTES == 0).ok_or(LayoutProblem)?;
        }
        for (first, second) in [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)] {
            if parts[first].0 < ends[second] && parts[second].0 < ends[first] {
                return Err(LayoutProblem);
            }
        }
        Ok(Self { offer })
    }

    /// Returns the layout that has everything at the beginning of the memory.
    pub fn at_beginning(entries: u32, page_loans: u32) -> MemoryOffer {
        let ring_bytes = u64::from(entries) * ENTRY_BYTES;
        MemoryOffer {
            control_offset: 0,
            submissions_offset: CONTROL_BYTES,
            completions_offset: CONTROL_BYTES + ring_bytes,
            entries,
            page_loans,
            page_loans_offset: CONTROL_BYTES + 2 * ring_bytes,
        }
    }

    /// Returns the entries of each ring.
    pub fn ring_entries(&self) -> u32 {
        self.offer.entries
    }

    /// Returns where the rings end, where they were laid out by `at_beginning`.
    pub fn rings_end(&self) -> u64 {
        self.offer.page_loans_offset + u64::from(self.offer.page_loans) * FLAG_BYTES
    }

    /// Returns how many answers the client may keep as pages.
    pub fn page_loans(&self) -> u32 {
        self.offer.page_loans
    }

    /// 1 once the client is done with the pages of a loan. `None`: there is no such loan.
    pub fn page_loan_flag(&self, loan: u32) -> Option<u64> {
        (loan < self.offer.page_loans)
            .then(|| self.offer.page_loans_offset + u64::from(loan) * FLAG_BYTES)
    }

    /// Returns whether a range lies over the rings or their cursors.
    pub fn overlaps_range(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.saturating_add(bytes);
        offered_parts(self.offer)
            .into_iter()
            .any(|(start, length)| offset < start + length && start < end)
    }

    /// Returns the place of a submission by its number since the beginning.
    pub fn submission_offset(&self, number: u32) -> u64 {
        self.offer.submissions_offset + self.place_of(number)
    }

    /// Returns the place of a completion by its number since the beginning.
    pub fn completion_offset(&self, number: u32) -> u64 {
        self.offer.completions_offset + self.place_of(number)
    }

    /// How many submissions the client has written.
    pub fn submitted_cursor(&self) -> u64 {
        self.offer.control_offset
    }

    /// How many submissions the gateway has taken.
    pub fn taken_cursor(&self) -> u64 {
        self.offer.control_offset + LINE_BYTES
    }

    /// How many completions the gateway has written.
    pub fn completed_cursor(&self) -> u64 {
        self.offer.control_offset + 2 * LINE_BYTES
    }

    /// How many completions the client has read.
    pub fn consumed_cursor(&self) -> u64 {
        self.offer.control_offset + 3 * LINE_BYTES
    }

    /// 1 while the gateway waits for a byte over the socket.
    pub fn gateway_sleeps_flag(&self) -> u64 {
        self.offer.control_offset + 4 * LINE_BYTES
    }

    /// 1 while the client waits for a byte over the socket.
    pub fn client_sleeps_flag(&self) -> u64 {
        self.offer.control_offset + 5 * LINE_BYTES
    }

    /// The number of entries is a power of two, so numbers may wrap around.
    fn place_of(&self, number: u32) -> u64 {
        u64::from(number & (self.offer.entries - 1)) * ENTRY_BYTES
    }
}

/// Returns offset and length of the control block, of both rings, and of the flags of loans.
fn offered_parts(offer: MemoryOffer) -> [(u64, u64); 4] {
    let ring_bytes = u64::from(offer.entries) * ENTRY_BYTES;
    [
        (offer.control_offset, CONTROL_BYTES),
        (offer.submissions_offset, ring_bytes),
        (offer.completions_offset, ring_bytes),
        (offer.page_loans_offset, u64::from(offer.page_loans) * FLAG_BYTES),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn layouts_that_leave_the_memory_or_overlap_are_refused() {
        let good = RingLayout::at_beginning(64, 16);
        let bytes = RingLayout::check_offer(good, 1 << 20).unwrap().rings_end();
        assert!(RingLayout::check_offer(good, bytes).is_ok());
        assert_eq!(RingLayout::check_offer(good, bytes - 1), Err(LayoutProblem));
        let wrong = [
            MemoryOffer { entries: 0, ..good },
            MemoryOffer { entries: 63, ..good },
            MemoryOffer { entries: 2 * RING_ENTRIES_MAX, ..good },
            MemoryOffer { control_offset: u64::MAX - 63, ..good },
            MemoryOffer { submissions_offset: u64::MAX - 63, ..good },
            MemoryOffer { completions_offset: good.submissions_offset, ..good },
            MemoryOffer { submissions_offset: good.completions_offset - 64, ..good },
            MemoryOffer { control_offset: good.submissions_offset, ..good },
            MemoryOffer { submissions_offset: good.submissions_offset + 8, ..good },
            MemoryOffer { page_loans: RING_ENTRIES_MAX + 1, ..good },
            MemoryOffer { page_loans_offset: good.completions_offset, ..good },
            MemoryOffer { page_loans_offset: (1 << 20) - 32, ..good },
            MemoryOffer { page_loans_offset: u64::MAX - 63, ..good },
        ];
        for offer in wrong {
            assert_eq!(RingLayout::check_offer(offer, 1 << 20), Err(LayoutProblem), "{offer:?}");
        }
    }

    #[test]
    fn ranges_over_the_rings_are_told_from_others() {
        let layout = RingLayout::check_offer(RingLayout::at_beginning(64, 16), 1 << 20).unwrap();
        let end = layout.rings_end();
        for (offset, bytes) in [(0, 1), (end - 1, 1), (0, u64::MAX), (end - 1, u64::MAX), (384, 9)]
        {
            assert!(layout.overlaps_range(offset, bytes), "{offset} {bytes}");
        }
        for (offset, bytes) in [(end, 1), (end, u64::MAX), (u64::MAX, 1)] {
            assert!(!layout.overlaps_range(offset, bytes), "{offset} {bytes}");
        }
    }

    #[test]
    fn numbers_that_wrap_around_stay_in_the_ring() {
        let layout = RingLayout::check_offer(RingLayout::at_beginning(64, 16), 1 << 20).unwrap();
        assert_eq!(layout.submission_offset(u32::MAX), layout.submission_offset(63));
        assert_eq!(layout.completion_offset(0), layout.completion_offset(64));
    }
}
