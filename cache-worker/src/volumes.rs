//! Which UFS and bucket stand behind a volume: named ones, and every bucket of whole stores.
//!
//! A worker has no mount table: gateways say which volume they mean, and have checked that their
//! client may.

use std::collections::HashMap;
use std::sync::Arc;

use verbs3_protocol::Volume;
use verbs3_ufs::Ufs;

use crate::fill::Source;

/// The volumes that a worker serves.
#[derive(Default)]
pub struct Volumes {
    named: HashMap<Volume, Arc<Source>>,
    stores: HashMap<String, Ufs>,
}

impl Volumes {
    /// Every bucket of each store, those made later included.
    pub fn of_stores(stores: impl IntoIterator<Item = Ufs>) -> Self {
        let stores = stores.into_iter().map(|ufs| (ufs.name().to_owned(), ufs)).collect();
        Self { named: HashMap::new(), stores }
    }

    pub(crate) fn source(&self, volume: &Volume) -> Option<Arc<Source>> {
        if let Some(source) = self.named.get(volume) {
            return Some(source.clone());
        }
        // No UFS has a slash in its name, no bucket has one.
        let (ufs, bucket) = volume.0.split_once('/')?;
        if bucket.is_empty() || bucket.contains('/') {
            return None;
        }
        let ufs = self.stores.get(ufs)?.clone();
        Some(Arc::new(Source { ufs, bucket: bucket.to_owned() }))
    }
}

impl From<HashMap<Volume, (Ufs, String)>> for Volumes {
    fn from(named: HashMap<Volume, (Ufs, String)>) -> Self {
        let source = |(volume, (ufs, bucket))| (volume, Arc::new(Source { ufs, bucket }));
        Self { named: named.into_iter().map(source).collect(), stores: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_ufs::UfsLimits;
    use verbs3_ufs::local::{LocalOptions, LocalStore};

    #[test]
    fn a_whole_store_has_every_bucket_and_no_other_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open(LocalOptions::new(folder.path())).unwrap();
        let volumes =
            Volumes::of_stores([Ufs::new("a".into(), Arc::new(store), UfsLimits::default())]);
        let source = volumes.source(&Volume::new("a", "train")).unwrap();
        assert_eq!((source.ufs.name(), source.bucket.as_str()), ("a", "train"));
        for wrong in ["b/train", "a", "a/", "a/x/y", ""] {
            assert!(volumes.source(&Volume(wrong.into())).is_none(), "{wrong}");
        }
    }
}
