//! Identifiers that cross the wire, as newtypes, and the hashes that place and guard them.

use std::fmt;
use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// A UFS and a bucket in it, `ufs-name/bucket` or `ufs-name@store/bucket`: the first part of an
/// object's identity. Two mounts of one volume share blocks, attributes and coherence.
///
/// `store` is 8 hex digits that tell which store the name means in the process that asks: a worker
/// whose configuration means another one serves nothing of it. What is hashed to place an object and
/// to guard its attributes is the plain name, so that a write is heard of under every store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectVolume(pub String);

impl ObjectVolume {
    /// Creates a volume. `ufs` must not contain `/` (the configuration checks it), so that the pair
    /// is unambiguous.
    pub fn new(ufs: &str, bucket: &str) -> Self {
        Self(format!("{ufs}/{bucket}"))
    }

    /// Returns the plain name of the UFS, and the rest from the slash on.
    pub fn plain_parts(&self) -> (&str, &str) {
        let (ufs, bucket) = self.0.split_at(self.0.find('/').unwrap_or(self.0.len()));
        (strip_store(ufs), bucket)
    }

    /// Returns whether both have one plain name, whichever stores they mean.
    pub fn means_name_of(&self, other: &Self) -> bool {
        self.plain_parts() == other.plain_parts()
    }
}

/// Letters of `@` and the store behind it.
const STORE_LETTERS: usize = 9;

fn strip_store(ufs: &str) -> &str {
    let is_digit = |letter: u8| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
    let plain = ufs.len().checked_sub(STORE_LETTERS).and_then(|at| ufs.split_at_checked(at));
    match plain {
        Some((plain, store))
            if store.as_bytes()[0] == b'@' && store.bytes().skip(1).all(is_digit) =>
        {
            plain
        }
        _ => ufs,
    }
}

/// The plain name, `ufs-name/bucket`, as people write it.
impl fmt::Display for ObjectVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ufs, bucket) = self.plain_parts();
        write!(f, "{ufs}{bucket}")
    }
}

/// Object as the UFS names it: the key includes the mount's prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    pub volume: ObjectVolume,
    pub key: String,
}

impl ObjectKey {
    /// Longest key in bytes, by S3 ("Naming Amazon S3 objects").
    pub const KEY_BYTES_MAX: usize = 1024;

    /// Returns the slot of block 0, whose first worker is the object's home.
    pub fn home_slot(&self) -> HashSlot {
        self.block_slot(BlockIndex(0))
    }

    /// Returns the slot of a block, which is that of its whole group ([`BLOCKS_TOGETHER`]). It does
    /// not depend on the version: an overwrite stays with the same workers.
    pub fn block_slot(&self, block: BlockIndex) -> HashSlot {
        HashSlot((self.numbered_hash(block.block_group()) >> SLOT_SHIFT) as u16)
    }

    /// Returns a block's hash, which stands for its name where that would be too long: in the list
    /// of hot blocks. Its upper bits are the slot, the others tell the blocks of a group apart.
    pub fn block_hash(&self, block: BlockIndex) -> BlockHash {
        let own_bits = self.numbered_hash(block.0) & ((1 << SLOT_SHIFT) - 1);
        BlockHash(u64::from(self.block_slot(block).0) << SLOT_SHIFT | own_bits)
    }

    fn numbered_hash(&self, number: u32) -> u64 {
        let mut hasher = self.key_hasher();
        hasher.write_u32(number);
        hasher.finish()
    }

    /// Returns the key's hash, which guards its attributes in the home's generation table.
    pub fn hash(&self) -> KeyHash {
        KeyHash(self.key_hasher().finish())
    }

    /// Creates the hasher: SipHash-1-3 under a fixed key, because every process of a cluster, of
    /// any version, must agree on it.
    fn key_hasher(&self) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(0x7665_7262_7333_0001, 0x706c_6163_656d_656e);
        let (ufs, bucket) = self.volume.plain_parts();
        hasher.write(ufs.as_bytes());
        hasher.write(bucket.as_bytes());
        hasher.write_u8(0);
        hasher.write(self.key.as_bytes());
        hasher.write_u8(0xff);
        hasher
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.volume, self.key)
    }
}

/// One immutable state of an object. Blocks belong to a version, never to a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentVersion {
    /// Strong ETag as the UFS sends it, with its quotes. A missing or weak ETag is never cached.
    pub etag: String,
    /// Length of the whole object.
    pub bytes: u64,
    /// Set if the UFS versions the bucket. `null` is mutable, so it never appears here.
    pub version_id: Option<String>,
}

/// Returns whether an ETag names one version: a quoted string without `W/` (RFC 9110 section
/// 8.8.3), and not the empty one. Workers keep, and gateways accept, nothing else.
pub fn is_strong_etag(etag: &str) -> bool {
    let opaque = etag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    opaque.is_some_and(|opaque| !opaque.is_empty() && !opaque.contains('"'))
}

/// Blocks of an object that one worker owns together, so that one request to the store can bring
/// them: 64 MiB of 4 MiB blocks. Fewer would cut the bodies of common files (shards, row groups,
/// parts of checkpoints) into several requests. More would leave fewer workers to share a large
/// object: 1 GiB has 16 groups now. A constant, because two processes that disagree would look for
/// one block at two workers.
pub const BLOCKS_TOGETHER: u32 = 16;

/// Number of an aligned block within its object, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockIndex(pub u32);

impl BlockIndex {
    /// Returns the number of the block's group within its object, from 0.
    pub fn block_group(self) -> u32 {
        self.0 / BLOCKS_TOGETHER
    }
}

/// Number of a page within its block, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PageIndex(pub u16);

/// One of [`crate::SLOTS`] hash buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HashSlot(pub u16);

/// Hash of volume, key and block. Two blocks with the same hash are hot together, which only costs
/// a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockHash(pub u64);

/// Where the bits of the slot begin in the hash of a block.
const SLOT_SHIFT: u32 = u64::BITS - u16::BITS;

impl BlockHash {
    /// Returns the hash bucket of the block: the upper 16 bits of its hash.
    pub fn hash_slot(self) -> HashSlot {
        HashSlot((self.0 >> SLOT_SHIFT) as u16)
    }
}

/// Hash of volume and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyHash(pub u64);

/// Id of a process that may hold leases on attributes: a random number, drawn at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HolderId(pub u64);

/// Version of the placement map.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Least epoch of a static list's map. A coordinator's epochs stay below it: the two must never
    /// meet.
    pub const STATIC_MIN: Self = Self(1 << 63);
}

/// The home's counter for a key hash; announcements and reports raise it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct KeyGeneration(pub u64);

/// A worker's configured name, unique in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkerId(pub String);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Id of one write of one gateway: a random number per gateway process, and a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WriteId {
    pub gateway: u64,
    pub sequence: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_one_group_share_a_slot_and_no_hash() {
        let object = |key: &str| ObjectKey {
            volume: ObjectVolume::new("ceph", "train"),
            key: key.to_owned(),
        };
        let mut slots = std::collections::HashSet::new();
        let mut hashes = std::collections::HashSet::new();
        for key in ["a", "b"] {
            let object = object(key);
            for group in 0..8 {
                let blocks = group * BLOCKS_TOGETHER..(group + 1) * BLOCKS_TOGETHER;
                let first = object.block_slot(BlockIndex(blocks.start));
                slots.insert(first);
                for block in blocks.map(BlockIndex) {
                    assert_eq!((object.block_slot(block), block.block_group()), (first, group));
                    assert_eq!(object.block_hash(block).hash_slot(), first);
                    assert!(hashes.insert(object.block_hash(block).0));
                }
            }
        }
        assert_eq!(slots.len(), 16);
        assert_eq!(object("a").home_slot(), object("a").block_slot(BlockIndex(15)));
    }

    #[test]
    fn a_store_id_tells_volumes_apart_and_moves_no_object() {
        let object = |ufs| ObjectKey { volume: ObjectVolume::new(ufs, "train"), key: "k".into() };
        let (plain, one, other) =
            (object("ceph"), object("ceph@0123abcd"), object("ceph@0123abce"));
        assert!(one != other && one != plain);
        assert_eq!((one.hash(), one.home_slot()), (plain.hash(), plain.home_slot()));
        assert_eq!(other.hash(), plain.hash());
        assert_eq!(one.volume.to_string(), "ceph/train");
        for name in ["@0123abcd", "ceph@0123abcg", "ceph@123abcd", "ceph/x@0123abcd", "é@0123456"]
        {
            let volume = ObjectVolume::new(name, "b");
            let kept = name != "@0123abcd";
            assert_eq!(volume.to_string() == volume.0, kept, "{name}");
        }
    }
}
