//! Owns the terms that two queue pairs exchange in the connection request, before any message. They
//! contain no secret, and nothing that opens memory.

use std::io;

use super::VerbsOptions;
use crate::settings::VerbsSettings;

const MAGIC: [u8; 4] = *b"vb3V";

/// Version of these terms and of the chunk layout.
const VERSION: u16 = 4;

pub(super) const TERMS_BYTES: usize = 17;

/// Its messages are marked (solicited). Releases that say nothing have not marked theirs.
const FLAG_MARKS: u8 = 1;

/// What a refusal says in place of terms when the server has no room for one more handshake. An
/// earlier release takes it for a refusal without a reason.
pub(super) const CROWDED: [u8; 4] = *b"vb3F";

/// Shortest receive buffer in bytes: a header and part of a message.
const RECEIVE_BYTES_MIN: u32 = 256;

/// Smallest path MTU of verbs, in bytes.
const PATH_MTU_MIN: u16 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueTerms {
    /// Most receive buffers that the other side gets credits for.
    pub(super) receive_count: u16,
    /// Receive buffers that it has credits for at first.
    pub(super) receive_first: u16,
    pub(super) receive_bytes: u32,
    /// Bound on the path MTU in bytes; `None` leaves it to the fabric. A side that sets a bound
    /// moves the states of its queue pair by itself. A side that accepts such a request does so
    /// too.
    pub(super) path_mtu_max: Option<u16>,
    /// This side marks its messages, so the other can be told of these alone.
    pub(super) marks_messages: bool,
}

/// What is wrong with the terms in a connection request.
#[derive(Debug, thiserror::Error)]
enum QueueTermsDefect {
    #[error("it said too little in its connection request")]
    TooShort,
    #[error("it does not speak verbs3")]
    Stranger,
    #[error("its queue pairs speak version {0}, this side {VERSION}; run the same release")]
    Version(u16),
    #[error("its path MTU is none: {0:?}")]
    PathMtu(QueueTerms),
    #[error("its receive ring is useless: {0:?}")]
    ReceiveRing(QueueTerms),
}

impl QueueTerms {
    pub(super) fn from_options(options: &VerbsOptions) -> Self {
        let VerbsSettings { receive_count, receive_buffer, path_mtu_max, .. } = options.settings;
        let receive_bytes = receive_buffer.as_u32();
        Self {
            receive_count,
            receive_first: receive_count,
            receive_bytes,
            path_mtu_max,
            marks_messages: true,
        }
    }

    /// Returns the smaller of both sides' bounds on the path MTU.
    pub(super) fn path_mtu_max(self, other: Self) -> Option<u16> {
        self.path_mtu_max.into_iter().chain(other.path_mtu_max).min()
    }

    pub(super) fn encode(self) -> [u8; TERMS_BYTES] {
        let mut bytes = [0; TERMS_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.receive_count.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.receive_bytes.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.path_mtu_max.unwrap_or(0).to_le_bytes());
        bytes[14..16].copy_from_slice(&self.receive_first.to_le_bytes());
        bytes[16] = if self.marks_messages { FLAG_MARKS } else { 0 };
        bytes
    }

    /// Decodes the private data of a connection request, which is padded.
    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let malformed = |defect| io::Error::new(io::ErrorKind::InvalidData, defect);
        let Some(bytes) = bytes.first_chunk::<TERMS_BYTES>() else {
            return Err(malformed(QueueTermsDefect::TooShort));
        };
        if bytes[..4] != MAGIC {
            return Err(malformed(QueueTermsDefect::Stranger));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(malformed(QueueTermsDefect::Version(version)));
        }
        let terms = Self {
            receive_count: u16::from_le_bytes([bytes[6], bytes[7]]),
            receive_first: u16::from_le_bytes([bytes[14], bytes[15]]),
            receive_bytes: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            path_mtu_max: Some(u16::from_le_bytes([bytes[12], bytes[13]]))
                .filter(|&bytes| bytes > 0),
            marks_messages: bytes[16] & FLAG_MARKS != 0,
        };
        if terms.path_mtu_max.is_some_and(|bytes| bytes < PATH_MTU_MIN) {
            return Err(malformed(QueueTermsDefect::PathMtu(terms)));
        }
        if terms.receive_first == 0
            || terms.receive_count < terms.receive_first
            || terms.receive_bytes < RECEIVE_BYTES_MIN
        {
            return Err(malformed(QueueTermsDefect::ReceiveRing(terms)));
        }
        Ok(terms)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn terms_survive_the_request_and_its_padding() {
        for path_mtu_max in [None, Some(1024)] {
            let terms = QueueTerms {
                receive_count: 32,
                receive_first: 4,
                receive_bytes: 8192,
                path_mtu_max,
                marks_messages: path_mtu_max.is_some(),
            };
            let mut private = terms.encode().to_vec();
            private.resize(56, 0);
            assert_eq!(QueueTerms::decode(&private).unwrap(), terms);
        }
    }

    #[test]
    fn the_smaller_bound_on_the_path_mtu_holds() {
        let terms = |path_mtu_max| QueueTerms {
            receive_count: 32,
            receive_first: 32,
            receive_bytes: 8192,
            path_mtu_max,
            marks_messages: true,
        };
        let both = |mine, theirs| terms(mine).path_mtu_max(terms(theirs));
        assert_eq!(both(None, None), None);
        assert_eq!((both(Some(1024), None), both(None, Some(1024))), (Some(1024), Some(1024)));
        assert_eq!(
            (both(Some(1024), Some(2048)), both(Some(4096), Some(512))),
            (Some(1024), Some(512))
        );
    }

    #[test]
    fn what_is_no_offer_is_refused_by_its_reason() {
        let good = QueueTerms {
            receive_count: 32,
            receive_first: 4,
            receive_bytes: 8192,
            path_mtu_max: None,
            marks_messages: true,
        }
        .encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            QueueTerms::decode(&bytes).unwrap_err().to_string()
        };
        assert!(with(0, b'x').contains("does not speak"));
        assert!(with(4, 9).contains("version 9"));
        assert!(with(6, 0).contains("useless"));
        assert!(with(14, 0).contains("useless"));
        assert!(with(14, 33).contains("useless"));
        assert!(with(12, 255).contains("path MTU"));
        assert!(QueueTerms::decode(&good[..13]).unwrap_err().to_string().contains("too little"));
    }
}
