//! Answers `AnnounceMessage`. From here to the report, reads of these keys go to the UFS. The raised
//! generation recalls leases, but only the report waits for them: until then nobody is told that
//! anything has changed.

use std::time::Duration;

use verbs3_protocol::AnnounceMessage;

use super::{AttributeHome, ChangeReceipt, ChangeResult};
use crate::attributes::{RecallScope, WrittenKeys};
use crate::metrics::CountedRequest;
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;

impl AttributeHome {
    pub(crate) fn answer_announce(
        &self,
        announce: &AnnounceMessage,
        account: TenantAccount,
    ) -> ChangeResult {
        self.metrics.requests[CountedRequest::Announce].inc();
        let hashes = self.checks.hash_keys(&announce.volume, &announce.keys)?;
        let uncertain = Duration::from_millis(announce.uncertain_ms).min(self.uncertain_max);
        let times = self.clock.read_times();
        let now = times.now;
        let names = Some((&announce.volume, announce.keys.as_slice()));
        let keys = WrittenKeys { hashes: &hashes, names, account };
        let note = || self.coherence.announce_write(keys, announce.write, uncertain, now);
        let noted = self.standing.to_note(announce.epoch, times, note);
        let (raised, hold) =
            noted.map_err(|denied| ServeRefusal::for_denial(denied, announce.epoch))?;
        self.metrics.open_writes.set(self.coherence.open_writes() as i64);
        match raised {
            Ok(generation) => {
                self.metrics.generations_raised.inc_by(hashes.len() as u64);
                Ok(ChangeReceipt { generation, hold, concerned: RecallScope::Nobody })
            }
            Err(_) => Err(self.refuse_write(account)),
        }
    }
}
