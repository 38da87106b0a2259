//! Owns the seals of a session: the keyed tags by which a side knows that a chunk, or data that was
//! written into its memory, came from the peer of the handshake.
//!
//! A fabric forwards what any of its hosts sends, and a NIC takes a message whose numbers fit. A
//! seal has a key that only the two sides of one handshake know, and counts the chunks: none can
//! be made by a third host, repeated, left out or moved. Nothing is encrypted.
//!
//! Does not decide what a chunk without a seal may say (`queue_pair_wire`).

use subtle::ConstantTimeEq;

use crate::calls::{HandshakeSide, SessionKey};

/// Bytes of a tag.
pub(super) const TAG_BYTES: usize = 16;

/// A keyed tag. All zeroes where there is none.
pub(crate) type SealTag = [u8; TAG_BYTES];

/// Seals chunks of one direction, in their order.
pub(super) struct ChunkSeal {
    key: [u8; 32],
    /// Chunks sealed before the next one.
    count: u64,
}

impl ChunkSeal {
    fn new(session: &SessionKey, sender: HandshakeSide) -> Self {
        Self { key: session.derive_key(b"chunks", sender), count: 0 }
    }

    /// Returns the tag of the next chunk, over header and payload.
    pub(super) fn next_tag(&mut self, chunk: &[u8]) -> SealTag {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.count.to_le_bytes()).update(chunk);
        self.count += 1;
        first_bytes(&hasher)
    }

    #[cfg(test)]
    pub(super) fn repeat_count(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Returns true if `tag` is the one of the next chunk, which is then counted.
    pub(super) fn accepts_tag(&mut self, chunk: &[u8], tag: &SealTag) -> bool {
        self.next_tag(chunk).ct_eq(tag).into()
    }
}

/// Tags data that is written into lent memory. The header that carries the tag is in a sealed
/// chunk, so a tag holds for one part of one call.
pub(super) struct DataSeal {
    key: [u8; 32],
}

impl DataSeal {
    fn new(session: &SessionKey, sender: HandshakeSide) -> Self {
        Self { key: session.derive_key(b"data", sender) }
    }

    /// Returns the tag of the data at `offset` of the landing of `call`. Where its pieces are cut
    /// makes no difference.
    pub(super) fn compute_tag<'a>(
        &self,
        call: u64,
        offset: u64,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> SealTag {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&call.to_le_bytes()).update(&offset.to_le_bytes());
        for piece in pieces {
            hasher.update(piece);
        }
        first_bytes(&hasher)
    }

    /// Returns true if `tag` is the one of this data.
    pub(super) fn accepts_tag<'a>(
        &self,
        call: u64,
        offset: u64,
        pieces: impl Iterator<Item = &'a [u8]>,
        tag: &SealTag,
    ) -> bool {
        self.compute_tag(call, offset, pieces).ct_eq(tag).into()
    }
}

fn first_bytes(hasher: &blake3::Hasher) -> SealTag {
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
    tag
}

/// What a session's sender seals with.
pub(super) struct SenderSeals {
    pub(super) chunks: ChunkSeal,
    pub(super) data: DataSeal,
    /// Whether this side wants the data that it gets to be tagged.
    pub(super) tags_wanted: bool,
}

/// The seals of one side of a session. Each is taken by what uses it.
pub(super) struct SessionSeals {
    pub(super) chunks_sent: ChunkSeal,
    pub(super) chunks_received: ChunkSeal,
    pub(super) data_sent: DataSeal,
    pub(super) data_received: DataSeal,
}

impl SessionSeals {
    pub(super) fn new(session: &SessionKey, side: HandshakeSide) -> Self {
        let peer = side.other_side();
        Self {
            chunks_sent: ChunkSeal::new(session, side),
            chunks_received: ChunkSeal::new(session, peer),
            data_sent: DataSeal::new(session, side),
            data_received: DataSeal::new(session, peer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair_of(key: u8) -> (SessionSeals, SessionSeals) {
        let session = SessionKey::from_bytes([key; 32]);
        let (one, two) = (HandshakeSide::Requester, HandshakeSide::Server);
        (SessionSeals::new(&session, one), SessionSeals::new(&session, two))
    }

    #[test]
    fn chunks_hold_in_their_order_and_direction_alone() {
        let (mut one, mut two) = pair_of(1);
        let first = one.chunks_sent.next_tag(b"first");
        let second = one.chunks_sent.next_tag(b"second");
        assert!(!pair_of(1).1.chunks_received.accepts_tag(b"second", &second), "moved");
        assert!(!pair_of(1).0.chunks_received.accepts_tag(b"first", &first), "sent back");
        assert!(!pair_of(2).1.chunks_received.accepts_tag(b"first", &first), "another session");
        assert!(!pair_of(1).1.chunks_received.accepts_tag(b"other", &first), "changed");
        assert!(two.chunks_received.accepts_tag(b"first", &first));
        assert!(two.chunks_received.accepts_tag(b"second", &second));
        assert!(!two.chunks_received.accepts_tag(b"second", &second), "repeated");
    }

    #[test]
    fn data_holds_for_its_place_however_it_is_cut() {
        let (one, two) = pair_of(1);
        let tag = one.data_sent.compute_tag(7, 4096, [&b"abc"[..], b"def"].into_iter());
        let holds = |call, offset, data: &[u8]| {
            two.data_received.accepts_tag(call, offset, data.chunks(1), &tag)
        };
        assert!(holds(7, 4096, b"abcdef"));
        assert!(!holds(8, 4096, b"abcdef"), "another call");
        assert!(!holds(7, 0, b"abcdef"), "another place");
        assert!(!holds(7, 4096, b"abcdeF"), "other bytes");
        assert!(!one.data_received.accepts_tag(7, 4096, [&b"abcdef"[..]].into_iter(), &tag));
    }

    /// What seals cost. `-- --ignored --nocapture seal_costs` prints it.
    #[test]
    #[ignore = "measures; a busy machine tells nothing"]
    fn seal_costs() {
        const BYTES: usize = 1 << 30;
        let (mut one, _) = pair_of(1);
        for bytes in [96, 512, 4096, 8192] {
            let (chunk, count) = (vec![7; bytes], (BYTES / 8 / bytes).min(1 << 20));
            let began = std::time::Instant::now();
            for _ in 0..count {
                std::hint::black_box(one.chunks_sent.next_tag(std::hint::black_box(&chunk)));
            }
            println!("a message of {bytes} bytes: {:?}", began.elapsed() / count as u32);
        }
        for bytes in [64 << 10, 1 << 20] {
            let (data, count) = (vec![7; bytes], BYTES / bytes);
            let began = std::time::Instant::now();
            for _ in 0..count {
                let pieces = data.chunks(256 << 10);
                std::hint::black_box(one.data_sent.compute_tag(1, 0, pieces));
            }
            println!("data of {bytes} bytes: {:?}", began.elapsed() / count as u32);
        }
    }
}
