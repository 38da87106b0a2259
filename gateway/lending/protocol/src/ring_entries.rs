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
    pub request_bytes: u32,
    /// Where the answer's head goes.
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
        entry[40..44].copy_from_slice(&self.request_bytes.to_le_bytes());
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
        let mut short = || reader.take_u32().unwrap_or_default();
        let (request_bytes, head_bytes_max) = (short(), short());
        let mut long = || reader.take_u64().unwrap_or_default();
        let (source_offset, source_bytes) = (long(), long());
        Self {
            token,
            request_offset,
            request_bytes,
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
    /// Bytes of the body that were written.
    pub body_bytes: u64,
    /// Length of the whole body, where it is known.
    pub content_bytes: u64,
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
        entry
    }

    /// Reads an entry.
    pub fn decode_completion(entry: &[u8; ENTRY_LENGTH]) -> Self {
        let mut reader = WireReader::new(entry);
        let mut long = || reader.take_u64().unwrap_or_default();
        let (token, body_bytes, content_bytes) = (long(), long(), long());
        let mut short = || reader.take_u32().unwrap_or_default();
        let (outcome, head_bytes) = (short(), short());
        Self {
            token,
            outcome: LentOutcome::from_number(outcome),
            head_bytes,
            body_bytes,
            content_bytes,
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
            };
            let entry = completion.encode_completion();
            assert_eq!(LentCompletion::decode_completion(&entry), completion);
        }
    }
}
