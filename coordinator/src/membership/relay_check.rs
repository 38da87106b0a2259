//! Decides whether a write notice can reach a home through the renewals of its lease.

use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{Epoch, NoticeRelayOutcome, WorkerId};

use super::MembershipController;

impl MembershipController {
    /// Returns why a notice under `epoch` should not be carried to `id`; `None`: it should. This
    /// only saves a useless trip: the home itself judges the notice.
    pub fn relay_refusal(
        &self,
        id: &WorkerId,
        epoch: Epoch,
        now: LeaseInstant,
    ) -> Option<NoticeRelayOutcome> {
        let map = &self.document.active;
        if map.epoch != epoch {
            return Some(NoticeRelayOutcome::OtherEpoch(map.epoch));
        }
        // A process elsewhere is not the one that the map names.
        let record = self.names(id).filter(|record| record.is_live(now));
        record.is_none().then_some(NoticeRelayOutcome::NoLease)
    }
}
