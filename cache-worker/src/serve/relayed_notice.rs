//! Receives announcements and reports by way of the coordinators, from writers that can't reach
//! this worker.
//!
//! They are judged as if they arrived directly, now: by this worker's present map and lease. The
//! coordinators' state and leadership therefore do not decide whether a write may proceed.
//!
//! The answers go with the next renewal of the lease, which must not wait for gateways to drop
//! theirs. A report that would have to wait is refused for now, and its writer retries.

use verbs3_protocol::{NoticeAnswer, TenantNotice, WorkerRefusal, WriteLeaseState, WriteNotice};

use crate::home::ChangeReceipt;
use crate::metrics::RelayedOutcome;
use crate::serve_refusal::ServeRefusal;
use crate::worker::CacheWorker;

impl CacheWorker {
    /// Records a notice. Never waits. A notice may come more than once, and also directly;
    /// recording it twice has no further effect.
    pub fn apply_relayed_word(&self, notice: &TenantNotice) -> NoticeAnswer {
        let now_s = self.clock.now().as_secs();
        let account = self.tenants.note_request(notice.tenant.as_ref(), now_s);
        let noted = match &notice.word {
            WriteNotice::Announce(announce) => self.home.answer_announce(announce, account),
            WriteNotice::Report(report) => self.home.answer_report(report, account),
        };
        let settled = |news: ChangeReceipt| match self
            .home
            .grants
            .latest_recalled_end(&news.concerned, self.clock.now())
        {
            None => Ok(news.hold),
            Some(_) => Err(ServeRefusal::RecallsPending),
        };
        let (counter, heard) = match noted.and_then(settled) {
            Ok(WriteLeaseState::Leased) => {
                (&self.metrics.relayed[RelayedOutcome::Done], NoticeAnswer::Done)
            }
            Ok(WriteLeaseState::Unleased) => {
                (&self.metrics.relayed[RelayedOutcome::Unleased], NoticeAnswer::Unleased)
            }
            Err(refused) => {
                let refusal = WorkerRefusal::from(refused);
                self.count_refused(&refusal.kind);
                (&self.metrics.relayed[RelayedOutcome::Refused], NoticeAnswer::Refused(refusal))
            }
        };
        counter.inc();
        heard
    }
}
