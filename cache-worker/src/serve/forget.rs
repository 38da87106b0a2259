//! Answers `Forget`: drops what is known of these keys. Blocks stay: they belong to versions, which do not change.

use verbs3_protocol::{Forget, ForgetPrefix, Generation};

use super::Raised;
use crate::worker::Worker;

impl Worker {
    pub(super) fn forget(&self, forget: &Forget) -> Raised {
        self.metrics.forgets.inc();
        let hashes = self.hashes(&forget.volume, &forget.keys)?;
        self.metrics.generations_raised.inc_by(hashes.len() as u64);
        Ok(self.coherence.raise(&hashes))
    }

    /// Raises no generation: which keys begin so is not known.
    pub(super) fn forget_prefix(&self, forget: &ForgetPrefix) -> Raised {
        self.metrics.forgets.inc();
        self.source(&forget.volume)?;
        self.voids.add(&forget.volume, &forget.prefix, self.clock.now());
        Ok(Generation::default())
    }
}
