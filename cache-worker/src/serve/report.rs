//! Answers `Report`: whatever was known of these keys is void. Installs nothing.

use verbs3_protocol::{RefusalKind, Report};

use super::{News, Noted, Refused};
use crate::attributes::Concerned;
use crate::worker::Worker;

impl Worker {
    pub(super) fn report(&self, report: &Report) -> Noted {
        self.metrics.reports.inc();
        let hashes = self.hashes(&report.volume, &report.keys)?;
        let (coherence, times) = (&self.coherence, self.clock.times());
        let now = times.now;
        let note =
            || coherence.report(&hashes, report.write, report.outcome, self.uncertain_max, now);
        let noted = self.standing.to_note(report.epoch, times, note);
        let (raised, hold) = noted.map_err(|denied| Self::denied(denied, report.epoch))?;
        self.metrics.open_writes.set(coherence.open_writes() as i64);
        match raised {
            Ok(generation) => {
                self.metrics.generations_raised.inc_by(hashes.len() as u64);
                Ok(News { generation, hold, concerned: Concerned::Keys(hashes) })
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
