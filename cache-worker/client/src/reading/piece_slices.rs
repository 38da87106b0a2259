//! Cuts a range out of bytes that lie in several pieces, without a copy.

use std::ops::Range;

use bytes::Bytes;

/// Returns the range of `data`, the pieces taken as one.
pub(super) fn slice_pieces(data: &[Bytes], range: &Range<u64>) -> Vec<Bytes> {
    let mut at = 0;
    let mut wanted = Vec::with_capacity(data.len());
    for piece in data {
        let (start, end) = (at, at + piece.len() as u64);
        at = end;
        let (first, last) = (range.start.max(start), range.end.min(end));
        if first < last {
            wanted.push(piece.slice((first - start) as usize..(last - start) as usize));
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_of_pieces_is_the_slice_of_the_whole() {
        let whole: Vec<u8> = (0..100).collect();
        let pieces: Vec<Bytes> =
            [&whole[..1], &whole[1..40], &whole[40..]].map(Bytes::copy_from_slice).to_vec();
        for start in 0..100 {
            for end in start..=100 {
                let range = start as u64..end as u64;
                assert_eq!(slice_pieces(&pieces, &range).concat(), whole[start..end]);
            }
        }
    }
}
