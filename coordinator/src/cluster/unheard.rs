//! Whether a writer's word can reach a home by the renewals of its lease.

use verbs3_coordinator_client::clock::Moment;
use verbs3_protocol::{Epoch, Relayed, WorkerId};

use super::Cluster;

impl Cluster {
    /// Why a word under `epoch` is not worth carrying to `id`; `None`: it is. Only saves its way:
    /// whether it counts is the home's to say.
    pub fn unheard(&self, id: &WorkerId, epoch: Epoch, now: Moment) -> Option<Relayed> {
        let map = &self.document.active;
        if map.epoch != epoch {
            return Some(Relayed::OtherEpoch(map.epoch));
        }
        // A process elsewhere is not the one that the map names.
        let record = self.names(id).filter(|record| record.is_live(now));
        record.is_none().then_some(Relayed::NoLease)
    }
}
