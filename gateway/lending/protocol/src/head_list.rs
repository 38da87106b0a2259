//! Owns what a list of HEADs asks for, and how its answers lie in lent memory: one submission, one
//! body, an answer for each name.

use crate::answer_head::{AnswerHead, HeadProblem};
use crate::read_request::{LentReadRequest, REQUEST_BYTES_MAX, RequestProblem};
use crate::wire_text::{WireReader, append_text};
use crate::write_request::{LentWriteRequest, WRITE};

/// Most names in one list.
pub const LISTED_NAMES_MAX: usize = 128;

/// The first byte of a list. Those of single reads are lower.
const HEAD_LIST: u8 = 2;

/// What is told of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadDetail {
    /// The status of its HEAD.
    Status,
    /// Status and headers of its HEAD.
    Head,
}

/// HEADs of objects of one bucket, without any header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentHeadList {
    pub detail: HeadDetail,
    pub bucket: String,
    /// Up to [`LISTED_NAMES_MAX`].
    pub keys: Vec<String>,
}

/// What a submission asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LentRequest {
    Read(LentReadRequest),
    HeadList(LentHeadList),
    Write(LentWriteRequest),
}

impl LentRequest {
    /// Reads a request out of bytes that its sender can't change any more.
    pub fn decode_request(bytes: &[u8]) -> Result<Self, RequestProblem> {
        match bytes.first() {
            Some(&HEAD_LIST) => {
                LentHeadList::read_list(bytes).map(Self::HeadList).ok_or(RequestProblem)
            }
            Some(&WRITE) => LentWriteRequest::decode_request(bytes).map(Self::Write),
            _ => LentReadRequest::decode_request(bytes).map(Self::Read),
        }
    }
}

impl LentHeadList {
    /// Writes the request. `None`: it has too many names, or is longer than [`REQUEST_BYTES_MAX`].
    pub fn encode_request(&self) -> Option<Vec<u8>> {
        let detail = match self.detail {
            HeadDetail::Status => 0,
            HeadDetail::Head => 1,
        };
        let count = u8::try_from(self.keys.len()).ok()?;
        if usize::from(count) > LISTED_NAMES_MAX {
            return None;
        }
        let mut bytes = vec![HEAD_LIST, detail, count];
        append_text(&mut bytes, &self.bucket)?;
        for key in &self.keys {
            append_text(&mut bytes, key)?;
        }
        (bytes.len() <= REQUEST_BYTES_MAX as usize).then_some(bytes)
    }

    /// Returns how many of these keys fit one request.
    pub fn count_fitting<'a>(bucket: &str, keys: impl Iterator<Item = &'a str>) -> usize {
        let mut room = (REQUEST_BYTES_MAX as usize).saturating_sub(3 + 2 + bucket.len());
        let fits = |key: &&str| match room.checked_sub(2 + key.len()) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        keys.take(LISTED_NAMES_MAX).take_while(fits).count()
    }

    fn read_list(bytes: &[u8]) -> Option<Self> {
        let mut reader = WireReader::new(bytes);
        let [_, detail, count] = reader.take_array()?;
        let detail = match detail {
            0 => HeadDetail::Status,
            1 => HeadDetail::Head,
            _ => return None,
        };
        let bucket = reader.take_text()?.to_owned();
        let mut keys = Vec::with_capacity(usize::from(count).min(LISTED_NAMES_MAX));
        for _ in 0..count {
            keys.push(reader.take_text()?.to_owned());
        }
        let is_whole = reader.is_empty()
            && !bucket.is_empty()
            && keys.len() <= LISTED_NAMES_MAX
            && keys.iter().all(|key| !key.is_empty());
        is_whole.then_some(Self { detail, bucket, keys })
    }
}

/// Encodes the answer to the name at `index` of a list: its status, and its encoded [`AnswerHead`]
/// where heads are told. Answers lie in the body one behind the other, in any order. `None`: the
/// head is too long.
pub fn encode_listed(index: u8, status: u16, head: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(7 + head.map_or(0, <[u8]>::len));
    bytes.push(index);
    bytes.extend(status.to_le_bytes());
    if let Some(head) = head {
        bytes.extend(u32::try_from(head.len()).ok()?.to_le_bytes());
        bytes.extend(head);
    }
    Some(bytes)
}

/// Reads the statuses of a list of `count` names, in the order of the names.
pub fn decode_statuses(body: &[u8], count: usize) -> Result<Vec<u16>, HeadProblem> {
    decode_listed(body, count, |_, status| Some(status))
}

/// Reads the heads of a list of `count` names, in the order of the names.
pub fn decode_heads(body: &[u8], count: usize) -> Result<Vec<AnswerHead>, HeadProblem> {
    decode_listed(body, count, |reader, status| {
        let bytes = reader.take_u32()?;
        let head = AnswerHead::decode_head(reader.take_bytes(bytes as usize)?).ok()?;
        (head.status == status).then_some(head)
    })
}

fn decode_listed<'a, T>(
    body: &'a [u8],
    count: usize,
    decode: impl Fn(&mut WireReader<'a>, u16) -> Option<T>,
) -> Result<Vec<T>, HeadProblem> {
    let mut reader = WireReader::new(body);
    let mut listed: Vec<Option<T>> = (0..count).map(|_| None).collect();
    let mut take_one = || {
        let ([index], status) = (reader.take_array()?, reader.take_u16()?);
        let place = listed.get_mut(usize::from(index)).filter(|place| place.is_none())?;
        *place = Some(decode(&mut reader, status)?);
        Some(())
    };
    (0..count).try_for_each(|_| take_one()).ok_or(HeadProblem)?;
    if !reader.is_empty() {
        return Err(HeadProblem);
    }
    // Each of as many answers has found a place of its own.
    Ok(listed.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::LentReadMethod;

    fn list(keys: &[&str]) -> LentHeadList {
        LentHeadList {
            detail: HeadDetail::Head,
            bucket: "train".into(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        }
    }

    #[test]
    fn lists_and_reads_come_back_as_they_were() {
        let asked = list(&["a", "b/\u{e9}", "a"]);
        let bytes = asked.encode_request().unwrap();
        assert_eq!(LentRequest::decode_request(&bytes), Ok(LentRequest::HeadList(asked)));
        for end in 0..bytes.len() {
            assert!(LentRequest::decode_request(&bytes[..end]).is_err(), "{end}");
        }
        let read = LentReadRequest {
            method: LentReadMethod::Head,
            bucket: "train".into(),
            key: "k".into(),
            headers: Vec::new(),
        };
        let bytes = read.encode_request().unwrap();
        assert_eq!(LentRequest::decode_request(&bytes), Ok(LentRequest::Read(read)));
    }

    #[test]
    fn lists_that_are_too_long_are_not_written_or_read() {
        let many = vec!["k"; LISTED_NAMES_MAX + 1];
        assert_eq!(list(&many).encode_request(), None);
        let mut bytes = list(&many[1..]).encode_request().unwrap();
        assert!(LentRequest::decode_request(&bytes).is_ok());
        bytes[2] += 1;
        append_text(&mut bytes, "k").unwrap();
        assert!(LentRequest::decode_request(&bytes).is_err());
        assert!(LentRequest::decode_request(&list(&[""]).encode_request().unwrap()).is_err());
    }

    #[test]
    fn as_many_keys_fit_as_are_said_to() {
        for key_bytes in [1, 40, 1000, 4000, 5000] {
            let key = "k".repeat(key_bytes);
            let keys = vec![key.as_str(); 300];
            let fitting = LentHeadList::count_fitting("train", keys.iter().copied());
            let encodes = |count: usize| list(&keys[..count]).encode_request().is_some();
            assert!(encodes(fitting) && !encodes(fitting + 1), "{key_bytes}: {fitting}");
        }
    }

    #[test]
    fn answers_come_back_in_the_order_of_the_names() {
        let answers = [(1, 404), (0, 200)];
        let statuses: Vec<u8> = answers
            .into_iter()
            .flat_map(|(index, status)| encode_listed(index, status, None).unwrap())
            .collect();
        assert_eq!(decode_statuses(&statuses, 2).unwrap(), [200, 404]);
        let heads: Vec<u8> = answers
            .into_iter()
            .flat_map(|(index, status)| {
                let pairs = [("etag", b"\"e\"".as_slice())];
                let head = AnswerHead::encode_head(status, pairs.into_iter()).unwrap();
                encode_listed(index, status, Some(&head)).unwrap()
            })
            .collect();
        let decoded = decode_heads(&heads, 2).unwrap();
        assert_eq!((decoded[1].status, decoded[1].headers.len()), (404, 1));
        for (end, count) in [(heads.len(), 1), (heads.len(), 3), (heads.len() - 1, 2)] {
            assert!(decode_heads(&heads[..end], count).is_err(), "{end} {count}");
        }
        // No name has two answers, and none goes without.
        let twice = encode_listed(0, 200, None).unwrap().repeat(2);
        assert!(decode_statuses(&twice, 2).is_err() && decode_statuses(&twice, 1).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0usize..200
        ) {
            let _ = LentHeadList::read_list(&bytes);
            let _ = decode_statuses(&bytes, count);
            let _ = decode_heads(&bytes, count);
        }
    }
}
