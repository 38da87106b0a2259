//! Answers `Forget`: drops what is known of these keys. Blocks stay: they belong to versions, which do not change.

use verbs3_protocol::Forget;

use super::Raised;
use crate::worker::Worker;

impl Worker {
    pub(super) fn forget(&self, forget: &Forget) -> Raised {
        self.metrics.forgets.inc();
        let hashes = self.hashes(&forget.volume, &forget.keys)?;
        self.metrics.generations_raised.inc_by(hashes.len() as u64);
        Ok(self.coherence.raise(&hashes))
    }
}
