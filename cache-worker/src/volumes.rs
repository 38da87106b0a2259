//! Maps a volume to its UFS and bucket: named volumes, and every bucket of whole stores.
//!
//! A worker has no mount table. Gateways name the volume, and have checked that their client may
//! use it.

use std::collections::HashMap;
use std::sync::Arc;

use verbs3_protocol::ObjectVolume;
use verbs3_ufs::Ufs;

use crate::fill::VolumeSource;

/// The volumes that a worker serves.
#[derive(Default)]
pub struct WorkerVolumes {
    named: HashMap<ObjectVolume, Arc<VolumeSource>>,
    /// By [`Ufs::store_name`].
    stores: HashMap<String, Ufs>,
}

impl WorkerVolumes {
    /// Serves every bucket of each store, including those created later.
    pub fn of_stores(stores: impl IntoIterator<Item = Ufs>) -> Self {
        let stores = stores.into_iter().map(|ufs| (ufs.store_name().to_owned(), ufs)).collect();
        Self { named: HashMap::new(), stores }
    }

    pub(crate) fn find_source(&self, volume: &ObjectVolume) -> Option<Arc<VolumeSource>> {
        if let Some(source) = self.named.get(volume) {
            return Some(source.clone());
        }
        // Neither a store's name nor a bucket's contains a slash.
        let (ufs, bucket) = volume.0.split_once('/')?;
        if bucket.is_empty() || bucket.contains('/') {
            return None;
        }
        let ufs = self.stores.get(ufs)?.clone();
        Some(Arc::new(VolumeSource { ufs, bucket: bucket.to_owned() }))
    }

    /// Returns whether the volume's UFS is configured here, by that name, for another store.
    pub(crate) fn means_another_store(&self, volume: &ObjectVolume) -> bool {
        let (name, _) = volume.plain_parts();
        let is_asked = |ufs: &Ufs| {
            volume.0.strip_prefix(ufs.store_name()).is_some_and(|rest| rest.starts_with('/'))
        };
        self.stores.values().any(|ufs| ufs.ufs_name() == name && !is_asked(ufs))
    }
}

impl From<HashMap<ObjectVolume, (Ufs, String)>> for WorkerVolumes {
    fn from(named: HashMap<ObjectVolume, (Ufs, String)>) -> Self {
        let source = |(volume, (ufs, bucket))| (volume, Arc::new(VolumeSource { ufs, bucket }));
        Self { named: named.into_iter().map(source).collect(), stores: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_ufs::UfsSettings;
    use verbs3_ufs::local::{LocalOptions, LocalStore};

    #[test]
    fn a_whole_store_has_every_bucket_and_no_other_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open_store(LocalOptions::new(folder.path())).unwrap();
        let volumes =
            WorkerVolumes::of_stores([Ufs::new(Arc::new(store), UfsSettings::with_name("a"))]);
        let source = volumes.find_source(&ObjectVolume::new("a", "train")).unwrap();
        assert_eq!((source.ufs.ufs_name(), source.bucket.as_str()), ("a", "train"));
        for wrong in ["b/train", "a", "a/", "a/x/y", ""] {
            assert!(volumes.find_source(&ObjectVolume(wrong.into())).is_none(), "{wrong}");
        }
    }
}
