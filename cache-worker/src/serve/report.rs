//! Answers `Report`: whatever was known of these keys is void. Installs nothing.

use verbs3_protocol::{RefusalKind, Report};

use super::{Raised, Refused};
use crate::worker::Worker;

impl Worker {
    pub(super) fn report(&self, report: &Report) -> Raised {
        self.metrics.reports.inc();
        self.check_epoch(report.epoch)?;
        let hashes = self.hashes(&report.volume, &report.keys)?;
        let (coherence, now) = (&self.coherence, self.clock.now());
        let raised = coherence.report(&hashes, report.write, report.outcome, self.uncertain_max, now);
        self.metrics.open_writes.set(coherence.open_writes() as i64);
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
