//! Owns the fuzz entry points for what is read of a peer's bytes before the peer has proved
//! anything. They are functions of bytes alone, for the fuzz targets in `fuzz/`. Not an API.

use futures::FutureExt;

use super::frame::{FrameHeader, HEADER_BYTES, MemorySegment, SEGMENT_BYTES};
use super::handshake::{self, HandshakeSecret, HandshakeTerms};
use crate::way_ticket::TicketRules;

const BYTES_MAX: u32 = 64 << 10;

/// Checks headers and descriptors: whatever decodes encodes to the same bytes again.
pub fn check_frame_bytes(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(header) = FrameHeader::decode(head, BYTES_MAX) {
        assert_eq!(&header.encode(), head, "{header:?}");
        assert!(header.message_bytes <= BYTES_MAX);
    }
    for piece in rest.chunks_exact(SEGMENT_BYTES) {
        let piece: &[u8; SEGMENT_BYTES] = piece.try_into().expect("chunks are exact");
        assert_eq!(&MemorySegment::decode(piece).encode(), piece);
    }
}

/// Checks the accepting side of a handshake: no stranger without the secret is let in.
pub fn check_handshake_bytes(bytes: &[u8]) {
    let secret = HandshakeSecret::new(b"nobody can guess this");
    let terms = HandshakeTerms {
        secret: &secret,
        name: "fuzz",
        frame_bytes_max: BYTES_MAX,
        calls_in_flight_max: 16,
        ways: "way",
        ticket: None,
        rules: Some(&TicketRules::new(false)),
    };
    let mut stream = tokio::io::join(bytes, tokio::io::sink());
    // Neither side ever waits: the bytes are there or at their end, and the sink takes everything.
    let ended = handshake::accept_handshake(&mut stream, &terms, || Ok(())).now_or_never();
    assert!(ended.expect("nothing is waited for").is_err(), "a stranger was let in");
}
