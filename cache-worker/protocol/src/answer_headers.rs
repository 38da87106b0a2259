//! Owns the headers of a store's answer as they are kept and sent: many readers share one copy.
//! Judges no name and no value.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{Error as DecodeError, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Headers of a store's answer: lower-case names and values, in the store's order. A clone shares
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnswerHeaders(Arc<[(String, Bytes)]>);

/// A value on its way to the wire.
struct HeaderSlice<'a>(&'a [u8]);

/// A value that came over the wire.
struct HeaderBytes(Bytes);

struct HeaderBytesVisitor;

impl Deref for AnswerHeaders {
    type Target = [(String, Bytes)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl AnswerHeaders {
    /// Copies names and values.
    pub fn copy_fields<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let copy = |(name, value): (&str, &[u8])| (name.to_owned(), Bytes::copy_from_slice(value));
        Self(fields.map(copy).collect())
    }

    /// Returns about how many bytes of memory they take.
    pub fn memory_bytes(&self) -> usize {
        // A string, and a value with the counter that its clones share.
        const FIELD_BYTES: usize = 104;
        self.iter().map(|(name, value)| name.len() + value.len() + FIELD_BYTES).sum()
    }

    /// Returns names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.iter().map(|(name, value)| (name.as_str(), &value[..]))
    }
}

impl Serialize for AnswerHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.fields().map(|(name, value)| (name, HeaderSlice(value))))
    }
}

impl<'de> Deserialize<'de> for AnswerHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let headers = Vec::<(String, HeaderBytes)>::deserialize(deserializer)?;
        Ok(Self(headers.into_iter().map(|(name, HeaderBytes(value))| (name, value)).collect()))
    }
}

impl Serialize for HeaderSlice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for HeaderBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(HeaderBytesVisitor)
    }
}

impl Visitor<'_> for HeaderBytesVisitor {
    type Value = HeaderBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a header's value")
    }

    fn visit_bytes<E: DecodeError>(self, value: &[u8]) -> Result<HeaderBytes, E> {
        Ok(HeaderBytes(Bytes::copy_from_slice(value)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn headers_are_on_the_wire_as_pairs_of_text_and_bytes() {
        let pairs = [("etag", &b"\"v1\""[..]), ("x-amz-meta-a", b"\xff\x00"), ("x-empty", b"")];
        let owned = |(name, value): (&str, &[u8])| (name.to_owned(), value.to_vec());
        let wire = postcard::to_allocvec(&pairs.map(owned).to_vec()).unwrap();
        let headers = AnswerHeaders::copy_fields(pairs.into_iter());
        assert!(headers.fields().eq(pairs));
        assert_eq!(postcard::to_allocvec(&headers).unwrap(), wire);
        assert_eq!(postcard::from_bytes::<AnswerHeaders>(&wire).unwrap(), headers);
        for cut in 0..wire.len() {
            assert!(postcard::from_bytes::<AnswerHeaders>(&wire[..cut]).is_err(), "{cut}");
        }
    }
}
