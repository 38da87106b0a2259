//! Answers `Announce`: from here to the report, reads of these keys go to the UFS. Leases are
//! recalled, and waited for by the report: until then nobody is told that anything has changed.

use std::time::Duration;

use verbs3_protocol::{Announce, RefusalKind};

use super::{News, Noted, Refused};
use crate::attributes::Concerned;
use crate::worker::Worker;

impl Worker {
    pub(super) fn announce(&self, announce: &Announce) -> Noted {
        self.metrics.announces.inc();
        let hashes = self.hashes(&announce.volume, &announce.keys)?;
        let uncertain = Duration::from_millis(announce.uncertain_ms).min(self.uncertain_max);
        let times = self.clock.times();
        let now = times.now;
        let note = || self.coherence.announce(&hashes, announce.write, uncertain, now);
        let noted = self.standing.to_note(announce.epoch, times, note);
        let (raised, hold) = noted.map_err(|denied| Self::denied(denied, announce.epoch))?;
        self.metrics.open_writes.set(self.coherence.open_writes() as i64);
        match raised {
            Ok(generation) => {
                self.metrics.generations_raised.inc_by(hashes.len() as u64);
                Ok(News { generation, hold, concerned: Concerned::Nobody })
            }
            Err(_) => {
                self.metrics.busy_writes.inc();
                Err(Refused::new(
                    RefusalKind::Busy,
                    "too many announced writes are open; raise open_writes_max",
                ))
            }
        }
    }
}
