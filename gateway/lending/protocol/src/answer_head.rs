//! Owns the head of an answer as it lies in lent memory: status and headers. Values are bytes, as
//! HTTP has them.

use crate::wire_text::WireReader;

/// Status and headers of one answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnswerHead {
    pub status: u16,
    /// Lower-case names. A name may come several times.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// The head is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the head of an answer in lent memory is malformed")]
pub struct HeadProblem;

impl AnswerHead {
    /// Writes a head. `None`: a name or value is longer than 64 KiB, or there are too many.
    pub fn encode_head<'a>(
        status: u16,
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend(status.to_le_bytes());
        bytes.extend([0, 0]);
        let mut count = 0_u16;
        for (name, value) in headers {
            for part in [name.as_bytes(), value] {
                bytes.extend(u16::try_from(part.len()).ok()?.to_le_bytes());
                bytes.extend(part);
            }
            count = count.checked_add(1)?;
        }
        bytes[2..4].copy_from_slice(&count.to_le_bytes());
        Some(bytes)
    }

    /// Reads a head.
    pub fn decode_head(bytes: &[u8]) -> Result<Self, HeadProblem> {
        Self::read_head(bytes).ok_or(HeadProblem)
    }

    fn read_head(bytes: &[u8]) -> Option<Self> {
        let mut reader = WireReader::new(bytes);
        let (status, count) = (reader.take_u16()?, reader.take_u16()?);
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = reader.take_text()?.to_owned();
            let value_bytes = usize::from(reader.take_u16()?);
            headers.push((name, reader.take_bytes(value_bytes)?.to_vec()));
        }
        reader.is_empty().then_some(Self { status, headers })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_head_comes_back_as_it_was() {
        let pairs = [("etag", b"\"e\"".as_slice()), ("x-amz-meta-a", b"\xff")];
        let bytes = AnswerHead::encode_head(206, pairs.into_iter()).unwrap();
        let head = AnswerHead::decode_head(&bytes).unwrap();
        assert_eq!(head.status, 206);
        assert_eq!(head.headers[1], ("x-amz-meta-a".to_owned(), vec![0xff]));
        for end in 0..bytes.len() {
            assert!(AnswerHead::decode_head(&bytes[..end]).is_err(), "{end}");
        }
    }
}
