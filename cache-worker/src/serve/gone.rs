//! Answers `GoneVersion`: attributes of a version that a reader found gone at the UFS are dropped,
//! and their leases recalled. What is known of any other version stays: the reader's news may be
//! old.

use verbs3_protocol::{Generation, GoneVersion};

use super::{News, Noted};
use crate::attributes::Concerned;
use crate::standing::Hold;
use crate::worker::Worker;

impl Worker {
    pub(super) fn drop_gone_version(&self, gone: &GoneVersion) -> Noted {
        let GoneVersion { object, version } = gone;
        self.source(&object.volume)?;
        let (hash, now) = (object.hash(), self.clock.now());
        let unchanged = News {
            generation: Generation::default(),
            hold: Hold::Leased,
            concerned: Concerned::Nobody,
        };
        // While a write is open nothing is answered from here, and its report makes all void.
        let Ok(generation) = self.coherence.admit(hash, now) else { return Ok(unchanged) };
        let is_known = |version_id| {
            let key = self.digests.attributes(object, version_id);
            self.attributes.hint(key, generation).is_some_and(|known| known.version == *version)
        };
        let key = self.digests.attributes(object, None);
        let is_leased_unseen =
            || !self.attributes.knows(key, generation) && self.grants.is_granted(hash, now);
        if !is_known(None) && !is_known(version.version_id.as_deref()) && !is_leased_unseen() {
            return Ok(unchanged);
        }
        self.metrics.gone_versions.inc();
        self.metrics.generations_raised.inc();
        let generation = self.coherence.raise(&[hash], now);
        Ok(News { generation, hold: Hold::Leased, concerned: Concerned::Keys(vec![hash]) })
    }
}
