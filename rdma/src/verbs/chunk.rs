//! Owns the layout of a chunk, the content of one SEND: a header of eight bytes, then a piece of
//! the stream of frames, then a seal.
//!
//! Also owns the arithmetic of receive credits. It is pure, so that a test can prove "a receive
//! ring never runs dry".

use super::session_seals::TAG_BYTES;

/// Length of the header before the piece of the stream.
pub(super) const CHUNK_HEADER_BYTES: usize = 8;

/// Receive buffers beyond those that have credits. A chunk that only gives credits costs none. One
/// such chunk is sent for each half ring read, so at most two can be in flight unread (see the
/// test). The rest is reserve.
pub(super) const SPARE_RECEIVES: u16 = 4;

/// This chunk only gives credits; the sender takes none for it.
const FLAG_GRANT: u8 = 1;
/// Nothing follows.
const FLAG_END: u8 = 2;

/// The last [`TAG_BYTES`] of the message are a seal over all before them.
const FLAG_SEALED: u8 = 4;
/// The sender wants data that is written into its memory to be tagged.
const FLAG_TAGS_WANTED: u8 = 8;

const KNOWN_FLAGS: u8 = FLAG_GRANT | FLAG_END | FLAG_SEALED | FLAG_TAGS_WANTED;

/// Header of a chunk. Layout: granted (u16), flags (u8), zero (u8), payload bytes (u32), little
/// endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ChunkHeader {
    /// Receive buffers that the sender has posted again.
    pub(super) granted: u16,
    pub(super) only_grants: bool,
    pub(super) end: bool,
    pub(super) sealed: bool,
    pub(super) tags_wanted: bool,
    /// Bytes between header and seal.
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
    #[error("a message for which it had no credit")]
    Overrun,
    #[error("a message without a seal, where only sealed ones are due")]
    Unsealed,
    #[error("a message whose seal does not hold: somebody else has sent it, or changed it")]
    Seal,
}

impl ChunkHeader {
    pub(super) fn encode(self) -> [u8; CHUNK_HEADER_BYTES] {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.only_grants, FLAG_GRANT)
            | flag(self.end, FLAG_END)
            | flag(self.sealed, FLAG_SEALED)
            | flag(self.tags_wanted, FLAG_TAGS_WANTED);
        let (granted, bytes) = (self.granted.to_le_bytes(), self.payload_bytes.to_le_bytes());
        [granted[0], granted[1], flags, 0, bytes[0], bytes[1], bytes[2], bytes[3]]
    }

    /// Decodes a header. `received` is the length of the whole message in bytes.
    pub(super) fn decode(
        bytes: [u8; CHUNK_HEADER_BYTES],
        received: usize,
    ) -> Result<Self, ChunkError> {
        let has = received.checked_sub(CHUNK_HEADER_BYTES).ok_or(ChunkError::Short(received))?;
        let flags = bytes[2];
        if flags & !KNOWN_FLAGS != 0 || bytes[3] != 0 {
            return Err(ChunkError::Flags(flags));
        }
        let sealed = flags & FLAG_SEALED != 0;
        let seal_bytes = if sealed { TAG_BYTES } else { 0 };
        let has = has.checked_sub(seal_bytes).ok_or(ChunkError::Short(received))?;
        let said = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if said as usize != has {
            return Err(ChunkError::Length { said, has });
        }
        Ok(Self {
            granted: u16::from_le_bytes([bytes[0], bytes[1]]),
            only_grants: flags & FLAG_GRANT != 0,
            end: flags & FLAG_END != 0,
            sealed,
            tags_wanted: flags & FLAG_TAGS_WANTED != 0,
            payload_bytes: said,
        })
    }
}

/// Change of the peer's total credits when it gets one of them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreditChange {
    Keep,
    Grow,
    Shrink,
}

/// Credits of one connection, both directions.
#[derive(Debug, Clone)]
pub(super) struct ChunkCredits {
    /// Chunks that this side may still send.
    free: u32,
    /// Most receive buffers of the peer that get credits.
    theirs: u32,
    /// Receive buffers of this side that have credits now.
    mine: u32,
    /// Credits that the peer can spend, or has spent on a chunk that did not arrive yet.
    out: u32,
    /// Buffers posted again that the peer does not know of yet.
    owed: u32,
}

impl ChunkCredits {
    /// Lets the peer send `mine` chunks, and this side `theirs`, later up to `theirs_max`.
    pub(super) fn new(mine: u16, theirs: u16, theirs_max: u16) -> Self {
        let mine = u32::from(mine);
        Self { free: u32::from(theirs), theirs: u32::from(theirs_max), mine, out: mine, owed: 0 }
    }

    pub(super) fn may_send(&self) -> bool {
        self.free > 0
    }

    /// Returns how many chunks may still be sent.
    pub(super) fn send_credits(&self) -> u32 {
        self.free
    }

    /// Returns how many chunks of the peer may be in flight, with those that cost no credit.
    pub(super) fn arriving_max(&self) -> u32 {
        self.out + u32::from(SPARE_RECEIVES)
    }

    /// Counts an outgoing chunk that costs a credit.
    pub(super) fn spend_credit(&mut self) {
        debug_assert!(self.free > 0, "sent without a credit");
        self.free = self.free.saturating_sub(1);
    }

    /// Takes the grant that the next chunk carries.
    pub(super) fn take_grant(&mut self) -> u16 {
        let granted = self.owed.min(u32::from(u16::MAX));
        self.owed -= granted;
        self.out += granted;
        granted as u16
    }

    /// Returns true when enough is owed for a chunk of its own.
    pub(super) fn must_grant(&self) -> bool {
        self.owed >= (self.mine / 2).max(1)
    }

    /// Counts a chunk that arrived.
    pub(super) fn accept_chunk(&mut self, header: &ChunkHeader) -> Result<(), ChunkError> {
        if !header.only_grants {
            self.out = self.out.checked_sub(1).ok_or(ChunkError::Overrun)?;
        }
        let free = self.free + u32::from(header.granted);
        if free > self.theirs {
            return Err(ChunkError::Credits(free - self.theirs));
        }
        self.free = free;
        Ok(())
    }

    /// Counts a buffer that was read and posted again, after a chunk that took a credit.
    pub(super) fn record_repost(&mut self, turn: CreditChange) {
        match turn {
            CreditChange::Keep => self.owed += 1,
            CreditChange::Grow => {
                self.owed += 2;
                self.mine += 1;
            }
            CreditChange::Shrink => self.mine -= 1,
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
        let header = ChunkHeader {
            granted: 0x0102,
            only_grants: true,
            end: true,
            sealed: true,
            tags_wanted: true,
            payload_bytes: 5,
        };
        assert_eq!(header.encode(), [2, 1, 15, 0, 5, 0, 0, 0]);
        assert_eq!(ChunkHeader::decode(header.encode(), 13 + TAG_BYTES), Ok(header));
        let open = ChunkHeader { sealed: false, ..header };
        assert_eq!(ChunkHeader::decode(open.encode(), 13), Ok(open));
    }

    #[test]
    fn what_breaks_a_rule_is_refused_by_its_name() {
        let good = ChunkHeader { payload_bytes: 5, ..ChunkHeader::default() }.encode();
        assert_eq!(ChunkHeader::decode(good, 7), Err(ChunkError::Short(7)));
        assert_eq!(ChunkHeader::decode(good, 14), Err(ChunkError::Length { said: 5, has: 6 }));
        let mut flags = good;
        flags[2] = 16;
        assert_eq!(ChunkHeader::decode(flags, 13), Err(ChunkError::Flags(16)));
        let sealed = ChunkHeader { sealed: true, ..ChunkHeader::default() }.encode();
        assert_eq!(ChunkHeader::decode(sealed, 23), Err(ChunkError::Short(23)));
        assert_eq!(ChunkHeader::decode(sealed, 25), Err(ChunkError::Length { said: 0, has: 1 }));
        let mut credits = ChunkCredits::new(1, 4, 8);
        let gift = |granted| ChunkHeader { granted, only_grants: true, ..ChunkHeader::default() };
        assert_eq!(credits.accept_chunk(&gift(4)), Ok(()));
        assert_eq!(credits.accept_chunk(&gift(1)), Err(ChunkError::Credits(1)));
        assert_eq!(credits.accept_chunk(&ChunkHeader::default()), Ok(()));
        assert_eq!(credits.accept_chunk(&ChunkHeader::default()), Err(ChunkError::Overrun));
    }

    /// One side of the model: a ring, what is on the way to it, and what it wants to say.
    struct Side {
        credits: ChunkCredits,
        /// Of its own or of a shared ring: what others leave it.
        posted: u32,
        first: u32,
        share: u32,
        share_max: u32,
        arriving: VecDeque<ChunkHeader>,
        to_send: u32,
    }

    impl Side {
        fn new(mine: (u16, u16), theirs: (u16, u16), to_send: u32) -> Self {
            let credits = ChunkCredits::new(mine.0, theirs.0, theirs.1);
            let (first, share_max) = (u32::from(mine.0), u32::from(mine.1));
            let posted = first + u32::from(SPARE_RECEIVES);
            Self {
                credits,
                posted,
                first,
                share: first,
                share_max,
                arriving: VecDeque::new(),
                to_send,
            }
        }

        /// Sends one chunk if it may; takes one of the peer's receive buffers, of which there must
        /// be one.
        fn send(&mut self, peer: &mut Side) -> bool {
            let only_grants = !(self.to_send > 0 && self.credits.may_send());
            if only_grants && !self.credits.must_grant() {
                return false;
            }
            if !only_grants {
                self.credits.spend_credit();
                self.to_send -= 1;
            }
            assert!(peer.posted > 0, "the ring ran dry");
            peer.posted -= 1;
            let granted = self.credits.take_grant();
            peer.arriving.push_back(ChunkHeader { granted, only_grants, ..ChunkHeader::default() });
            true
        }

        fn read(&mut self, wish: CreditChange) -> bool {
            let Some(header) = self.arriving.pop_front() else { return false };
            self.credits.accept_chunk(&header).unwrap();
            self.posted += 1;
            if header.only_grants {
                return true;
            }
            match wish {
                CreditChange::Grow if self.share < self.share_max => {
                    (self.share, self.posted) = (self.share + 1, self.posted + 1);
                    self.credits.record_repost(CreditChange::Grow);
                }
                CreditChange::Shrink if self.share > self.first => {
                    (self.share, self.posted) = (self.share - 1, self.posted - 1);
                    self.credits.record_repost(CreditChange::Shrink);
                }
                _ => self.credits.record_repost(CreditChange::Keep),
            }
            true
        }
    }

    proptest! {
        #[test]
        fn rings_never_run_dry_and_everything_arrives(
            a in 1u16..40, b in 1u16..40, more in 0u16..60, left in 0u32..200, right in 0u32..200,
            steps in proptest::collection::vec(0u8..8, 0..600),
        ) {
            let (a, b) = ((a, a + more), (b, b + more));
            let (mut one, mut two) = (Side::new(a, b, left), Side::new(b, a, right));
            let mut step = |kind: u8| match kind {
                0 => one.send(&mut two),
                1 => two.send(&mut one),
                2 => one.read(CreditChange::Keep),
                3 => two.read(CreditChange::Keep),
                4 => one.read(CreditChange::Grow),
                5 => two.read(CreditChange::Grow),
                6 => one.read(CreditChange::Shrink),
                _ => two.read(CreditChange::Shrink),
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
