//! Answers `GoneVersion`: attributes of a version that a reader found gone at the UFS are dropped,
//! and their leases recalled. So are they where this worker itself finds it gone. What is known of
//! any other version stays: the reader's news may be old.

use verbs3_protocol::{Generation, GoneVersion, ObjectKey, Version};

use super::{News, Noted};
use crate::attributes::Concerned;
use crate::standing::Hold;
use crate::worker::Worker;

impl Worker {
    pub(super) fn drop_gone_version(&self, gone: &GoneVersion) -> Noted {
        let GoneVersion { object, version } = gone;
        self.source(&object.volume)?;
        let (generation, concerned) = match self.void_version(object, version) {
            Some(generation) => (generation, Concerned::Keys(vec![object.hash()])),
            None => (Generation::default(), Concerned::Nobody),
        };
        Ok(News { generation, hold: Hold::Leased, concerned })
    }

    /// Of a version that this worker has found gone. Afterwards no gateway reads on from it by a
    /// lease.
    pub(super) async fn recall_version(&self, object: &ObjectKey, version: &Version) {
        self.void_version(object, version);
        self.grants.settled(&Concerned::Keys(vec![object.hash()]), &*self.clock).await;
    }

    /// Makes void what is known of the key, if that is this version's.
    fn void_version(&self, object: &ObjectKey, version: &Version) -> Option<Generation> {
        let (hash, now) = (object.hash(), self.clock.now());
        // While a write is open nothing is answered from here, and its report makes all void.
        let generation = self.coherence.admit(hash, now).ok()?;
        let key = self.digests.attributes(object, None);
        let named = self.digests.attributes(object, version.version_id.as_deref());
        // First: what a check installs from here on is held against it there.
        self.asker.checks.note_gone(key, version);
        self.asker.checks.note_gone(named, version);
        let is_known = |key| {
            self.attributes.hint(key, generation).is_some_and(|known| known.version == *version)
        };
        if !is_known(key) && !is_known(named) && !self.is_leased_unseen(hash, key, generation) {
            return None;
        }
        self.metrics.gone_versions.inc();
        self.metrics.generations_raised.inc();
        Some(self.coherence.raise(&[hash], now))
    }
}
