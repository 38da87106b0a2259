//! Whether a writer's word can reach a home by the renewals of its lease.

use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{Epoch, NoticeRelayOutcome, WorkerId};

use super::MembershipController;

impl MembershipController {
    /// Why a word under `epoch` is not worth carrying to `id`; `None`: it is. Only saves its way:
    /// whether it counts is the home's to say.
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
