//! Owns what one entry of a ring says: a read or write that is wanted, or that is over. Entries are
//! copied out whole before they are read.

use crate::wire_text::WireReader;

/// Length of an entry of either ring.
pub const ENTRY_BYTES: u64 = 64;
const ENTRY_LENGTH: usize = ENTRY_BYTES as usize;

/// A read that a client wants, or a write. All offsets are into its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LentSubmission {
    /// The client's name for it; comes back with the completion.
    pub token: u64,
    pub request_offset: u64,
    pub request_bytes: u16,
    /// The body may stay where it is, in pages that the client maps.
    pub takes_pages: bool,
    /// Where the answer's head goes, and behind it the list of segments.
    pub head_offset: u64,
    pub head_bytes_max: u32,
    /// Where the answer's body goes.
    pub body_offset: u64,
    pub body_bytes_max: u64,
    /// Where the body of a write lies. Nothing of reads.
    pub source_offset: u64,
    pub source_bytes: u64,
}

impl LentSubmission {
    /// Writes the entry.
    pub fn encode_submission(&self) -> [u8; ENTRY_LENGTH] {
        let mut entry = [0; ENTRY_LENGTH];
        entry[..8].copy_from_slice(&self.token.to_le_bytes());
        entry[8..16].copy_from_slice(&self.request_offset.to_le_bytes());
        entry[16..24].copy_from_slice(&self.head_offset.to_le_bytes());
        entry[24..32].copy_from_slice(&self.body_offset.to_le_bytes());
        entry[32..40].copy_from_slice(&self.body_bytes_max.to_le_bytes());
        entry[40..42].copy_from_slice(&self.request_bytes.to_le_bytes());
        entry[42] = self.takes_pages.into();
        entry[44..48].copy_from_slice(&self.head_bytes_max.to_le_bytes());
        entry[48..56].copy_from_slice(&self.source_offset.to_le_bytes());
        entry[56..64].copy_from_slice(&self.source_bytes.to_le_bytes());
        entry
    }

    /// Reads an entry. Any bytes are one; whether its ranges can be is to be checked.
    pub fn decode_submission(entry: &[u8; ENTRY_LENGTH]) -> Self {
        let mut reader = WireReader::new(entry);
        let mut long = || reader.take_u64().unwrap_or_default();
        let (token, request_offset, head_offset) = (long(), long(), long());
        let (body_offset, body_bytes_max) = (long(), long());
        let request_bytes = reader.take_u16().unwrap_or_default();
        let takes_pages = reader.take_u16().unwrap_or_default() & 1 != 0;
        let head_bytes_max = reader.take_u32().unwrap_or_default();
        let mut long = || reader.take_u64().unwrap_or_default();
        let (source_offset, source_bytes) = (long(), long());
        Self {
            token,
            request_offset,
            request_bytes,
            takes_pages,
            head_offset,
            head_bytes_max,
            body_offset,
            body_bytes_max,
            source_offset,
            source_bytes,
        }
    }
}

/// How a read ended, or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LentOutcome {
    /// Head and body are whole, whatever the status is.
    Answered = 0,
    /// The body is longer than its place. The head is there, nothing of the body.
    BodyTooLong = 1,
    /// The head is longer than its place. Nothing is there.
    HeadTooLong = 2,
    /// The body ended before its end. What is there is not to be used.
    BodyCut = 3,
    /// The submission or its request can't be read. Nothing is there.
    Malformed = 4,
    /// The gateway could not answer. Nothing is to be used.
    Failed = 5,
}

impl LentOutcome {
    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Answered,
            1 => Self::BodyTooLong,
            2 => Self::HeadTooLong,
            3 => Self::BodyCut,
            4 => Self::Malformed,
            _ => Self::Failed,
        }
    }
}

/// A read that is over. Its landing is the client's again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LentCompletion {
    pub token: u64,
    pub outcome: LentOutcome,
    /// Bytes of the head that were written.
    pub head_bytes: u32,
    /// Bytes of the body that are there.
    pub body_bytes: u64,
    /// Length of the whole body, where it is known.
    pub content_bytes: u64,
    /// Where some of the body lies in pages: which loan that is, and how many segments are listed
    /// behind the head. Elsewhere all of it lies in its place in the lent memory.
    pub page_loan: Option<PageLoanEntry>,
}

/// An answer that lies in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLoanEntry {
    pub loan: u32,
    pub segments: u32,
}

/// Bytes of a segment in the list behind a head.
pub const SEGMENT_BYTES: usize = 24;

/// A part of a body. The list has them in the body's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodySegment {
    /// The number of the memory that it is in. [`LENT_SOURCE`]: the lent memory.
    pub source: u32,
    pub offset: u64,
    pub bytes: u64,
}

/// The number that stands for the lent memory. Others begin at 1.
pub const LENT_SOURCE: u32 = 0;

impl BodySegment {
    /// Writes it.
    pub fn encode_segment(&self) -> [u8; SEGMENT_BYTES] {
        let mut bytes = [0; SEGMENT_BYTES];
        bytes[..4].copy_from_slice(&self.source.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads one. Any bytes are one; whether it lies in its memory is to be checked.
    pub fn decode_segment(bytes: &[u8; SEGMENT_BYTES]) -> Self {
        let mut reader = WireReader::new(bytes);
        let (source, _) = (reader.take_u32().unwrap_or_default(), reader.take_u32());
        let mut long = || reader.take_u64().unwrap_or_default();
        Self { source, offset: long(), bytes: long() }
    }
}

impl LentCompletion {
    /// Writes the entry.
    pub fn encode_completion(&self) -> [u8; ENTRY_LENGTH] {
        let mut entry = [0; ENTRY_LENGTH];
        entry[..8].copy_from_slice(&self.token.to_le_bytes());
        entry[8..16].copy_from_slice(&self.body_bytes.to_le_bytes());
        entry[16..24].copy_from_slice(&self.content_bytes.to_le_bytes());
        entry[24..28].copy_from_slice(&(self.outcome as u32).to_le_bytes());
        entry[28..32].copy_from_slice(&self.head_bytes.to_le_bytes());
        if let Some(PageLoanEntry { loan, segments }) = self.page_loan {
            entry[32..36].copy_from_slice(&loan.to_le_bytes());
            entry[36..40].copy_from_slice(&segments.to_le_bytes());
        }
        entry
    }

    /// Reads an entry.
    pub fn decode_completion(entry: &[u8; ENTRY_LENGTH]) -> Self {
        let mut reader = WireReader::new(entry);
        let mut long = || reader.take_u64().unwrap_or_default();
        let (token, body_bytes, content_bytes) = (long(), long(), long());
        let mut short = || reader.take_u32().unwrap_or_default();
        let (outcome, head_bytes, loan, segments) = (short(), short(), short(), short());
        Self {
            token,
            outcome: LentOutcome::from_number(outcome),
            head_bytes,
            body_bytes,
            content_bytes,
            page_loan: (segments > 0).then_some(PageLoanEntry { loan, segments }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were() {
        let submission = LentSubmission {
            token: 1,
            request_offset: 2,
            request_bytes: 3,
            takes_pages: true,
            head_offset: 4,
            head_bytes_max: 5,
            body_offset: u64::MAX,
            body_bytes_max: 7,
            source_offset: u64::MAX - 1,
            source_bytes: 8,
        };
        let entry = submission.encode_submission();
        assert_eq!(LentSubmission::decode_submission(&entry), submission);
        for outcome in [
            LentOutcome::Answered,
            LentOutcome::BodyTooLong,
            LentOutcome::HeadTooLong,
            LentOutcome::BodyCut,
            LentOutcome::Malformed,
            LentOutcome::Failed,
        ] {
            let completion = LentCompletion {
                token: 9,
                outcome,
                head_bytes: 8,
                body_bytes: 7,
                content_bytes: 6,
                page_loan: Some(PageLoanEntry { loan: 5, segments: 4 }),
            };
            let entry = completion.encode_completion();
            assert_eq!(LentCompletion::decode_completion(&entry), completion);
        }
        let segment = BodySegment { source: 3, offset: u64::MAX, bytes: 1 << 40 };
        assert_eq!(BodySegment::decode_segment(&segment.encode_segment()), segment);
    }
}
