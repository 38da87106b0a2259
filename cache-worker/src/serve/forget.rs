//! Answers `Forget`: drops what is known of these keys. Blocks stay: they belong to versions, which
//! do not change.

use verbs3_protocol::{Forget, ForgetPrefix, Generation};

use super::{News, Noted};
use crate::attributes::Concerned;
use crate::standing::Hold;
use crate::worker::Worker;

impl Worker {
    pub(super) fn forget(&self, forget: &Forget) -> Noted {
        self.metrics.forgets.inc();
        self.source(&forget.volume)?;
        let hashes = self.hashes(&forget.volume, &forget.keys)?;
        self.metrics.generations_raised.inc_by(hashes.len() as u64);
        let generation = self.coherence.raise(&hashes, self.clock.now());
        Ok(News { generation, hold: Hold::Leased, concerned: Concerned::Keys(hashes) })
    }

    /// Raises no generation, and recalls all leases: which keys begin so is not known.
    pub(super) fn forget_prefix(&self, forget: &ForgetPrefix) -> Noted {
        self.metrics.forgets.inc();
        self.source(&forget.volume)?;
        self.voids.add(&forget.volume, &forget.prefix, self.clock.now());
        self.grants.recall_all();
        Ok(News {
            generation: Generation::default(),
            hold: Hold::Leased,
            concerned: Concerned::All,
        })
    }
}
