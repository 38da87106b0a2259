//! Answers `Announce`: from here to the report, reads of these keys go to the UFS.

use std::time::Duration;

use verbs3_protocol::{Announce, RefusalKind};

use super::{Raised, Refused};
use crate::worker::Worker;

impl Worker {
    pub(super) fn announce(&self, announce: &Announce) -> Raised {
        self.metrics.announces.inc();
        self.check_epoch(announce.epoch)?;
        let hashes = self.hashes(&announce.volume, &announce.keys)?;
        let uncertain = Duration::from_millis(announce.uncertain_ms).min(self.uncertain_max);
        let raised = self.coherence.announce(&hashes, announce.write, uncertain, self.clock.now());
        self.metrics.open_writes.set(self.coherence.open_writes() as i64);
        match raised {
            Ok(generation) => {
                self.metrics.generations_raised.inc_by(hashes.len() as u64);
                Ok(generation)
            }
            Err(_) => {
                self.metrics.busy_writes.inc();
                Err(Refused::new(RefusalKind::Busy, "too many announced writes are open; raise open_writes_max"))
            }
        }
    }
}
