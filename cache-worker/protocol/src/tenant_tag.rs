//! Names the tenant for whom a question is asked, in so many bytes and not more.
//!
//! A name means the same to every gateway; a number would not. The weight comes with it: gateways
//! read both from their identities files, and a worker has no list of its own to disagree with. A
//! gateway is believed, since it has proven the cluster's secret. Its clients never write a tag.

use std::fmt;
use std::hash::Hasher;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siphasher::sip::SipHasher13;

/// Longest name of a tenant on the wire.
pub const TENANT_NAME_BYTES_MAX: usize = 64;

/// Largest weight of a tenant.
pub const TENANT_WEIGHT_MAX: u16 = 1000;

/// Bytes of a longer name that are kept. Its hash follows.
const NAME_PREFIX_BYTES: usize = TENANT_NAME_BYTES_MAX - 17;

/// The tenant for whom a question is asked, and its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantTag {
    pub name: TenantName,
    /// Its share of what is scarce, relative to the others' weights: 1 to [`TENANT_WEIGHT_MAX`].
    pub weight: u16,
}

/// The name of a tenant, without an allocation: 1 to [`TENANT_NAME_BYTES_MAX`] bytes of UTF-8.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TenantName {
    length: u8,
    bytes: [u8; TENANT_NAME_BYTES_MAX],
}

impl TenantTag {
    /// Makes a tag. `None`: the name is empty.
    pub fn new(name: &str, weight: u32) -> Option<Self> {
        let weight = weight.clamp(1, TENANT_WEIGHT_MAX.into()) as u16;
        Some(Self { name: TenantName::new(name)?, weight })
    }
}

impl TenantName {
    /// Makes a name. Of a longer one the end is replaced by a hash, which is the same at every
    /// gateway. `None`: it is empty.
    pub fn new(name: &str) -> Option<Self> {
        if name.is_empty() {
            return None;
        }
        if name.len() <= TENANT_NAME_BYTES_MAX {
            return Some(Self::from_short(name));
        }
        let prefix = &name[..name.floor_char_boundary(NAME_PREFIX_BYTES)];
        let mut short = Self::from_short(prefix);
        let mut length = prefix.len();
        let hash = hash_name(name.as_bytes());
        let digits =
            (0..16).rev().map(|digit| b"0123456789abcdef"[(hash >> (4 * digit)) as usize & 15]);
        for byte in std::iter::once(b'#').chain(digits) {
            short.bytes[length] = byte;
            length += 1;
        }
        short.length = length as u8;
        Some(short)
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)])
            .expect("a name is made of whole characters")
    }

    /// Returns the name's hash: the same in every process, of any version. It is written to disks.
    pub fn stable_hash(&self) -> u64 {
        hash_name(self.as_str().as_bytes())
    }

    fn from_short(name: &str) -> Self {
        let mut bytes = [0; TENANT_NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Self { length: name.len() as u8, bytes }
    }
}

fn hash_name(name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x7665_7262_7333_0002, 0x7465_6e61_6e74_6e61);
    hasher.write(name);
    hasher.finish()
}

impl fmt::Debug for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for TenantName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TenantName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TenantNameVisitor)
    }
}

struct TenantNameVisitor;

impl Visitor<'_> for TenantNameVisitor {
    type Value = TenantName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a name of 1 to {TENANT_NAME_BYTES_MAX} bytes")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<TenantName, E> {
        if name.is_empty() || name.len() > TENANT_NAME_BYTES_MAX {
            return Err(E::invalid_length(name.len(), &self));
        }
        Ok(TenantName::from_short(name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_tag_survives_the_wire_in_its_name_and_four_bytes_at_most() {
        for (name, weight) in [("a", 1), ("vision-é", 1000), (&"x".repeat(64), 3)] {
            let tag = TenantTag::new(name, weight).unwrap();
            let bytes = postcard::to_stdvec(&tag).unwrap();
            assert!(bytes.len() <= name.len() + 4, "{name}");
            assert_eq!(postcard::from_bytes::<TenantTag>(&bytes).unwrap(), tag);
            assert_eq!((tag.name.as_str(), u32::from(tag.weight)), (name, weight));
        }
    }

    #[test]
    fn a_cut_name_stays_distinct_from_others_with_its_beginning() {
        let [one, other] =
            ["ä".repeat(40), "ä".repeat(41)].map(|name| TenantName::new(&name).unwrap());
        assert_ne!(one, other);
        assert_ne!(one.stable_hash(), other.stable_hash());
        assert!(one.as_str().len() <= TENANT_NAME_BYTES_MAX && one.as_str().starts_with("ää"));
        assert_eq!(TenantName::new(&"ä".repeat(40)), Some(one), "at every gateway alike");
        assert_eq!(TenantTag::new("", 1), None);
    }

    #[test]
    fn a_name_of_another_length_is_refused() {
        for name in [String::new(), "x".repeat(65)] {
            let bytes = postcard::to_stdvec(&name).unwrap();
            assert!(postcard::from_bytes::<TenantName>(&bytes).is_err(), "{name:?}");
        }
    }

    /// Pages on disks are accounted by it, over restarts and versions.
    #[test]
    fn the_hash_of_a_name_is_what_it_was() {
        assert_eq!(TenantName::new("vision").unwrap().stable_hash(), 0x3fa3_f837_e197_a4b5);
    }

    #[test]
    fn weights_stay_within_their_range() {
        let weight = |weight| TenantTag::new("a", weight).unwrap().weight;
        assert_eq!([weight(0), weight(7), weight(70_000)], [1, 7, TENANT_WEIGHT_MAX]);
    }
}
