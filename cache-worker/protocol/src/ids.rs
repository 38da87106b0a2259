//! Identifiers that cross the wire, as newtypes, and the hashes that place and guard them.

use std::fmt;
use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// A UFS and a bucket in it, `ufs-name/bucket`: the first part of an object's identity. Two mounts
/// of one volume share blocks, attributes and coherence.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectVolume(pub String);

impl ObjectVolume {
    /// Creates a volume. `ufs` must not contain `/` (the configuration checks it), so that the pair
    /// is unambiguous.
    pub fn new(ufs: &str, bucket: &str) -> Self {
        Self(format!("{ufs}/{bucket}"))
    }
}

impl fmt::Display for ObjectVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Object as the UFS names it: the key includes the mount's prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    pub volume: ObjectVolume,
    pub key: String,
}

impl ObjectKey {
    /// Returns the slot of block 0, whose first worker is the object's home.
    pub fn home_slot(&self) -> HashSlot {
        self.block_slot(BlockIndex(0))
    }

    /// Returns the slot of a block. It does not depend on the version: an overwrite stays with the
    /// same workers.
    pub fn block_slot(&self, block: BlockIndex) -> HashSlot {
        self.block_hash(block).hash_slot()
    }

    /// Returns a block's hash, which stands for its name where that would be too long: in the list
    /// of hot blocks.
    pub fn block_hash(&self, block: BlockIndex) -> BlockHash {
        let mut hasher = self.key_hasher();
        hasher.write_u32(block.0);
        BlockHash(hasher.finish())
    }

    /// Returns the key's hash, which guards its attributes in the home's generation table.
    pub fn hash(&self) -> KeyHash {
        KeyHash(self.key_hasher().finish())
    }

    /// Creates the hasher: SipHash-1-3 under a fixed key, because every process of a cluster, of
    /// any version, must agree on it.
    fn key_hasher(&self) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(0x7665_7262_7333_0001, 0x706c_6163_656d_656e);
        hasher.write(self.volume.0.as_bytes());
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

/// Number of an aligned block within its object, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockIndex(pub u32);

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

impl BlockHash {
    /// Returns the hash bucket of the block: the upper 16 bits of its hash.
    pub fn hash_slot(self) -> HashSlot {
        HashSlot((self.0 >> 48) as u16)
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
