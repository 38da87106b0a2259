//! What is read of a peer's bytes before it has proved anything, as functions of bytes alone: for
//! the fuzz targets in `fuzz/`. Not an API.

use futures::FutureExt;

use super::frame::{HEADER_BYTES, Header, SEGMENT_BYTES, Segment};
use super::handshake::{self, Secret, Terms};

const BYTES_MAX: u32 = 64 << 10;

/// Headers and descriptors: what can be read is written as it was read.
pub fn frame(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(header) = Header::decode(head, BYTES_MAX) {
        assert_eq!(&header.encode(), head, "{header:?}");
        assert!(header.message_bytes <= BYTES_MAX);
    }
    for piece in rest.chunks_exact(SEGMENT_BYTES) {
        let piece: &[u8; SEGMENT_BYTES] = piece.try_into().expect("chunks are exact");
        assert_eq!(&Segment::decode(piece).encode(), piece);
    }
}

/// A stranger's side of a handshake: nobody who doesn't know the secret is let in.
pub fn handshake(bytes: &[u8]) {
    let secret = Secret::new(b"nobody can guess this");
    let terms = Terms {
        secret: &secret,
        name: "fuzz",
        frame_bytes_max: BYTES_MAX,
        calls_in_flight_max: 16,
        ways: "way",
    };
    let mut stream = tokio::io::join(bytes, tokio::io::sink());
    // Neither side ever waits: bytes are there or at their end, and the sink takes all.
    let ended = handshake::accept(&mut stream, &terms, || Ok(())).now_or_never();
    assert!(ended.expect("nothing is waited for").is_err(), "a stranger was let in");
}
