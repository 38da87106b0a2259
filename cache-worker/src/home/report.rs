//! Answers `ReportMessage`: invalidates the attributes of these keys. Caches nothing.

use verbs3_protocol::ReportMessage;

use super::{AttributeHome, ChangeReceipt, ChangeResult};
use crate::attributes::RecallScope;
use crate::metrics::{BusyReason, CountedRequest};
use crate::serve_refusal::ServeRefusal;

impl AttributeHome {
    pub(crate) fn answer_report(&self, report: &ReportMessage) -> ChangeResult {
        self.metrics.requests[CountedRequest::Report].inc();
        let hashes = self.checks.hash_keys(&report.volume, &report.keys)?;
        let (coherence, times) = (&self.coherence, self.clock.read_times());
        let now = times.now;
        let note = || {
            coherence.report_write(&hashes, report.write, report.outcome, self.uncertain_max, now)
        };
        let noted = self.standing.to_note(report.epoch, times, note);
        let (raised, hold) =
            noted.map_err(|denied| ServeRefusal::for_denial(denied, report.epoch))?;
        self.metrics.open_writes.set(coherence.open_writes() as i64);
        match raised {
            Ok(generation) => {
                self.metrics.generations_raised.inc_by(hashes.len() as u64);
                Ok(ChangeReceipt { generation, hold, concerned: RecallScope::Keys(hashes) })
            }
            Err(_) => {
                self.metrics.busy[BusyReason::OpenWrites].inc();
                Err(ServeRefusal::TooManyWrites)
            }
        }
    }
}
