//! Resolves `s3://mount/key` to a UFS, bucket and key.

use std::collections::BTreeMap;
use std::sync::Arc;

use verbs3_protocol::{ObjectKey, ObjectVolume};
use verbs3_ufs::Ufs;

/// Bucket name that clients see, and what it stands for.
#[derive(Clone)]
pub struct PreloadMount {
    pub name: String,
    pub ufs: Ufs,
    pub bucket: String,
    /// Prefix that is put before each key.
    pub prefix: String,
    /// Largest age of attributes, as in gateways' requests: 0 asks the UFS every time, `u64::MAX`
    /// never again.
    pub attributes_age_ms_max: u64,
    /// Objects of a mount that is not cached can't be loaded into the tier.
    pub cached: bool,
}

impl PreloadMount {
    pub(crate) fn object_volume(&self) -> ObjectVolume {
        ObjectVolume::new(self.ufs.store_name(), &self.bucket)
    }

    pub(crate) fn object_key(&self, ufs_key: &str) -> Arc<ObjectKey> {
        Arc::new(ObjectKey { volume: self.object_volume(), key: ufs_key.to_owned() })
    }

    /// Returns the path that clients write.
    pub(crate) fn client_path(&self, ufs_key: &str) -> String {
        format!(
            "s3://{}/{}",
            self.name,
            ufs_key.strip_prefix(self.prefix.as_str()).unwrap_or(ufs_key)
        )
    }
}

/// Table of the mounts.
#[derive(Default)]
pub struct PreloadMountTable {
    pub named: BTreeMap<String, Arc<PreloadMount>>,
    /// Mount whose store has every other name as a bucket.
    pub whole: Option<PreloadMount>,
}

impl PreloadMountTable {
    pub(crate) fn find_mount(&self, name: &str) -> Option<Arc<PreloadMount>> {
        if let Some(mount) = self.named.get(name) {
            return Some(mount.clone());
        }
        // Accepts what a gateway would take for a bucket. Nothing else checks the name before the
        // store does.
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_bucket =
            (3..=255).contains(&name.len()) && name.chars().all(fits) && !name.contains("..");
        let whole = self.whole.as_ref().filter(|_| is_bucket)?;
        Some(Arc::new(PreloadMount {
            name: name.to_owned(),
            bucket: name.to_owned(),
            ..whole.clone()
        }))
    }
}
