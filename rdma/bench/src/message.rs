//! Owns the messages between the two sides of a measurement, inside the measured calls. All little
//! endian.

use bytes::{BufMut, Bytes, BytesMut};

use super::transfer_cost::TransferCost;

/// Largest echoed message in bytes. It is well within the bound on messages, which also counts the
/// header around it.
pub const ECHO_BYTES_MAX: u64 = 32 << 10;

/// Length of a request's header: operation, flags, two zeroes, first page (u32), bytes (u64).
const ASK_BYTES: usize = 16;

const FLAG_WHOLE: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MeasureOperation {
    /// Sends the same message back.
    Echo,
    /// Pushes bytes into the landing.
    Read,
    /// Takes bytes from the requester.
    Write,
    /// Returns the cost to the host so far.
    Usage,
    /// Returns the host's information beside its ways.
    About,
}

const OPS: [MeasureOperation; 5] = [
    MeasureOperation::Echo,
    MeasureOperation::Read,
    MeasureOperation::Write,
    MeasureOperation::Usage,
    MeasureOperation::About,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MeasureRequest {
    pub(super) op: MeasureOperation,
    /// The host compares every byte that it takes.
    pub(super) whole: bool,
    pub(super) from: u32,
    pub(super) bytes: u64,
}

impl MeasureRequest {
    pub(super) fn from_operation(op: MeasureOperation) -> Self {
        Self { op, whole: false, from: 0, bytes: 0 }
    }

    pub(super) fn encode(self, payload: &[u8]) -> Bytes {
        let mut message = BytesMut::with_capacity(ASK_BYTES + payload.len());
        message.put_u8(OPS.iter().position(|op| *op == self.op).map_or(0, |at| at as u8 + 1));
        message.put_u8(if self.whole { FLAG_WHOLE } else { 0 });
        message.put_u16_le(0);
        message.put_u32_le(self.from);
        message.put_u64_le(self.bytes);
        message.put_slice(payload);
        message.freeze()
    }

    /// Decodes a request and its payload. Returns `None` for one that this release does not know.
    pub(super) fn decode(message: &Bytes) -> Option<(Self, Bytes)> {
        let (head, _) = message.split_first_chunk::<ASK_BYTES>()?;
        let op = *OPS.get(usize::from(head[0]).checked_sub(1)?)?;
        let from = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let bytes = u64::from_le_bytes(*head.last_chunk()?);
        Some((
            Self { op, whole: head[1] & FLAG_WHOLE != 0, from, bytes },
            message.slice(ASK_BYTES..),
        ))
    }
}

/// A response: zero and the answer, or one and the reason of the refusal.
pub(super) enum MeasureResponse {
    Fine(Bytes),
    Refused(String),
}

impl MeasureResponse {
    pub(super) fn encode(&self) -> Bytes {
        let (mark, rest) = match self {
            Self::Fine(rest) => (0, &rest[..]),
            Self::Refused(reason) => (1, reason.as_bytes()),
        };
        let mut message = BytesMut::with_capacity(1 + rest.len());
        message.put_u8(mark);
        message.put_slice(rest);
        message.freeze()
    }

    pub(super) fn decode(message: &Bytes) -> Option<Self> {
        match message.first()? {
            0 => Some(Self::Fine(message.slice(1..))),
            1 => Some(Self::Refused(String::from_utf8_lossy(&message[1..]).into_owned())),
            _ => None,
        }
    }
}

/// The host's information beside its ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BenchHostInfo {
    pub(super) page_bytes: u32,
    /// Port of the plain streams; below it, the word that opens them.
    pub(super) plain_port: u16,
    pub(super) plain_word: u64,
    /// One line for each way that the host could not open.
    pub(super) left_out: String,
}

impl BenchHostInfo {
    pub(super) fn encode(&self) -> Bytes {
        let mut message = BytesMut::new();
        message.put_u32_le(self.page_bytes);
        message.put_u16_le(self.plain_port);
        message.put_u64_le(self.plain_word);
        message.put_slice(self.left_out.as_bytes());
        message.freeze()
    }

    pub(super) fn decode(message: &Bytes) -> Option<Self> {
        let (page, rest) = message.split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let (word, rest) = rest.split_first_chunk()?;
        Some(Self {
            page_bytes: u32::from_le_bytes(*page),
            plain_port: u16::from_le_bytes(*port),
            plain_word: u64::from_le_bytes(*word),
            left_out: String::from_utf8_lossy(rest).into_owned(),
        })
    }
}

impl TransferCost {
    pub(super) fn encode(self) -> Bytes {
        let mut message = BytesMut::with_capacity(32);
        for value in [self.cpu_micros, self.work_requests, self.completions, self.copied_bytes] {
            message.put_u64_le(value);
        }
        message.freeze()
    }

    pub(super) fn decode(message: &Bytes) -> Option<Self> {
        let (values, _) = message.as_chunks::<8>();
        let value = |at: usize| values.get(at).map(|bytes| u64::from_le_bytes(*bytes));
        Some(Self {
            cpu_micros: value(0)?,
            work_requests: value(1)?,
            completions: value(2)?,
            copied_bytes: value(3)?,
        })
    }
}
