//! Hears announcements and reports that come by way of the coordinators, from writers that can't
//! reach this worker.
//!
//! They are judged as if they had come by themselves, now: by the map and the lease that this
//! worker has at this moment. So what the coordinators know, or who leads them, has no part in
//! whether a write may go on.
//!
//! The answers go with the next renewal of the lease, which must not wait for gateways to drop
//! theirs: a report that would have to is refused for now, and its writer comes again.

use verbs3_protocol::{NoticeAnswer, RefusalKind, WorkerRefusal, WriteNotice};

use super::{ChangeReceipt, ServeRefusal};
use crate::standing::WriteLeaseState;
use crate::worker::CacheWorker;

impl CacheWorker {
    /// Never waits. The same word may come more than once, and also directly: hearing it twice is
    /// hearing it once.
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
            Ok(WriteLeaseState::Leased) => (&self.metrics.heard_done, NoticeAnswer::Done),
            Ok(WriteLeaseState::Unleased) => (&self.metrics.heard_unleased, NoticeAnswer::Unleased),
            Err(refused) => {
                self.count_refused(&refused);
                let refusal = WorkerRefusal { kind: refused.kind, reason: refused.reason };
                (&self.metrics.heard_refused, NoticeAnswer::Refused(refusal))
            }
        };
        counter.inc();
        heard
    }
}
