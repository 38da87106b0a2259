//! Owns the layout of a frame on the wire: 64 bytes of header, then memory descriptors, then a
//! message, then data.
//!
//! Also owns the checks that need no state (bounds, fields that a kind must leave zero). Does no
//! I/O, allocates nothing, and never panics, whatever the bytes are.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version in the handshake: of the frames, of their order, *and* of the messages in them. Raise it
/// with every change that the other side must know. Peers of different versions refuse each other.
pub const PROTOCOL_VERSION: u32 = 7;

pub(crate) const HEADER_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"vb3F";

/// This part settles the call.
const FLAG_LAST: u8 = 1;
/// The call ends before memory that `Wanted` lent has been filled. The requester acknowledges with
/// `CancelAck`.
const FLAG_PULL_OPEN: u8 = 2;
/// The data does not follow in the stream. It was written into lent memory, or is handed over by
/// descriptors.
const FLAG_PLACED: u8 = 4;

/// Descriptors that one frame may carry: enough for a block of 16 MiB in pages of 16 KiB.
pub(crate) const SEGMENTS_MAX: u32 = 1024;

/// Length of one descriptor on the wire.
pub(crate) const SEGMENT_BYTES: usize = 16;

/// A piece of memory that the other side may name. It is lent to be written to (`Call`, `Wanted`),
/// or handed over (`Part`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemorySegment {
    /// Start of the piece: the owner's virtual address (verbs), or the offset in the owner's arena
    /// (shm).
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// The remote key (verbs), or the token that gives the piece back (shm).
    pub(crate) key: u32,
}

impl MemorySegment {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_BYTES] {
        let wire = WireSegment {
            address: self.address.into(),
            bytes: self.bytes.into(),
            key: self.key.into(),
        };
        zerocopy::transmute!(wire)
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_BYTES]) -> Self {
        let wire: &WireSegment = zerocopy::transmute_ref!(bytes);
        Self { address: wire.address.get(), bytes: wire.bytes.get(), key: wire.key.get() }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct WireSegment {
    address: U64,
    bytes: U32,
    key: U32,
}

const _: () = assert!(size_of::<WireSegment>() == SEGMENT_BYTES);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct WireHeader {
    magic: [u8; 4],
    kind: u8,
    flags: u8,
    reserved: U16,
    message_bytes: U32,
    /// Count of the descriptors between header and message.
    segments: U32,
    call: U64,
    offset: U64,
    data_bytes: U64,
    /// Bytes of the landing (`Call`) or of the memory lent for a push (`Wanted`).
    lent_bytes: U64,
    /// Keyed tag of data that was written into lent memory (`Part`), or zeroes.
    data_tag: [u8; 16],
}

const _: () = assert!(size_of::<WireHeader>() == HEADER_BYTES);

/// The kind of a frame, and its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Welcome = 4,
    Reject = 5,
    Call = 16,
    Part = 17,
    Wanted = 18,
    Push = 19,
    Cancel = 20,
    CancelAck = 21,
    Fail = 22,
    Goodbye = 23,
    /// Gives handed-over memory back (shm); `call` names it.
    Release = 24,
}

impl FrameKind {
    fn from_wire(kind: u8) -> Option<Self> {
        Some(match kind {
            1 => Self::Hello,
            2 => Self::Challenge,
            3 => Self::Proof,
            4 => Self::Welcome,
            5 => Self::Reject,
            16 => Self::Call,
            17 => Self::Part,
            18 => Self::Wanted,
            19 => Self::Push,
            20 => Self::Cancel,
            21 => Self::CancelAck,
            22 => Self::Fail,
            23 => Self::Goodbye,
            24 => Self::Release,
            _ => return None,
        })
    }

    fn is_handshake(self) -> bool {
        (self as u8) < Self::Call as u8
    }

    fn allows_field(self, field: HeaderField) -> bool {
        match field {
            HeaderField::Call => !self.is_handshake() && self != Self::Goodbye,
            HeaderField::Offset => self == Self::Part,
            HeaderField::Data => matches!(self, Self::Part | Self::Push),
            HeaderField::Lent => matches!(self, Self::Call | Self::Wanted),
            HeaderField::Segments => matches!(self, Self::Call | Self::Wanted | Self::Part),
            HeaderField::Message => !matches!(
                self,
                Self::Push | Self::Cancel | Self::CancelAck | Self::Goodbye | Self::Release
            ),
        }
    }

    fn flags_allowed(self) -> u8 {
        match self {
            Self::Part => FLAG_LAST | FLAG_PULL_OPEN | FLAG_PLACED,
            Self::Push => FLAG_PLACED,
            Self::Fail => FLAG_PULL_OPEN,
            _ => 0,
        }
    }
}

/// A field of a header that not every kind of frame uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderField {
    Call,
    Offset,
    Data,
    Lent,
    Segments,
    Message,
}

/// Reason why 64 bytes are no header of this protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("this is no verbs3 frame: it begins with {0:02x?}")]
    Magic([u8; 4]),
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error("{kind:?} frame with flags {flags:#04x}")]
    Flags { kind: FrameKind, flags: u8 },
    #[error("{0:?} frame with reserved fields that are not zero")]
    Reserved(FrameKind),
    #[error("{kind:?} frame must not carry {field:?}")]
    Unexpected { kind: FrameKind, field: HeaderField },
    #[error("message of {bytes} bytes; the bound is {bytes_max}")]
    Message { bytes: u32, bytes_max: u32 },
    #[error("{count} descriptors in one frame; the bound is {SEGMENTS_MAX}")]
    Segments { count: u32 },
}

/// A decoded header. Fields that a kind doesn't use are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    pub(crate) last: bool,
    pub(crate) pull_open: bool,
    /// The data does not travel in the stream.
    pub(crate) placed: bool,
    pub(crate) segments: u32,
    pub(crate) message_bytes: u32,
    pub(crate) call: u64,
    pub(crate) offset: u64,
    pub(crate) data_bytes: u64,
    pub(crate) lent_bytes: u64,
    pub(crate) data_tag: [u8; 16],
}

impl FrameHeader {
    pub(crate) fn new(kind: FrameKind, call: u64) -> Self {
        Self {
            kind,
            last: false,
            pull_open: false,
            placed: false,
            segments: 0,
            message_bytes: 0,
            call,
            offset: 0,
            data_bytes: 0,
            lent_bytes: 0,
            data_tag: [0; 16],
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.last, FLAG_LAST)
            | flag(self.pull_open, FLAG_PULL_OPEN)
            | flag(self.placed, FLAG_PLACED);
        let wire = WireHeader {
            magic: MAGIC,
            kind: self.kind as u8,
            flags,
            reserved: U16::ZERO,
            message_bytes: self.message_bytes.into(),
            segments: self.segments.into(),
            call: self.call.into(),
            offset: self.offset.into(),
            data_bytes: self.data_bytes.into(),
            lent_bytes: self.lent_bytes.into(),
            data_tag: self.data_tag,
        };
        zerocopy::transmute!(wire)
    }

    pub(crate) fn decode(
        bytes: &[u8; HEADER_BYTES],
        message_bytes_max: u32,
    ) -> Result<Self, FrameError> {
        let wire: &WireHeader = zerocopy::transmute_ref!(bytes);
        if wire.magic != MAGIC {
            return Err(FrameError::Magic(wire.magic));
        }
        let kind = FrameKind::from_wire(wire.kind).ok_or(FrameError::Kind(wire.kind))?;
        let flags = wire.flags;
        if flags & !kind.flags_allowed() != 0 {
            return Err(FrameError::Flags { kind, flags });
        }
        let may_be_tagged = kind == FrameKind::Part && flags & FLAG_PLACED != 0;
        if wire.reserved.get() != 0 || !may_be_tagged && wire.data_tag != [0; 16] {
            return Err(FrameError::Reserved(kind));
        }
        let header = Self {
            kind,
            last: flags & FLAG_LAST != 0,
            pull_open: flags & FLAG_PULL_OPEN != 0,
            placed: flags & FLAG_PLACED != 0,
            segments: wire.segments.get(),
            message_bytes: wire.message_bytes.get(),
            call: wire.call.get(),
            offset: wire.offset.get(),
            data_bytes: wire.data_bytes.get(),
            lent_bytes: wire.lent_bytes.get(),
            data_tag: wire.data_tag,
        };
        header.check_fields(message_bytes_max)?;
        Ok(header)
    }

    fn check_fields(&self, bytes_max: u32) -> Result<(), FrameError> {
        let kind = self.kind;
        for (field, value) in [
            (HeaderField::Call, self.call),
            (HeaderField::Offset, self.offset),
            (HeaderField::Data, self.data_bytes),
            (HeaderField::Lent, self.lent_bytes),
            (HeaderField::Segments, u64::from(self.segments)),
            (HeaderField::Message, u64::from(self.message_bytes)),
        ] {
            if value != 0 && !kind.allows_field(field) {
                return Err(FrameError::Unexpected { kind, field });
            }
        }
        if self.message_bytes > bytes_max {
            return Err(FrameError::Message { bytes: self.message_bytes, bytes_max });
        }
        if self.segments > SEGMENTS_MAX {
            return Err(FrameError::Segments { count: self.segments });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const MAX: u32 = 1 << 16;

    #[test]
    fn a_part_survives_the_wire() {
        let part = FrameHeader {
            last: true,
            message_bytes: 17,
            offset: 1 << 40,
            data_bytes: 3,
            ..FrameHeader::new(FrameKind::Part, 9)
        };
        assert_eq!(FrameHeader::decode(&part.encode(), MAX), Ok(part));
    }

    #[test]
    fn the_layout_is_what_the_version_promises() {
        let call = FrameHeader {
            message_bytes: 0x0102,
            lent_bytes: 0x0A0B,
            ..FrameHeader::new(FrameKind::Call, 7)
        };
        let bytes = call.encode();
        assert_eq!(&bytes[..16], b"vb3F\x10\0\0\0\x02\x01\0\0\0\0\0\0");
        assert_eq!(bytes[16], 7);
        assert_eq!(&bytes[40..42], &[0x0B, 0x0A]);
        assert!(bytes[48..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn bytes_that_break_a_rule_are_refused_by_its_name() {
        let good = FrameHeader::new(FrameKind::Cancel, 1).encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            FrameHeader::decode(&bytes, MAX).unwrap_err()
        };
        assert!(matches!(with(0, b'G'), FrameError::Magic(_)));
        assert_eq!(with(4, 99), FrameError::Kind(99));
        assert!(matches!(with(5, 1), FrameError::Flags { .. }));
        assert_eq!(with(63, 1), FrameError::Reserved(FrameKind::Cancel));
        assert!(matches!(with(32, 1), FrameError::Unexpected { field: HeaderField::Data, .. }));
        assert!(matches!(with(8, 1), FrameError::Unexpected { field: HeaderField::Message, .. }));
        let many =
            FrameHeader { segments: SEGMENTS_MAX + 1, ..FrameHeader::new(FrameKind::Call, 1) };
        assert!(matches!(
            FrameHeader::decode(&many.encode(), MAX),
            Err(FrameError::Segments { .. })
        ));
        let described = FrameHeader { segments: 1, ..FrameHeader::new(FrameKind::Push, 1) };
        let refused = FrameHeader::decode(&described.encode(), MAX).unwrap_err();
        assert!(matches!(refused, FrameError::Unexpected { field: HeaderField::Segments, .. }));
        let long = FrameHeader { message_bytes: MAX + 1, ..FrameHeader::new(FrameKind::Call, 1) };
        assert!(matches!(
            FrameHeader::decode(&long.encode(), MAX),
            Err(FrameError::Message { .. })
        ));
    }

    #[test]
    fn a_descriptor_survives_the_wire() {
        let segment =
            MemorySegment { address: 0x0102_0304_0506_0708, bytes: 0x090A_0B0C, key: 0x0D0E_0F10 };
        let bytes = segment.encode();
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1, 0x0C, 0x0B, 0x0A, 9, 0x10, 0x0F, 0x0E, 0x0D]);
        assert_eq!(MemorySegment::decode(&bytes), segment);
    }

    proptest! {
        #[test]
        fn any_64_bytes_decode_or_are_refused(
            mut bytes in any::<[u8; HEADER_BYTES]>(),
            framed in any::<bool>(),
            plain in any::<bool>(),
        ) {
            if framed {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            if plain {
                bytes[4] %= 25;
                bytes[5..8].fill(0);
                bytes[10..16].fill(0);
                bytes[12] = bytes[0] % 2;
                bytes[48..].fill(0);
            }
            if let Ok(header) = FrameHeader::decode(&bytes, MAX) {
                prop_assert_eq!(header.encode(), bytes);
                prop_assert!(header.message_bytes <= MAX);
            }
        }
    }
}
