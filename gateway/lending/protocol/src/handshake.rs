//! Owns the messages before the first read, in their order: hello, claim, verdict, offer, verdict.
//! The offer carries the memory's descriptor. Nothing is taken from a client before its claim holds.

use crate::wire_text::{WireReader, append_text};

/// First bytes of the hello: the protocol and its version.
pub const LENDING_MAGIC: [u8; 8] = *b"V3LEND04";
/// Longest claim, without its length.
pub const CLAIM_BYTES_MAX: usize = 1024;

/// A message of the handshake is not what it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of the lending handshake is malformed")]
pub struct HandshakeProblem;

/// The gateway's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LendingHello {
    /// Drawn for this connection. One proof is made with it, and tried once.
    pub nonce: [u8; 32],
    /// Most bytes that one client may lend.
    pub memory_bytes_max: u64,
}

impl LendingHello {
    /// Length of the message.
    pub const BYTES: usize = 48;

    /// Writes the message.
    pub fn encode_hello(&self) -> Vec<u8> {
        let mut bytes = LENDING_MAGIC.to_vec();
        bytes.extend(self.nonce);
        bytes.extend(self.memory_bytes_max.to_le_bytes());
        bytes
    }

    /// Reads the message.
    pub fn decode_hello(bytes: &[u8]) -> Result<Self, HandshakeProblem> {
        let mut reader = WireReader::new(bytes);
        if reader.take_array() != Some(LENDING_MAGIC) {
            return Err(HandshakeProblem);
        }
        let hello = reader.take_array().zip(reader.take_u64());
        let (nonce, memory_bytes_max) = hello.ok_or(HandshakeProblem)?;
        Ok(Self { nonce, memory_bytes_max })
    }
}

/// What a client says of itself, and its proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityClaim {
    pub access_key: String,
    /// `YYYYMMDDTHHMMSSZ`
    pub stamp: String,
    /// `DAY/REGION/s3/aws4_request`
    pub scope: String,
    /// 64 hexadecimal digits.
    pub signature: String,
}

impl IdentityClaim {
    /// Writes the message, after its length in two bytes. `None`: a part is too long.
    pub fn encode_claim(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0, 0];
        for text in [&self.access_key, &self.stamp, &self.scope, &self.signature] {
            append_text(&mut bytes, text)?;
        }
        let length = bytes.len() - 2;
        let stated = u16::try_from(length).ok().filter(|_| length <= CLAIM_BYTES_MAX)?;
        bytes[..2].copy_from_slice(&stated.to_le_bytes());
        Some(bytes)
    }

    /// Reads the message, without its length.
    pub fn decode_claim(bytes: &[u8]) -> Result<Self, HandshakeProblem> {
        let mut reader = WireReader::new(bytes);
        let mut text = || reader.take_text().map(str::to_owned).ok_or(HandshakeProblem);
        let claim =
            Self { access_key: text()?, stamp: text()?, scope: text()?, signature: text()? };
        if reader.is_empty() { Ok(claim) } else { Err(HandshakeProblem) }
    }
}

/// Why a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LendingRefusal {
    #[error("a message of the handshake is malformed")]
    Malformed,
    #[error("there is no such access key")]
    UnknownKey,
    #[error("the signature does not hold; is the secret right, and the socket's path the same?")]
    Signature,
    #[error("the clock differs too much from the gateway's")]
    Clock,
    #[error("too many clients lend memory")]
    Clients,
    #[error("no descriptor, or more than one, came with the offer")]
    Descriptor,
    #[error(
        "the descriptor is no memfd that is sealed with F_SEAL_SHRINK and F_SEAL_GROW, and to which \
         the gateway can add F_SEAL_FUTURE_WRITE (Linux 5.1)"
    )]
    Seals,
    #[error("the memory can't be mapped to be written, or its pages are not allocated")]
    Pages,
    #[error("the memory is larger than one client may lend")]
    MemoryBytes,
    #[error("all clients together lend as much as they may")]
    MemoryTotal,
    #[error("the rings do not lie in the memory as they must")]
    Layout,
}

impl LendingRefusal {
    /// All of them. The place is the number on the wire, less one.
    const ALL: [Self; 11] = [
        Self::Malformed,
        Self::UnknownKey,
        Self::Signature,
        Self::Clock,
        Self::Clients,
        Self::Descriptor,
        Self::Seals,
        Self::Pages,
        Self::MemoryBytes,
        Self::MemoryTotal,
        Self::Layout,
    ];

    /// Returns whether the same client may be taken later.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::Clients | Self::MemoryTotal)
    }
}

/// What the gateway says to a claim and to an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LendingVerdict(pub Result<(), LendingRefusal>);

impl LendingVerdict {
    /// Length of the message.
    pub const BYTES: usize = 4;

    /// Writes the message.
    pub fn encode_verdict(self) -> [u8; 4] {
        let number = match self.0 {
            Ok(()) => 0,
            Err(refusal) => {
                let at = LendingRefusal::ALL.iter().position(|&known| known == refusal);
                at.map_or(1, |at| at as u32 + 1)
            }
        };
        number.to_le_bytes()
    }

    /// Reads the message.
    pub fn decode_verdict(bytes: [u8; 4]) -> Result<Self, HandshakeProblem> {
        match u32::from_le_bytes(bytes) as usize {
            0 => Ok(Self(Ok(()))),
            number => {
                let refusal = LendingRefusal::ALL.get(number - 1).ok_or(HandshakeProblem)?;
                Ok(Self(Err(*refusal)))
            }
        }
    }
}

/// Where the rings lie in the memory that comes with this message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOffer {
    pub control_offset: u64,
    pub submissions_offset: u64,
    pub completions_offset: u64,
    /// Entries of each ring.
    pub entries: u32,
    /// Flags of pages that the client reads where they lie: most answers that it keeps at once. 0: it
    /// wants none.
    pub page_loans: u32,
    pub page_loans_offset: u64,
}

impl MemoryOffer {
    /// Length of the message.
    pub const BYTES: usize = 40;

    /// Writes the message.
    pub fn encode_offer(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        for offset in [self.control_offset, self.submissions_offset, self.completions_offset] {
            bytes.extend(offset.to_le_bytes());
        }
        bytes.extend(self.entries.to_le_bytes());
        bytes.extend(self.page_loans.to_le_bytes());
        bytes.extend(self.page_loans_offset.to_le_bytes());
        bytes
    }

    /// Reads the message.
    pub fn decode_offer(bytes: &[u8]) -> Result<Self, HandshakeProblem> {
        let mut reader = WireReader::new(bytes);
        let mut offset = || reader.take_u64().ok_or(HandshakeProblem);
        let (control_offset, submissions_offset, completions_offset) =
            (offset()?, offset()?, offset()?);
        let entries = reader.take_u32().ok_or(HandshakeProblem)?;
        let page_loans = reader.take_u32().ok_or(HandshakeProblem)?;
        let page_loans_offset = reader.take_u64().ok_or(HandshakeProblem)?;
        Ok(Self {
            control_offset,
            submissions_offset,
            completions_offset,
            entries,
            page_loans,
            page_loans_offset,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let hello = LendingHello { nonce: [7; 32], memory_bytes_max: 1 << 40 };
        let bytes = hello.encode_hello();
        assert_eq!(bytes.len(), LendingHello::BYTES);
        assert_eq!(LendingHello::decode_hello(&bytes), Ok(hello));
        let offer = MemoryOffer {
            control_offset: 1,
            submissions_offset: 2,
            completions_offset: u64::MAX,
            entries: 64,
            page_loans: 7,
            page_loans_offset: 3,
        };
        let bytes = offer.encode_offer();
        assert_eq!(bytes.len(), MemoryOffer::BYTES);
        assert_eq!(MemoryOffer::decode_offer(&bytes), Ok(offer));
        for refusal in LendingRefusal::ALL {
            let verdict = LendingVerdict(Err(refusal));
            assert_eq!(LendingVerdict::decode_verdict(verdict.encode_verdict()), Ok(verdict));
        }
        let welcome = LendingVerdict(Ok(()));
        assert_eq!(LendingVerdict::decode_verdict(welcome.encode_verdict()), Ok(welcome));
        assert!(LendingVerdict::decode_verdict([12, 0, 0, 0]).is_err());
    }

    #[test]
    fn a_claim_is_read_whole_or_not_at_all() {
        let claim = IdentityClaim {
            access_key: "AK".into(),
            stamp: "20260101T000000Z".into(),
            scope: "20260101/us-east-1/s3/aws4_request".into(),
            signature: "0".repeat(64),
        };
        let bytes = claim.encode_claim().unwrap();
        assert_eq!(IdentityClaim::decode_claim(&bytes[2..]), Ok(claim.clone()));
        for end in 2..bytes.len() - 1 {
            assert!(IdentityClaim::decode_claim(&bytes[2..end]).is_err(), "{end}");
        }
        let longer = [&bytes[2..], b"x"].concat();
        assert!(IdentityClaim::decode_claim(&longer).is_err());
        let endless = IdentityClaim { access_key: "k".repeat(CLAIM_BYTES_MAX), ..claim };
        assert_eq!(endless.encode_claim(), None);
    }
}
