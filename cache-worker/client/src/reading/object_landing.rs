//! Makes what bytes of an object land in: memory of this process, and the place that another one has
//! lent for them.

use verbs3_protocol::{BlockGeometry, ByteRange};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::landing::Landing;

use crate::reading::span_request::ObjectBytesPlace;

/// Makes a landing of the segments `cut` for an object's bytes from `at` on, in their place where
/// they have one and `at` is known. The first `held_max` bytes of an object never land there: they
/// may be all of an object that is held for others too. `None`: no memory is left.
pub(super) fn make_landing(
    arena: &Arena,
    place: Option<&ObjectBytesPlace>,
    at: Option<u64>,
    cut: &[usize],
    held_max: u64,
) -> Option<Landing> {
    let bytes: u64 = cut.iter().map(|&length| length as u64).sum();
    let claim = |place: &ObjectBytesPlace| {
        let at = at?;
        let own = if at == 0 { held_max.min(bytes) } else { 0 };
        let claimed = place.claim_range(at + own, (bytes - own) as u32)?;
        Some((own as usize, claimed))
    };
    let Some((own, claimed)) = place.and_then(claim) else {
        return Landing::allocate_segments(arena, cut);
    };
    let own = Landing::allocate_segments(arena, &own_cut(cut, own))?;
    Some(own.and_foreign_memory(claimed))
}

/// Returns the first `bytes` of the segments `cut`.
fn own_cut(cut: &[usize], bytes: usize) -> Vec<usize> {
    let mut left = bytes;
    let taken = cut.iter().map(|&length| {
        let taken = length.min(left);
        left -= taken;
        taken
    });
    taken.take_while(|&taken| taken > 0).collect()
}

/// Returns the segments to lend for a range of block 0. They end at page borders where the start is
/// known, and are no longer than the range.
pub(super) fn landing_cut(geometry: BlockGeometry, want: ByteRange, bytes_max: u32) -> Vec<usize> {
    let (start, length) = match want {
        ByteRange::All => (0, u64::from(bytes_max)),
        ByteRange::From { first, last } => {
            (first, last.map_or(u64::MAX, |last| last.saturating_sub(first).saturating_add(1)))
        }
        ByteRange::Suffix { bytes } => (0, bytes),
    };
    // `start` lies in block 0, see `touches_first_block`.
    let start = start.min(u64::from(geometry.block_bytes)) as u32;
    let length =
        length.min(u64::from(bytes_max)).min(u64::from(geometry.block_bytes - start)) as u32;
    geometry.page_cuts(&(start..start + length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: BlockGeometry = BlockGeometry::DEFAULT;

    #[test]
    fn a_landing_is_no_longer_than_the_range() {
        let from = |first, last| landing_cut(GEOMETRY, ByteRange::From { first, last }, 1 << 20);
        assert_eq!(from(10, Some(19)), [10]);
        assert_eq!(from((256 << 10) - 1, Some(256 << 10)), [1, 1]);
        assert_eq!(from(0, None), [256 << 10; 4]);
        assert_eq!(from((4 << 20) - 5, None), [5]);
        assert_eq!(landing_cut(GEOMETRY, ByteRange::Suffix { bytes: 7 }, 1 << 20), [7]);
        assert_eq!(landing_cut(GEOMETRY, ByteRange::All, 1 << 20), [256 << 10; 4]);
    }

    #[test]
    fn absurd_ranges_do_not_overflow() {
        assert_eq!(
            landing_cut(GEOMETRY, ByteRange::From { first: 0, last: Some(u64::MAX) }, 1 << 20)
                .len(),
            4
        );
        assert_eq!(
            landing_cut(GEOMETRY, ByteRange::From { first: u64::MAX, last: Some(0) }, 1 << 20),
            [0usize; 0]
        );
        assert_eq!(landing_cut(GEOMETRY, ByteRange::Suffix { bytes: u64::MAX }, 1 << 20).len(), 4);
    }

    #[test]
    fn the_beginning_of_an_object_lies_in_own_segments() {
        assert_eq!(own_cut(&[10, 10, 10], 0), [0; 0]);
        assert_eq!(own_cut(&[10, 10, 10], 10), [10]);
        assert_eq!(own_cut(&[10, 10, 10], 15), [10, 5]);
        assert_eq!(own_cut(&[10, 10], 40), [10, 10]);
    }
}
