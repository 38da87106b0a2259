//! Entry point for fuzzing, see `crate::decoders`.

use bytes::Bytes;

use super::chunk_scanner::{ChunkScanner, ChunkStep};

/// Scans the framing of an aws-chunked body. The first two bytes are its declared length. Where the
/// body is cut into packets must make no difference.
pub fn decode_chunks(bytes: &[u8]) {
    let Some((declared, body)) = bytes.split_first_chunk::<2>() else { return };
    let declared = u64::from(u16::from_le_bytes(*declared));
    let body = Bytes::copy_from_slice(body);
    let mut whole = ChunkScanner::new(declared, 1024);
    let as_one = whole.scan_bytes(&body).and_then(|()| whole.finish()).is_ok();
    let mut pieces = ChunkScanner::new(declared, 1024);
    let step = usize::from(bytes[0] % 7) + 1;
    let cut = (0..body.len()).step_by(step).map(|at| body.slice(at..(at + step).min(body.len())));
    let in_pieces = cut
        .into_iter()
        .try_for_each(|piece| pieces.scan_bytes(&piece))
        .and_then(|()| pieces.finish())
        .is_ok();
    assert_eq!(as_one, in_pieces, "cut every {step} bytes");
    if as_one {
        let (mut again, mut rest, mut held) = (ChunkScanner::new(declared, 1024), body, 0);
        while let Ok(Some(step)) = again.next_step(&mut rest) {
            held += if let ChunkStep::Data { piece, .. } = step { piece.len() as u64 } else { 0 };
        }
        assert_eq!(held, declared, "what is whole holds what it announced");
    }
}
