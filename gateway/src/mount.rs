//! Owns the mount table: the bucket names that clients see, and the UFS, bucket and prefix behind
//! each. Also owns the rewriting of keys. Does not decide who may use a mount (`auth`), and reads
//! nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use verbs3_protocol::{ObjectKey, ObjectVolume};

use self::open_store::OpenStore;

mod mount_names;
mod open_store;

pub(crate) use mount_names::MountNamePair;
pub use verbs3_ufs::Ufs;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = ObjectKey::KEY_BYTES_MAX;

/// How old cached attributes may be before the UFS is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeFreshness {
    Ttl(Duration),
    /// Every read asks the UFS with `If-None-Match`.
    AlwaysAsk,
    /// Objects never change except through a gateway; only such writes invalidate.
    Immutable,
}

impl AttributeFreshness {
    /// Returns the age limit that requests carry: 0 asks every time, `u64::MAX` never.
    pub fn age_ms_max(self) -> u64 {
        match self {
            Self::Ttl(ttl) => {
                u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX - 1).min(u64::MAX - 1)
            }
            Self::AlwaysAsk => 0,
            Self::Immutable => u64::MAX,
        }
    }
}

/// What a write does when the home of its key can't be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCoherence {
    /// The write gets 503: after a write's acknowledgement no read may see the older version.
    Strict,
    /// The write goes on; readers see it when their attributes expire.
    Ttl,
}

impl WriteCoherence {
    /// Returns the stricter of two promises, for two mounts of the same data.
    fn stricter_with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ttl, Self::Ttl) => Self::Ttl,
            (Self::Strict, _) | (_, Self::Strict) => Self::Strict,
        }
    }
}

/// One bucket name that clients see.
#[derive(Clone)]
pub struct MountedBucket {
    /// The bucket's name for clients.
    pub name: String,
    /// The key of blocks, attributes and coherence. Mounts over the same UFS bucket share it.
    pub volume: ObjectVolume,
    pub ufs: Ufs,
    /// The bucket's name in the UFS.
    pub bucket: String,
    /// Prepended to each key; empty, or ends in `/`.
    pub prefix: String,
    pub attributes: AttributeFreshness,
    pub absence_ttl: Duration,
    pub coherence: WriteCoherence,
    pub read_only: bool,
    /// `false`: everything goes to the UFS, and nothing is asked of the tier. Homes are still told
    /// of writes.
    pub cached: bool,
    /// Longest object whose pages go to workers while it is written. `None`: no writes are copied.
    pub populate_bytes_max: Option<u64>,
}

impl MountedBucket {
    /// Returns the UFS's key for a client's key.
    pub fn ufs_key(&self, client_key: &str) -> String {
        let mut key = String::with_capacity(self.prefix.len() + client_key.len());
        key.push_str(&self.prefix);
        key.push_str(client_key);
        key
    }

    /// Returns the client's key for a UFS key; `None` if it lies outside the mount.
    pub fn client_key<'a>(&self, ufs_key: &'a str) -> Option<&'a str> {
        ufs_key.strip_prefix(self.prefix.as_str())
    }

    /// Returns the identity of a client's key in the tier.
    pub fn object_key(&self, client_key: &str) -> ObjectKey {
        ObjectKey { volume: self.volume.clone(), key: self.ufs_key(client_key) }
    }

    /// Returns whether this mounts a part of a bucket. Bucket administration is refused on it.
    pub fn is_prefix(&self) -> bool {
        !self.prefix.is_empty()
    }

    fn check_settings(&self) -> Result<(), MountError> {
        let mount = || self.name.clone();
        if !s3s::path::check_bucket_name(&self.name) {
            return Err(MountError::Name { mount: mount() });
        }
        if self.bucket.is_empty() || self.bucket.contains('/') {
            return Err(MountError::Bucket { mount: mount(), bucket: self.bucket.clone() });
        }
        if self.ufs.ufs_name().is_empty() || self.ufs.ufs_name().contains('/') {
            return Err(MountError::UfsName {
                mount: mount(),
                ufs: self.ufs.ufs_name().to_owned(),
            });
        }
        let expected = ObjectVolume::new(self.ufs.store_name(), &self.bucket);
        if self.volume != expected {
            return Err(MountError::Volume {
                mount: mount(),
                volume: self.volume.clone(),
                expected,
            });
        }
        if !self.prefix.is_empty() && !self.prefix.ends_with('/') {
            return Err(MountError::Prefix { mount: mount(), prefix: self.prefix.clone() });
        }
        if self.prefix.len() >= KEY_BYTES_MAX {
            return Err(MountError::PrefixLong { mount: mount(), bytes: self.prefix.len() });
        }
        Ok(())
    }
}

/// Reason why a mount table can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error(
        "mount {mount:?} is not a valid bucket name: use 3 to 63 lower-case letters, digits, dots \
        and hyphens"
    )]
    Name { mount: String },
    #[error("mount {mount} is defined twice; bucket names are unique")]
    Duplicate { mount: String },
    #[error(
        "mount {mount}: {bucket:?} is not a bucket of the ufs; name one, without a slash (a folder \
        goes into `prefix`)"
    )]
    Bucket { mount: String, bucket: String },
    #[error("mount {mount}: the ufs name {ufs:?} is empty or holds a slash; rename it")]
    UfsName { mount: String, ufs: String },
    #[error("mount {mount} has volume {volume}, but its ufs and bucket make {expected}")]
    Volume { mount: String, volume: ObjectVolume, expected: ObjectVolume },
    #[error(
        "mount {mount}: prefix {prefix:?} does not end in a slash; write {prefix:?} + \"/\", or \
        clients would see parts of names"
    )]
    Prefix { mount: String, prefix: String },
    #[error(
        "mount {mount}: a prefix of {bytes} bytes leaves no room for keys, which have at most 1024 \
        bytes"
    )]
    PrefixLong { mount: String, bytes: usize },
}

/// The mount table. Fixed for the life of the process.
#[derive(Clone, Default)]
pub struct MountTable {
    by_name: BTreeMap<String, Arc<MountedBucket>>,
    /// Volumes that some named mount caches, with the strictest of their promises.
    cached: HashMap<ObjectVolume, WriteCoherence>,
    open: Option<Arc<OpenStore>>,
}

impl MountTable {
    /// Checks each mount. Fails at the first that can't be used, or whose name is taken.
    pub fn new(mounts: impl IntoIterator<Item = MountedBucket>) -> Result<Self, MountError> {
        let (mut by_name, mut cached) = (BTreeMap::new(), HashMap::new());
        for mount in mounts {
            mount.check_settings()?;
            if mount.cached {
                let promised = cached.entry(mount.volume.clone()).or_insert(mount.coherence);
                *promised = promised.stricter_with(mount.coherence);
            }
            let name = mount.name.clone();
            if by_name.insert(name.clone(), Arc::new(mount)).is_some() {
                return Err(MountError::Duplicate { mount: name });
            }
        }
        Ok(Self { by_name, cached, open: None })
    }

    /// Makes every bucket of one store visible under its own name, besides the named mounts. The
    /// pattern's name, bucket, volume and prefix are not used.
    pub fn with_open(mut self, pattern: MountedBucket) -> Self {
        self.open =
            Some(Arc::new(OpenStore::new(MountedBucket { prefix: String::new(), ..pattern })));
        self
    }

    /// Returns the mount of a bucket name: a named mount, or else a bucket of the store that is
    /// mounted as a whole.
    pub fn resolve_bucket(&self, name: &str) -> Option<Arc<MountedBucket>> {
        self.by_name.get(name).cloned().or_else(|| self.open.as_ref()?.mount_bucket(name))
    }

    /// Returns the promise to readers through all mounts of the volume. It decides whether a write
    /// may go on if it can't be announced. Every write is announced: other gateways may cache what
    /// this one does not. A store that is mounted as a whole shows all of its volumes.
    pub fn promised_coherence(&self, mount: &MountedBucket) -> WriteCoherence {
        let open = self.open.as_ref().map(|open| open.mount_pattern());
        let open = open
            .filter(|open| open.cached && open.ufs.ufs_name() == mount.ufs.ufs_name())
            .map(|open| open.coherence);
        let named = self.cached.get(&mount.volume).copied();
        [named, open].into_iter().flatten().fold(mount.coherence, WriteCoherence::stricter_with)
    }

    /// Returns every store behind the mounts, once each.
    pub fn distinct_stores(&self) -> impl Iterator<Item = &Ufs> {
        let open = self.open.as_ref().map(|open| &open.mount_pattern().ufs);
        let all: BTreeMap<&str, &Ufs> = self
            .by_name
            .values()
            .map(|mount| &mount.ufs)
            .chain(open)
            .map(|ufs| (ufs.ufs_name(), ufs))
            .collect();
        all.into_values()
    }

    /// Returns a mount by its configured name.
    pub fn get(&self, name: &str) -> Option<&Arc<MountedBucket>> {
        self.by_name.get(name)
    }

    /// Returns the named mounts in order, for ListBuckets.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<MountedBucket>> {
        self.by_name.values()
    }
}

#[cfg(test)]
mod tests;
