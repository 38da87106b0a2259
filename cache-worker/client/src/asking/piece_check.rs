//! Checks a piece's bytes against its checksums, before anybody else sees them.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use verbs3_protocol::{BlockGeometry, BlockPiece};

/// Reason why a piece is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PieceCheckError {
    #[error("a piece of {length} bytes came with {got} bytes")]
    Length { length: u32, got: usize },
    #[error("a piece of {pages} pages came with {got} checksums")]
    Checksums { pages: usize, got: usize },
    #[error("page {page} of the block does not match its checksum")]
    Corrupt { page: u16 },
}

/// Checks all of `data`, however it is cut into chunks.
pub(crate) fn verify_piece(
    geometry: BlockGeometry,
    piece: &BlockPiece,
    data: &[Bytes],
) -> Result<(), PieceCheckError> {
    let got: usize = data.iter().map(Bytes::len).sum();
    if got != piece.length as usize {
        return Err(PieceCheckError::Length { length: piece.length, got });
    }
    let Some(end) = piece.start.checked_add(piece.length) else {
        return Err(PieceCheckError::Length { length: piece.length, got });
    };
    let range = piece.start..end;
    let pages = geometry.touched_pages(&range);
    // An empty range touches no page, whatever its position.
    let pages = if range.is_empty() { 0..0 } else { pages };
    if pages.len() != piece.checksums.len() {
        return Err(PieceCheckError::Checksums { pages: pages.len(), got: piece.checksums.len() });
    }
    let mut chunks = data.iter().map(|bytes| &bytes[..]);
    let mut chunk: &[u8] = &[];
    for ((page, length), &checksum) in pages.zip(geometry.page_cuts(&range)).zip(&piece.checksums) {
        if page_checksum(&mut chunk, &mut chunks, length) != checksum {
            return Err(PieceCheckError::Corrupt { page });
        }
    }
    Ok(())
}

fn page_checksum<'a>(
    chunk: &mut &'a [u8],
    chunks: &mut impl Iterator<Item = &'a [u8]>,
    mut length: usize,
) -> u64 {
    while chunk.is_empty() && length > 0 {
        *chunk = chunks.next().unwrap_or_default();
    }
    if chunk.len() >= length {
        let (page, rest) = chunk.split_at(length);
        *chunk = rest;
        return crc_fast::checksum(CrcAlgorithm::Crc64Nvme, page);
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    while length > 0 {
        if chunk.is_empty() {
            // The sum of the lengths was checked, so another chunk follows while bytes are missing.
            *chunk = chunks.next().unwrap_or_default();
            continue;
        }
        let (part, rest) = chunk.split_at(chunk.len().min(length));
        digest.update(part);
        length -= part.len();
        *chunk = rest;
    }
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verbs3_protocol::{BlockIndex, CacheVerdict};

    const GEOMETRY: BlockGeometry = BlockGeometry { block_bytes: 1 << 20, page_bytes: 64 << 10 };

    fn piece(start: u32, data: &[u8]) -> BlockPiece {
        let mut at = 0;
        let checksums = GEOMETRY
            .page_cuts(&(start..start + data.len() as u32))
            .map(|length| {
                at += length;
                crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &data[at - length..at])
            })
            .collect();
        let length = data.len() as u32;
        BlockPiece { block: BlockIndex(0), start, length, checksums, verdict: CacheVerdict::Hit }
    }

    fn cut(data: &[u8], chunk: usize) -> Vec<Bytes> {
        data.chunks(chunk).map(Bytes::copy_from_slice).collect()
    }

    proptest! {
        #[test]
        fn right_bytes_pass_however_they_are_cut(start in 0u32..200_000, length in 1usize..300_000, chunk in 1000usize..400_000) {
            let data: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
            prop_assert_eq!(verify_piece(GEOMETRY, &piece(start, &data), &cut(&data, chunk)), Ok(()));
        }

        #[test]
        fn one_wrong_bit_is_found(start in 0u32..200_000, length in 1usize..300_000, chunk in 1000usize..400_000, at in any::<proptest::sample::Index>()) {
            let mut data: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
            let piece = piece(start, &data);
            data[at.index(length)] ^= 4;
            let page = ((start as usize + at.index(length)) / (64 << 10)) as u16;
            prop_assert_eq!(verify_piece(GEOMETRY, &piece, &cut(&data, chunk)), Err(PieceCheckError::Corrupt { page }));
        }
    }

    #[test]
    fn missing_checksums_are_not_overlooked() {
        let mut piece = piece(0, &[1; 100_000]);
        piece.checksums.pop();
        assert_eq!(
            verify_piece(GEOMETRY, &piece, &cut(&[1; 100_000], 1000)),
            Err(PieceCheckError::Checksums { pages: 2, got: 1 })
        );
    }

    #[test]
    fn short_and_long_data_are_refused() {
        let piece = piece(0, &[1; 100]);
        for length in [0, 99, 101] {
            assert!(matches!(
                verify_piece(GEOMETRY, &piece, &cut(&vec![1; length], 1000)),
                Err(PieceCheckError::Length { .. })
            ));
        }
    }
}
