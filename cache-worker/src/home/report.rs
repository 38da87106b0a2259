//! Answers `ReportMessage`: invalidates the attributes of these keys. Caches nothing.

use verbs3_protocol::ReportMessage;

use super::{AttributeHome, ChangeReceipt, ChangeResult};
use crate::attributes::{RecallScope, WrittenKeys};
use crate::metrics::CountedRequest;
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;

impl AttributeHome {
    pub(crate) fn answer_report(
        &self,
        report: &ReportMessage,
        account: TenantAccount,
    ) -> ChangeResult {
        self.metrics.requests[CountedRequest::Report].inc();
        let hashes = self.checks.hash_keys(&report.volume, &report.keys)?;
        let (coherence, times) = (&self.coherence, self.clock.read_times());
        let now = times.now;
        let names = Some((&report.volume, report.keys.as_slice()));
        let keys = WrittenKeys { hashes: &hashes, names, account };
        let note =
            || coherence.report_write(keys, report.write, report.outcome, self.uncertain_max, now);
        let noted = self.standing.to_note(report.epoch, times, note);
        let (raised, hold) =
            noted.map_err(|denied| ServeRefusal::for_denial(denied, report.epoch))?;
        self.metrics.open_writes.set(coherence.open_writes() as i64);
        match raised {
            Ok(generation) => {
                self.metrics.generations_raised.inc_by(hashes.len() as u64);
                Ok(ChangeReceipt { generation, hold, concerned: RecallScope::Keys(hashes) })
            }
            Err(_) => Err(self.refuse_write(account)),
        }
    }
}
