//! Hears announcements and reports that come by way of the coordinators, from writers that can't
//! reach this worker.
//!
//! They are judged as if they had come by themselves, now: by the map and the lease that this
//! worker has at this moment. So what the coordinators know, or who leads them, has no part in
//! whether a write may go on.
//!
//! The answers go with the next renewal of the lease, which must not wait for gateways to drop
//! theirs: a report that would have to is refused for now, and its writer comes again.

use verbs3_protocol::{Heard, Refusal, RefusalKind, Word};

use super::{News, Refused};
use crate::standing::Hold;
use crate::worker::Worker;

impl Worker {
    /// Never waits. The same word may come more than once, and also directly: hearing it twice is
    /// hearing it once.
    pub fn hear(&self, word: &Word) -> Heard {
        let noted = match word {
            Word::Announce(announce) => self.announce(announce),
            Word::Report(report) => self.report(report),
        };
        let settled = |news: News| match self.grants.outstanding(&news.concerned, self.clock.now())
        {
            None => Ok(news.hold),
            Some(_) => Err(Refused::new(
                RefusalKind::Busy,
                "gateways hold leases on these keys for a moment yet",
            )),
        };
        let (counter, heard) = match noted.and_then(settled) {
            Ok(Hold::Leased) => (&self.metrics.heard_done, Heard::Done),
            Ok(Hold::Unleased) => (&self.metrics.heard_unleased, Heard::Unleased),
            Err(refused) => {
                self.count_refused(&refused);
                let refusal = Refusal { kind: refused.kind, reason: refused.reason };
                (&self.metrics.heard_refused, Heard::Refused(refusal))
            }
        };
        counter.inc();
        heard
    }
}
