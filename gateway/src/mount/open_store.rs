//! A UFS mounted as a whole: every bucket of it is visible under its own name. Owns the mounts that
//! come and go with such buckets. Named mounts go before.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use verbs3_protocol::ObjectVolume;

use super::MountedBucket;

/// Mounts that are remembered; beyond it they are made anew.
const REMEMBERED_MAX: usize = 1024;

/// The mounts of one store's buckets, made when they are first named.
pub(super) struct OpenStore {
    /// What the mounts have in common; its name, bucket and volume stand for none.
    pattern: MountedBucket,
    made: RwLock<HashMap<String, Arc<MountedBucket>>>,
}

impl OpenStore {
    /// No mount is made yet. `pattern` says what all of them have in common.
    pub fn new(pattern: MountedBucket) -> Self {
        Self { pattern, made: RwLock::default() }
    }

    /// What all mounts of this store share. Its name, bucket and volume mean nothing.
    pub fn mount_pattern(&self) -> &MountedBucket {
        &self.pattern
    }

    /// The mount for a bucket of that name, whether or not the store has one: it is the store that
    /// says so.
    pub fn mount_bucket(&self, bucket: &str) -> Option<Arc<MountedBucket>> {
        if let Some(mount) = self.made.read().get(bucket) {
            return Some(mount.clone());
        }
        if !s3s::path::check_bucket_name(bucket) {
            return None;
        }
        let mount = Arc::new(MountedBucket {
            name: bucket.to_owned(),
            bucket: bucket.to_owned(),
            volume: ObjectVolume::new(self.pattern.ufs.ufs_name(), bucket),
            ..self.pattern.clone()
        });
        let mut made = self.made.write();
        if made.len() < REMEMBERED_MAX {
            made.insert(bucket.to_owned(), mount.clone());
        }
        Some(mount)
    }
}
