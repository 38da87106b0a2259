//! Owns the headers of a store's answer as they are kept and sent: in one piece of memory, which
//! many readers share. A worker keeps those of a million objects. Judges no name and no value.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Error as DecodeError, SeqAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Headers of a store's answer: lower-case names and values, in the store's order. A clone shares
/// them.
///
/// Each is the length of its name, that of its value (32 bits each), name and value.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AnswerHeaders(Arc<[u8]>);

/// A value on its way to the wire.
struct HeaderSlice<'a>(&'a [u8]);

/// Headers that are being put together.
#[derive(Default)]
struct PackedHeaders(Vec<u8>);

/// Takes all headers from the wire, one of them, its name, or its value.
struct HeadersVisitor;
struct HeaderPairSeed<'a>(&'a mut PackedHeaders);
struct HeaderNameSeed<'a>(&'a mut PackedHeaders);
struct HeaderValueSeed<'a> {
    packed: &'a mut PackedHeaders,
    /// Where its header begins.
    start: usize,
}

/// Both lengths of a header.
const LENGTHS_BYTES: usize = 8;

impl PackedHeaders {
    /// Begins a header with its name. Its value has to follow.
    fn push_name(&mut self, name: &str) {
        self.push_length(name.len());
        self.push_length(0);
        self.0.extend_from_slice(name.as_bytes());
    }

    /// Ends the header that begins at `start`.
    fn push_value(&mut self, start: usize, value: &[u8]) {
        let length = length_bytes(value.len());
        self.0[start + length.len()..start + LENGTHS_BYTES].copy_from_slice(&length);
        self.0.extend_from_slice(value);
    }

    fn push_length(&mut self, length: usize) {
        self.0.extend_from_slice(&length_bytes(length));
    }

    fn into_headers(self) -> AnswerHeaders {
        AnswerHeaders(self.0.into())
    }
}

/// No header of HTTP, and no message between members, is as long as 4 GiB.
fn length_bytes(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a header is shorter than 4 GiB").to_ne_bytes()
}

impl AnswerHeaders {
    /// Copies names and values.
    pub fn copy_fields<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut packed = PackedHeaders::default();
        for (name, value) in fields {
            let start = packed.0.len();
            packed.push_name(name);
            packed.push_value(start, value);
        }
        packed.into_headers()
    }

    /// Returns about how many bytes of memory they take.
    pub fn memory_bytes(&self) -> usize {
        // The counters that clones share, and what the allocator keeps.
        const SHARED_BYTES: usize = 32;
        self.0.len() + SHARED_BYTES
    }

    /// Returns how many there are.
    pub fn field_count(&self) -> usize {
        self.fields().count()
    }

    /// Returns names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (name_bytes, behind) = rest.split_first_chunk()?;
            let (value_bytes, behind) = behind.split_first_chunk()?;
            let length = |bytes: &[u8; 4]| u32::from_ne_bytes(*bytes) as usize;
            let (name, behind) = behind.split_at_checked(length(name_bytes))?;
            let (value, behind) = behind.split_at_checked(length(value_bytes))?;
            rest = behind;
            Some((std::str::from_utf8(name).ok()?, value))
        })
    }

    /// Returns names and values that share this memory.
    pub fn shared_fields(&self) -> impl Iterator<Item = (&str, Bytes)> {
        let shared = Bytes::from_owner(self.0.clone());
        self.fields().map(move |(name, value)| (name, shared.slice_ref(value)))
    }
}

impl fmt::Debug for AnswerHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.fields().map(|(name, value)| (name, value.escape_ascii().to_string())))
            .finish()
    }
}

impl Serialize for AnswerHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.fields().map(|(name, value)| (name, HeaderSlice(value)));
        let mut sequence = serializer.serialize_seq(Some(self.field_count()))?;
        for field in fields {
            sequence.serialize_element(&field)?;
        }
        sequence.end()
    }
}

impl<'de> Deserialize<'de> for AnswerHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(HeadersVisitor)
    }
}

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = AnswerHeaders;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("headers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<AnswerHeaders, A::Error> {
        let mut packed = PackedHeaders::default();
        while pairs.next_element_seed(HeaderPairSeed(&mut packed))?.is_some() {}
        Ok(packed.into_headers())
    }
}

impl<'de> DeserializeSeed<'de> for HeaderPairSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_tuple(2, self)
    }
}

impl<'de> Visitor<'de> for HeaderPairSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header's name and value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<(), A::Error> {
        let start = self.0.0.len();
        let missing = || A::Error::custom("a header without a name or a value");
        pair.next_element_seed(HeaderNameSeed(self.0))?.ok_or_else(missing)?;
        pair.next_element_seed(HeaderValueSeed { packed: self.0, start })?.ok_or_else(missing)
    }
}

impl<'de> DeserializeSeed<'de> for HeaderNameSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for HeaderNameSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header's name")
    }

    fn visit_str<E: DecodeError>(self, name: &str) -> Result<(), E> {
        self.0.push_name(name);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for HeaderValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for HeaderValueSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a header's value")
    }

    fn visit_bytes<E: DecodeError>(self, value: &[u8]) -> Result<(), E> {
        self.packed.push_value(self.start, value);
        Ok(())
    }
}

impl Serialize for HeaderSlice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
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
        assert!(headers.shared_fields().eq(pairs.map(|(name, value)| (name, value.into()))));
        assert_eq!(headers.field_count(), 3);
        assert_eq!(postcard::to_allocvec(&headers).unwrap(), wire);
        assert_eq!(postcard::from_bytes::<AnswerHeaders>(&wire).unwrap(), headers);
        for cut in 0..wire.len() {
            assert!(postcard::from_bytes::<AnswerHeaders>(&wire[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn headers_take_little_more_memory_than_their_text() {
        let pairs = [
            ("etag", "\"0123456789abcdef0123456789abcdef\""),
            ("content-type", "binary/octet-stream"),
        ];
        let headers =
            AnswerHeaders::copy_fields(pairs.iter().map(|&(name, value)| (name, value.as_bytes())));
        let text: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert_eq!(headers.0.len(), text + pairs.len() * LENGTHS_BYTES);
        assert!(AnswerHeaders::default().fields().next().is_none());
        assert_eq!(AnswerHeaders::copy_fields([].into_iter()), AnswerHeaders::default());
    }
}
