//! Keys of the in-memory tables: 128-bit hashes instead of names. An entry costs 16 bytes whatever
//! the length of its name.
//!
//! The hash is keyed by random numbers, so nobody outside can choose two names that collide. By
//! chance, two names collide once in some 2⁶⁴ objects. Hashes are never sent. Without a disk tier
//! the key belongs to this process. With one it is stored in the tier's folders, so the hashes name
//! the same pages after a restart.

use std::hash::{BuildHasherDefault, Hasher};

use siphasher::sip128::{Hasher128, SipHasher13};
use verbs3_protocol::{BlockGeometry, BlockIndex, ContentVersion, ObjectKey, ObjectVolume};

/// The hash of one page of one block of one object version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PageKey(pub(crate) u128);

/// The hash of one version of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct VersionDigest(u128);

/// The key of an object, or of a named version of one, in the attribute tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AttributesKey(pub(crate) u128);

/// The two halves of a SipHash key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DigestSecret(pub(crate) u64, pub(crate) u64);

/// A hasher of names under this process's secret.
#[derive(Debug, Clone)]
pub(crate) struct KeyedDigester {
    secret: DigestSecret,
}

/// 2¹²⁸ ÷ the golden ratio, made odd: consecutive pages of a version spread over the whole range.
const STRIDE: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// Index of the first part, above those of all pages, which have 48 bits. Low enough to change the
/// 64 bits that tables hash by.
const PARTS_FROM: u128 = 1 << 56;

impl VersionDigest {
    /// Wraps a digest that was read from disk.
    pub(crate) fn from_stored(digest: u128) -> Self {
        Self(digest)
    }

    pub(crate) fn to_stored(self) -> u128 {
        self.0
    }

    /// Returns the key of a page. Two pages collide only if their versions' secret digests happen
    /// to differ by exactly this multiple of the stride.
    pub(crate) fn page_key(self, block: BlockIndex, page: u16) -> PageKey {
        let index = (u128::from(block.0) << 16) | u128::from(page);
        PageKey(self.0.wrapping_add(index.wrapping_mul(STRIDE)))
    }

    /// Returns the key of a part of a page. The number is that within the block. No page has such a
    /// key, so no part is found where a page is looked up.
    pub(crate) fn part_key(self, block: BlockIndex, part: u16) -> PageKey {
        let index = PARTS_FROM | (u128::from(block.0) << 16) | u128::from(part);
        PageKey(self.0.wrapping_add(index.wrapping_mul(STRIDE)))
    }

    /// Returns a number to choose a lock by: the same for all pages of a block.
    pub(crate) fn block_spread(self, block: BlockIndex) -> usize {
        (self.page_key(block, 0).0 >> 96) as usize
    }
}

impl KeyedDigester {
    pub(crate) fn new(secret: DigestSecret) -> Self {
        Self { secret }
    }

    /// Creates the hasher of a disk tier with this secret. The hashes depend on the block and page
    /// sizes, because the same page number names other bytes under other sizes.
    pub(crate) fn of_tier(secret: DigestSecret, geometry: BlockGeometry) -> Self {
        let mut hasher = SipHasher13::new_with_keys(secret.0, secret.1);
        hasher.write(b"verbs3 disk tier, hashes 1");
        hasher.write_u32(geometry.block_bytes);
        hasher.write_u32(geometry.page_bytes);
        let derived = hasher.finish128();
        Self { secret: DigestSecret(derived.h1, derived.h2) }
    }

    pub(crate) fn digest_version(
        &self,
        object: &ObjectKey,
        version: &ContentVersion,
    ) -> VersionDigest {
        let mut hasher = self.object_hasher(object, 1);
        hash_text(&mut hasher, &version.etag);
        hasher.write_u64(version.bytes);
        hash_optional(&mut hasher, version.version_id.as_deref());
        VersionDigest(hasher.finish128().into())
    }

    /// Hashes the object, whatever its version.
    pub(crate) fn any_version(&self, object: &ObjectKey) -> u64 {
        let digest: u128 = self.object_hasher(object, 3).finish128().into();
        digest as u64
    }

    /// Hashes the plain name of the volume, as the configuration writes it. It stands in the headers
    /// of pages on disk.
    pub(crate) fn digest_volume(&self, volume: &ObjectVolume) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write_u8(4);
        let (ufs, bucket) = volume.plain_parts();
        hasher.write_u64((ufs.len() + bucket.len()) as u64);
        hasher.write(ufs.as_bytes());
        hasher.write(bucket.as_bytes());
        let digest: u128 = hasher.finish128().into();
        digest as u64
    }

    pub(crate) fn attributes_key(
        &self,
        object: &ObjectKey,
        version_id: Option<&str>,
    ) -> AttributesKey {
        let mut hasher = self.object_hasher(object, 2);
        hash_optional(&mut hasher, version_id);
        AttributesKey(hasher.finish128().into())
    }

    fn object_hasher(&self, object: &ObjectKey, purpose: u8) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write_u8(purpose);
        hash_text(&mut hasher, &object.volume.0);
        hash_text(&mut hasher, &object.key);
        hasher
    }
}

/// Hashes the length first: no two lists of texts hash the same input.
fn hash_text(hasher: &mut SipHasher13, text: &str) {
    hasher.write_u64(text.len() as u64);
    hasher.write(text.as_bytes());
}

fn hash_optional(hasher: &mut SipHasher13, value: Option<&str>) {
    hasher.write_u8(u8::from(value.is_some()));
    hash_text(hasher, value.unwrap_or_default());
}

/// The hasher state for tables whose keys are digests already.
pub(crate) type DigestState = BuildHasherDefault<DigestHasher>;

/// A hasher that takes 64 of the digest's bits as the hash.
#[derive(Debug, Default)]
pub(crate) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only digests are hashed, through `write_u128`. Anything else must still be correct, if
        // slow.
        for &byte in bytes {
            self.0 = self.0.rotate_left(8).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    fn object(volume: &str, key: &str) -> ObjectKey {
        ObjectKey { volume: ObjectVolume(volume.into()), key: key.into() }
    }

    fn version(etag: &str, bytes: u64, version_id: Option<&str>) -> ContentVersion {
        ContentVersion { etag: etag.into(), bytes, version_id: version_id.map(Into::into) }
    }

    #[test]
    fn every_part_of_an_identity_counts() {
        let digests = KeyedDigester::new(DigestSecret(1, 2));
        let base = (object("a/b", "k"), version("\"e\"", 5, None));
        let others = [
            (object("a/c", "k"), base.1.clone()),
            (object("a/b", "l"), base.1.clone()),
            (object("a/bk", ""), base.1.clone()),
            (base.0.clone(), version("\"f\"", 5, None)),
            (base.0.clone(), version("\"e\"", 6, None)),
            (base.0.clone(), version("\"e\"", 5, Some(""))),
            (base.0.clone(), version("\"e\"", 5, Some("v"))),
        ];
        let mut seen = HashSet::from([digests.digest_version(&base.0, &base.1).0]);
        for (object, version) in &others {
            assert!(seen.insert(digests.digest_version(object, version).0), "{object} {version:?}");
        }
    }

    /// It stands in the headers of pages that are on disk.
    #[test]
    fn a_volumes_digest_is_that_of_its_plain_name_in_one_text() {
        let digests = KeyedDigester::new(DigestSecret(1, 2));
        let mut hasher = SipHasher13::new_with_keys(1, 2);
        hasher.write_u8(4);
        hash_text(&mut hasher, "ceph/train");
        let digest: u128 = hasher.finish128().into();
        for name in ["ceph/train", "ceph@0123abcd/train"] {
            assert_eq!(digests.digest_volume(&ObjectVolume(name.into())), digest as u64, "{name}");
        }
    }

    #[test]
    fn pages_of_a_version_differ() {
        let digest = KeyedDigester::new(DigestSecret(1, 2))
            .digest_version(&object("a/b", "k"), &version("\"e\"", 5, None));
        let mut seen = HashSet::new();
        for block in 0..64 {
            for page in 0..16 {
                assert!(seen.insert(digest.page_key(BlockIndex(block), page)));
            }
        }
    }

    #[test]
    fn parts_differ_from_each_other_and_from_all_pages() {
        let digest = KeyedDigester::new(DigestSecret(1, 2))
            .digest_version(&object("a/b", "k"), &version("\"e\"", 5, None));
        let (mut seen, mut hashes) = (HashSet::new(), HashSet::new());
        for block in [0, 1, 255, 1 << 24, u32::MAX] {
            for number in [0, 1, 255, 4095, u16::MAX] {
                let block = BlockIndex(block);
                for key in [digest.page_key(block, number), digest.part_key(block, number)] {
                    assert!(seen.insert(key) && hashes.insert(key.0 as u64), "{block:?} {number}");
                }
            }
        }
    }

    #[test]
    fn a_named_version_has_attributes_of_its_own() {
        let (digests, object) = (KeyedDigester::new(DigestSecret(1, 2)), object("a/b", "k"));
        assert_ne!(
            digests.attributes_key(&object, None),
            digests.attributes_key(&object, Some(""))
        );
        assert_ne!(
            digests.attributes_key(&object, None),
            KeyedDigester::new(DigestSecret(1, 3)).attributes_key(&object, None)
        );
    }
}
