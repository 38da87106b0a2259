//! Receives announcements and reports by way of the coordinators, from writers that can't reach
//! this worker.
//!
//! Coordinators pass on no tenant, so nobody's account holds them.
//!
//! They are judged as if they arrived directly, now: by this worker's present map and lease. The
//! coordinators' state and leadership therefore do not decide whether a write may proceed.
//!
//! The answers go with the next renewal of the lease, which must not wait for gateways to drop
//! theirs. A report that would have to wait is refused for now, and its writer retries.

use verbs3_protocol::{NoticeAnswer, WorkerRefusal, WriteLeaseState, WriteNotice};

use crate::home::ChangeReceipt;
use crate::metrics::RelayedOutcome;
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

impl CacheWorker {
    /// Records a notice. Never waits. A notice may come more than once, and also directly;
    /// recording it twice has no further effect.
    pub fn apply_relayed_word(&self, word: &WriteNotice) -> NoticeAnswer {
        let noted = match word {
            WriteNotice::Announce(announce) => {
                self.home.answer_announce(announce, TenantAccount::NOBODY)
            }
            WriteNotice::Report(report) => self.home.answer_report(report, TenantAccount::NOBODY),
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
