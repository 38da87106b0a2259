//! Answers `GoneVersion`: a reader found a version gone at the UFS. The version's attributes are
//! dropped, and their leases recalled. The same happens when this worker itself finds a version
//! gone. Attributes of any other version stay: the reader's news may be old.

use verbs3_protocol::{ContentVersion, GoneVersion, KeyGeneration, ObjectKey, WriteLeaseState};

use super::{AttributeHome, ChangeReceipt, ChangeResult};
use crate::attributes::RecallScope;

impl AttributeHome {
    pub(crate) fn drop_gone_version(&self, gone: &GoneVersion) -> ChangeResult {
        let GoneVersion { object, version } = gone;
        self.checks.check_volume(&object.volume)?;
        let (generation, concerned) = match self.void_version(object, version) {
            Some(generation) => (generation, RecallScope::Keys(vec![object.hash()])),
            None => (KeyGeneration::default(), RecallScope::Nobody),
        };
        Ok(ChangeReceipt { generation, hold: WriteLeaseState::Leased, concerned })
    }

    /// Drops a version that this worker found gone. On return, no gateway reads on from it by a
    /// lease.
    pub(crate) async fn recall_version(&self, object: &ObjectKey, version: &ContentVersion) {
        self.void_version(object, version);
        self.grants.wait_for_recalls(&RecallScope::Keys(vec![object.hash()]), &*self.clock).await;
    }

    /// Invalidates the key's attributes, if they are of this version.
    fn void_version(&self, object: &ObjectKey, version: &ContentVersion) -> Option<KeyGeneration> {
        let (hash, now) = (object.hash(), self.clock.now());
        let key = self.digests.attributes_key(object, None);
        let named = self.digests.attributes_key(object, version.version_id.as_deref());
        // First, before the generation is read: what a check installs from here on is checked
        // against it there, and what one has installed is under the generation below.
        self.fetcher.checks.note_gone(key, version);
        self.fetcher.checks.note_gone(named, version);
        // While a write is open nothing is answered from here, and its report makes all void.
        let generation = self.coherence.admit_key(hash, now).ok()?;
        let is_known = |key| {
            self.attributes
                .peek_attributes(key, generation)
                .is_some_and(|known| known.version == *version)
        };
        if !is_known(key) && !is_known(named) && !self.is_leased_unseen(hash, key, generation) {
            return None;
        }
        self.metrics.gone_versions.inc();
        self.metrics.generations_raised.inc();
        Some(self.coherence.raise_generations(&[hash], now))
    }
}
