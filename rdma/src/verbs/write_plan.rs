//! Owns the plan of RDMA WRITEs: it maps the owner's pieces to the segments of a landing and cuts
//! at the borders of both.
//!
//! Pure. Posts nothing.

use bytes::Bytes;

use super::sys::{GatherElement, SGES_MAX};
use crate::calls::MemorySegment;

/// One RDMA WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RdmaWriteRequest {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) sges: [GatherElement; SGES_MAX],
    pub(super) sges_used: u8,
}

const NO_SGE: GatherElement = GatherElement { address: 0, bytes: 0, lkey: 0 };

/// Appends to `writes` the WRITEs that move `data` to `offset` of the memory that `target`
/// describes, in order. `lkey_of` knows the key of each piece. Returns `false` and appends nothing
/// where the target has no room there.
pub(super) fn plan_writes(
    data: &[Bytes],
    offset: u64,
    target: &[MemorySegment],
    lkey_of: impl Fn(&Bytes) -> u32,
    writes: &mut impl Extend<RdmaWriteRequest>,
) -> bool {
    let wanted: u64 = data.iter().map(|piece| piece.len() as u64).sum();
    let lent: u64 = target.iter().map(|segment| u64::from(segment.bytes)).sum();
    if offset.checked_add(wanted).is_none_or(|end| end > lent) {
        return false;
    }
    let mut pieces = data.iter().filter(|piece| !piece.is_empty());
    let (mut piece, mut lkey): (&[u8], u32) = (&[], 0);
    let (mut skip, mut left) = (offset, wanted);
    for segment in target {
        let bytes = u64::from(segment.bytes);
        if skip >= bytes {
            skip -= bytes;
            continue;
        }
        let (mut address, mut room) = (segment.address + skip, (bytes - skip).min(left));
        skip = 0;
        while room > 0 {
            let mut write = RdmaWriteRequest {
                address,
                key: segment.key,
                sges: [NO_SGE; SGES_MAX],
                sges_used: 0,
            };
            while room > 0 && usize::from(write.sges_used) < SGES_MAX {
                if piece.is_empty() {
                    let next = pieces.next();
                    piece = next.map_or(&[], |bytes| &bytes[..]);
                    lkey = next.map_or(0, &lkey_of);
                }
                // At most the segment's length, which is a u32.
                let taken = room.min(piece.len() as u64);
                write.sges[usize::from(write.sges_used)] =
                    GatherElement { address: piece.as_ptr() as u64, bytes: taken as u32, lkey };
                write.sges_used += 1;
                piece = &piece[taken as usize..];
                address += taken;
                room -= taken;
                left -= taken;
            }
            writes.extend([write]);
        }
        if left == 0 {
            break;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn segments(lengths: &[u32]) -> Vec<MemorySegment> {
        // Far apart, so that a write over a border would show.
        let at = |index: usize| 0x1000_0000 * (index as u64 + 1);
        lengths
            .iter()
            .enumerate()
            .map(|(i, &bytes)| MemorySegment { address: at(i), bytes, key: i as u32 })
            .collect()
    }

    #[test]
    fn a_page_for_a_segment_is_one_write() {
        let (data, mut writes) = (vec![Bytes::from(vec![1; 100])], Vec::new());
        assert!(plan_writes(&data, 0, &segments(&[100]), |_| 7, &mut writes));
        assert_eq!(writes.len(), 1);
        assert_eq!((writes[0].address, writes[0].key, writes[0].sges_used), (0x1000_0000, 0, 1));
        assert_eq!(
            writes[0].sges[0],
            GatherElement { address: data[0].as_ptr() as u64, bytes: 100, lkey: 7 }
        );
    }

    #[test]
    fn each_piece_goes_with_the_key_of_its_own_region() {
        let data = vec![Bytes::from(vec![1; 60]), Bytes::from(vec![2; 40])];
        let mut writes = Vec::new();
        let lkey_of = |piece: &Bytes| u32::from(piece[0]);
        assert!(plan_writes(&data, 0, &segments(&[70, 30]), lkey_of, &mut writes));
        let keys = |write: &RdmaWriteRequest| {
            write.sges[..usize::from(write.sges_used)].iter().map(|sge| sge.lkey).collect()
        };
        assert_eq!(writes.iter().map(keys).collect::<Vec<Vec<u32>>>(), [vec![1, 2], vec![2]]);
    }

    #[test]
    fn what_does_not_fit_is_refused_whole() {
        let (data, mut writes) = (vec![Bytes::from(vec![1; 100])], Vec::new());
        for (offset, lengths) in [(1, &[100][..]), (0, &[50, 49]), (u64::MAX, &[100]), (0, &[])] {
            assert!(!plan_writes(&data, offset, &segments(lengths), |_| 0, &mut writes));
        }
        assert!(writes.is_empty());
    }

    proptest! {
        #[test]
        fn every_byte_goes_to_its_place_once(
            pieces in proptest::collection::vec(0usize..300, 0..12),
            lengths in proptest::collection::vec(1u32..300, 1..12),
            offset in 0u64..400,
        ) {
            let data: Vec<Bytes> =
                pieces.iter().map(|&bytes| Bytes::from(vec![0; bytes])).collect();
            let target = segments(&lengths);
            let mut writes: Vec<RdmaWriteRequest> = Vec::new();
            let total: u64 = pieces.iter().sum::<usize>() as u64;
            let lent: u64 = lengths.iter().map(|&bytes| u64::from(bytes)).sum();
            let fits = offset + total <= lent;
            prop_assert_eq!(plan_writes(&data, offset, &target, |_| 1, &mut writes), fits);
            // The places of the source in order, and of the landing in order, walk side by side.
            let from = data
                .iter()
                .flat_map(|piece| (0..piece.len()).map(|at| piece.as_ptr() as u64 + at as u64));
            let to = target
                .iter()
                .flat_map(|s| (0..u64::from(s.bytes)).map(|at| (s.key, s.address + at)));
            let expected: Vec<_> =
                if fits { from.zip(to.skip(offset as usize)).collect() } else { vec![] };
            let mut moved = Vec::new();
            for write in &writes {
                prop_assert!(write.sges_used > 0);
                let mut at = write.address;
                for sge in &write.sges[..usize::from(write.sges_used)] {
                    prop_assert!(sge.bytes > 0);
                    for byte in 0..u64::from(sge.bytes) {
                        moved.push((sge.address + byte, (write.key, at)));
                        at += 1;
                    }
                }
            }
            prop_assert_eq!(moved, expected);
        }
    }
}
