//! Owns the mounts of a UFS that is mounted as a whole: every bucket is visible under its own name.
//! Mounts are made when needed. Named mounts take precedence.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use verbs3_protocol::ObjectVolume;

use super::MountedBucket;

/// Most mounts in the cache; others are made again each time.
const REMEMBERED_MAX: usize = 1024;

/// The mounts of one store's buckets, made when they are first named.
pub(super) struct OpenStore {
    /// The settings that the mounts share. Its name, bucket and volume mean nothing.
    pattern: MountedBucket,
    made: RwLock<HashMap<String, Arc<MountedBucket>>>,
}

impl OpenStore {
    /// Makes a store without mounts. `pattern` has the settings that they will share.
    pub fn new(pattern: MountedBucket) -> Self {
        Self { pattern, made: RwLock::default() }
    }

    /// Returns the settings that the mounts share. The name, bucket and volume in it mean nothing.
    pub fn mount_pattern(&self) -> &MountedBucket {
        &self.pattern
    }

    /// Returns the mount of a bucket name, whether or not the store has such a bucket: the store's
    /// answer will tell.
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
            volume: ObjectVolume::new(self.pattern.ufs.store_name(), bucket),
            ..self.pattern.clone()
        });
        let mut made = self.made.write();
        if made.len() < REMEMBERED_MAX {
            made.insert(bucket.to_owned(), mount.clone());
        }
        Some(mount)
    }
}
