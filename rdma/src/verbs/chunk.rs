//! What one SEND carries: eight bytes of its own, then a piece of the stream of frames.
//!
//! Owns the layout, and the arithmetic of receive credits: pure, so that "a receive ring never runs dry" is a test.

/// Before the piece of the stream.
pub(super) const CHUNK_HEADER_BYTES: usize = 8;

/// Receive buffers beyond those that credits are given for. A chunk that only gives credits costs none: one is sent for
/// each half ring that was read, so at most two can be on their way unread (see the test), and the rest is reserve.
pub(super) const SPARE_RECEIVES: u16 = 4;

/// The sender takes no credit for this chunk: it only gives some.
const FLAG_GRANT: u8 = 1;
/// Nothing follows.
const FLAG_END: u8 = 2;

const KNOWN_FLAGS: u8 = FLAG_GRANT | FLAG_END;

/// Layout: granted (u16), flags (u8), zero (u8), payload bytes (u32), little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ChunkHeader {
    /// Receive buffers that the sender has posted again.
    pub(super) granted: u16,
    pub(super) only_grants: bool,
    pub(super) end: bool,
    pub(super) payload_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChunkError {
    #[error("a message of {0} bytes, less than its header")]
    Short(usize),
    #[error("a message with unknown flags {0:#04x}")]
    Flags(u8),
    #[error("a message that says {said} bytes and has {has}")]
    Length { said: u32, has: usize },
    #[error("{0} more credits than there are receive buffers")]
    Credits(u32),
}

impl ChunkHeader {
    pub(super) fn encode(self) -> [u8; CHUNK_HEADER_BYTES] {
        let flags = if self.only_grants { FLAG_GRANT } else { 0 } | if self.end { FLAG_END } else { 0 };
        let (granted, bytes) = (self.granted.to_le_bytes(), self.payload_bytes.to_le_bytes());
        [granted[0], granted[1], flags, 0, bytes[0], bytes[1], bytes[2], bytes[3]]
    }

    /// `received` is the length of the whole message.
    pub(super) fn decode(bytes: [u8; CHUNK_HEADER_BYTES], received: usize) -> Result<Self, ChunkError> {
        let has = received.checked_sub(CHUNK_HEADER_BYTES).ok_or(ChunkError::Short(received))?;
        let flags = bytes[2];
        if flags & !KNOWN_FLAGS != 0 || bytes[3] != 0 {
            return Err(ChunkError::Flags(flags));
        }
        let said = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if said as usize != has {
            return Err(ChunkError::Length { said, has });
        }
        Ok(Self {
            granted: u16::from_le_bytes([bytes[0], bytes[1]]),
            only_grants: flags & FLAG_GRANT != 0,
            end: flags & FLAG_END != 0,
            payload_bytes: said,
        })
    }
}

/// Credits of one connection, both directions.
#[derive(Debug, Clone)]
pub(super) struct Credits {
    /// Chunks that this side may still send.
    free: u32,
    /// Receive buffers of the peer that credits are given for.
    theirs: u32,
    /// Receive buffers of this side that credits are given for.
    mine: u32,
    /// Buffers posted again for which the peer has not been told.
    owed: u32,
}

impl Credits {
    pub(super) fn new(mine: u16, theirs: u16) -> Self {
        Self { free: u32::from(theirs), theirs: u32::from(theirs), mine: u32::from(mine), owed: 0 }
    }

    pub(super) fn may_send(&self) -> bool {
        self.free > 0
    }

    /// Chunks that may still be sent.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// A chunk that costs a credit goes out.
    pub(super) fn spend(&mut self) {
        debug_assert!(self.free > 0, "sent without a credit");
        self.free = self.free.saturating_sub(1);
    }

    /// What the next chunk tells the peer.
    pub(super) fn grant(&mut self) -> u16 {
        let granted = self.owed.min(u32::from(u16::MAX));
        self.owed -= granted;
        granted as u16
    }

    /// So much is owed that it is worth a chunk of its own.
    pub(super) fn must_grant(&self) -> bool {
        self.owed >= (self.mine / 2).max(1)
    }

    /// A chunk arrived.
    pub(super) fn received(&mut self, header: &ChunkHeader) -> Result<(), ChunkError> {
        let free = self.free + u32::from(header.granted);
        if free > self.theirs {
            return Err(ChunkError::Credits(free - self.theirs));
        }
        self.free = free;
        Ok(())
    }

    /// The buffer of a chunk was read and posted again.
    pub(super) fn reposted(&mut self, header: &ChunkHeader) {
        if !header.only_grants {
            self.owed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_header_survives_the_wire() {
        let header = ChunkHeader { granted: 0x0102, only_grants: true, end: true, payload_bytes: 5 };
        assert_eq!(header.encode(), [2, 1, 3, 0, 5, 0, 0, 0]);
        assert_eq!(ChunkHeader::decode(header.encode(), 13), Ok(header));
    }

    #[test]
    fn what_breaks_a_rule_is_refused_by_its_name() {
        let good = ChunkHeader { payload_bytes: 5, ..ChunkHeader::default() }.encode();
        assert_eq!(ChunkHeader::decode(good, 7), Err(ChunkError::Short(7)));
        assert_eq!(ChunkHeader::decode(good, 14), Err(ChunkError::Length { said: 5, has: 6 }));
        let mut flags = good;
        flags[2] = 4;
        assert_eq!(ChunkHeader::decode(flags, 13), Err(ChunkError::Flags(4)));
        let mut credits = Credits::new(8, 8);
        let gift = ChunkHeader { granted: 1, ..ChunkHeader::default() };
        assert_eq!(credits.received(&gift), Err(ChunkError::Credits(1)));
    }

    /// One side of the model: a ring, what is on the way to it, and what it wants to say.
    struct Side {
        credits: Credits,
        posted: u32,
        arriving: VecDeque<ChunkHeader>,
        to_send: u32,
    }

    impl Side {
        fn new(mine: u16, theirs: u16, to_send: u32) -> Self {
            let posted = u32::from(mine) + u32::from(SPARE_RECEIVES);
            Self { credits: Credits::new(mine, theirs), posted, arriving: VecDeque::new(), to_send }
        }

        /// Sends one chunk if it may; takes one of the peer's receive buffers, of which there must be one.
        fn send(&mut self, peer: &mut Side) -> bool {
            let only_grants = !(self.to_send > 0 && self.credits.may_send());
            if only_grants && !self.credits.must_grant() {
                return false;
            }
            if !only_grants {
                self.credits.spend();
                self.to_send -= 1;
            }
            assert!(peer.posted > 0, "the ring ran dry");
            peer.posted -= 1;
            let granted = self.credits.grant();
            peer.arriving.push_back(ChunkHeader { granted, only_grants, ..ChunkHeader::default() });
            true
        }

        fn read(&mut self) -> bool {
            let Some(header) = self.arriving.pop_front() else { return false };
            self.credits.received(&header).unwrap();
            self.posted += 1;
            self.credits.reposted(&header);
            true
        }
    }

    proptest! {
        #[test]
        fn rings_never_run_dry_and_everything_arrives(
            a in 1u16..40, b in 1u16..40, left in 0u32..200, right in 0u32..200, steps in proptest::collection::vec(0u8..4, 0..600),
        ) {
            let (mut one, mut two) = (Side::new(a, b, left), Side::new(b, a, right));
            let mut step = |kind: u8| match kind {
                0 => one.send(&mut two),
                1 => two.send(&mut one),
                2 => one.read(),
                _ => two.read(),
            };
            for kind in steps {
                step(kind);
            }
            // Whatever happened, going on fairly delivers all.
            while (0..4).fold(false, |moved, kind| step(kind) | moved) {}
            prop_assert_eq!((one.to_send, two.to_send), (0, 0));
        }
    }
}
