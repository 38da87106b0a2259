//! Receives announcements and reports by way of the coordinators, from writers that can't reach
//! this worker.
//!
//! They are judged as if they arrived directly, now: by this worker's present map and lease. The
//! coordinators' state and leadership therefore do not decide whether a write may proceed.
//!
//! The answers go with the next renewal of the lease, which must not wait for gateways to drop
//! theirs. A report that would have to wait is refused for now, and its writer retries.

use verbs3_protocol::{NoticeAnswer, RefusalKind, WorkerRefusal, WriteNotice};

use super::{ChangeReceipt, ServeRefusal};
use crate::metrics::RelayedOutcome;
use crate::standing::WriteLeaseState;
use crate::worker::CacheWorker;

impl CacheWorker {
    /// Records a notice. Never waits. A notice may come more than once, and also directly;
    /// recording it twice has no further effect.
    pub fn apply_relayed_word(&self, word: &WriteNotice) -> NoticeAnswer {
        let noted = match word {
            WriteNotice::Announce(announce) => self.answer_announce(announce),
            WriteNotice::Report(report) => self.answer_report(report),
        };
        let settled = |news: ChangeReceipt| match self
            .grants
            .latest_recalled_end(&news.concerned, self.clock.now())
        {
            None => Ok(news.hold),
            Some(_) => Err(ServeRefusal::new(
                RefusalKind::Busy,
                "gateways hold leases on these keys for a moment yet",
            )),
        };
        let (counter, heard) = match noted.and_then(settled) {
            Ok(WriteLeaseState::Leased) => {
                (&self.metrics.relayed[RelayedOutcome::Done], NoticeAnswer::Done)
            }
            Ok(WriteLeaseState::Unleased) => {
                (&self.metrics.relayed[RelayedOutcome::Unleased], NoticeAnswer::Unleased)
            }
            Err(refused) => {
                self.count_refused(&refused);
                let refusal = WorkerRefusal { kind: refused.kind, reason: refused.reason };
                (&self.metrics.relayed[RelayedOutcome::Refused], NoticeAnswer::Refused(refusal))
            }
        };
        counter.inc();
        heard
    }
}
