//! Checks of questions before they are answered: geometry, volume, number of keys.

use std::sync::Arc;

use verbs3_protocol::{BlockGeometry, KeyHash, ObjectKey, ObjectVolume};

use crate::fill::VolumeSource;
use crate::serve_refusal::ServeRefusal;
use crate::volumes::WorkerVolumes;

/// What a question is checked against.
pub(crate) struct QuestionChecks {
    /// Block and page size; the same in the whole cluster.
    pub(crate) geometry: BlockGeometry,
    pub(crate) volumes: WorkerVolumes,
    pub(crate) keys_per_message_max: usize,
}

impl QuestionChecks {
    pub(crate) fn check_geometry(&self, asked: BlockGeometry) -> Result<(), ServeRefusal> {
        let own = self.geometry;
        if asked == own {
            return Ok(());
        }
        Err(ServeRefusal::OtherGeometry { asked, own })
    }

    pub(crate) fn volume_source(
        &self,
        volume: &ObjectVolume,
    ) -> Result<Arc<VolumeSource>, ServeRefusal> {
        let source = self.volumes.find_source(volume);
        source.ok_or_else(|| match self.volumes.means_another_store(volume) {
            true => ServeRefusal::OtherStore(volume.plain_parts().0.to_owned()),
            false => ServeRefusal::UnknownVolume(volume.clone()),
        })
    }

    pub(crate) fn check_volume(&self, volume: &ObjectVolume) -> Result<(), ServeRefusal> {
        self.volume_source(volume).map(drop)
    }

    /// Checks that a UFS of this name is configured here, whichever store it means. Who forgets too
    /// much asks the UFS once more than necessary.
    pub(crate) fn check_volume_name(&self, volume: &ObjectVolume) -> Result<(), ServeRefusal> {
        match self.volume_source(volume) {
            Err(ServeRefusal::OtherStore(_)) => Ok(()),
            checked => checked.map(drop),
        }
    }

    /// Checks that a message names keys of a known volume, and not too many.
    pub(crate) fn check_volume_and_keys(
        &self,
        volume: &ObjectVolume,
        keys: usize,
    ) -> Result<(), ServeRefusal> {
        self.check_volume(volume)?;
        self.check_key_count(keys)
    }

    fn check_key_count(&self, keys: usize) -> Result<(), ServeRefusal> {
        let keys_max = self.keys_per_message_max;
        if keys == 0 || keys > keys_max {
            return Err(ServeRefusal::KeyCount { keys, keys_max });
        }
        Ok(())
    }

    /// Hashes the keys that a message names. The volume may be unknown here. An uncached mount may
    /// belong to a UFS that workers don't have, and this worker never answers readers of
    /// uncacheable objects.
    pub(crate) fn hash_keys(
        &self,
        volume: &ObjectVolume,
        keys: &[String],
    ) -> Result<Vec<KeyHash>, ServeRefusal> {
        self.check_key_count(keys.len())?;
        Ok(keys
            .iter()
            .map(|key| ObjectKey { volume: volume.clone(), key: key.clone() }.hash())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_ufs::local::{LocalOptions, LocalStore};
    use verbs3_ufs::{Ufs, UfsSettings};

    /// A coordinator that spells the store otherwise still ends what is stale here.
    #[test]
    fn what_forgets_is_taken_by_name_and_what_reads_by_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open_store(LocalOptions::new(folder.path())).unwrap();
        let store = Ufs::new(Arc::new(store), UfsSettings::with_name("a"));
        let checks = QuestionChecks {
            geometry: BlockGeometry::DEFAULT,
            volumes: WorkerVolumes::of_stores([store]),
            keys_per_message_max: 1,
        };
        let [own, other, unknown] =
            ["a", "a@0123abcd", "b"].map(|ufs| ObjectVolume::new(ufs, "train"));
        assert!(checks.check_volume(&own).is_ok() && checks.check_volume_name(&own).is_ok());
        assert!(matches!(checks.check_volume(&other), Err(ServeRefusal::OtherStore(_))));
        assert!(checks.check_volume_name(&other).is_ok());
        assert!(checks.check_volume_name(&unknown).is_err());
    }
}
