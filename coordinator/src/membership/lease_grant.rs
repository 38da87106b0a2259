//! Builds the answers to workers that have a lease: what to give up, and the map in force.

use std::collections::BTreeMap;
use std::time::Duration;

use verbs3_coordinator_client::api::{
    ActivationNews, HandedOver, MapAnswer, WorkerLeaseGrant, WorkerLeaseRenewal,
};
use verbs3_protocol::{Epoch, MembershipChange, WorkerId};

use super::member_record::{MemberRecord, OpenWriteHandover};
use super::{ClusterDocument, MembershipController};

/// The maps that a worker names when it asks.
#[derive(Default)]
pub(super) struct ReportedEpochs {
    /// It answers under this one.
    pub(super) active: Epoch,
    /// It has given up the map before this one.
    pub(super) prepared: Epoch,
    /// It has the members of this one.
    pub(super) knows: Epoch,
}

impl ReportedEpochs {
    pub(super) fn from_renewal(renewal: &WorkerLeaseRenewal) -> Self {
        let &WorkerLeaseRenewal { active, prepared, knows, .. } = renewal;
        Self { active, prepared, knows }
    }
}

/// Prepared answer that announces the map in force.
pub(super) struct MapAnnouncement {
    from_former: MembershipChange,
    to_former: MembershipChange,
    handed_over: HandedOver,
}

impl MapAnnouncement {
    pub(super) fn new(
        document: &ClusterDocument,
        handed_over: &BTreeMap<WorkerId, OpenWriteHandover>,
    ) -> Self {
        let ClusterDocument { active, former, .. } = document;
        let ids = || former.members.iter().map(|member| &member.id);
        let silent: Vec<WorkerId> =
            ids().filter(|id| !handed_over.contains_key(id)).cloned().collect();
        let handed_over = if silent.len() <= handed_over.len() {
            HandedOver::AllBut(silent)
        } else {
            HandedOver::Only(handed_over.keys().cloned().collect())
        };
        Self {
            from_former: former.change_to(active),
            to_former: active.change_to(former),
            handed_over,
        }
    }
}

impl MembershipController {
    /// Returns the lease of a worker that has one, and what it has to hear.
    pub(super) fn build_grant(&self, id: &WorkerId, told: ReportedEpochs) -> WorkerLeaseGrant {
        let ReportedEpochs { active, prepared, knows } = told;
        let map = &self.document.active;
        // A process elsewhere is not the one that the map means.
        let member = self.names(id);
        let prepare = self
            .change
            .as_ref()
            .map(|change| change.membership.epoch)
            .filter(|&epoch| epoch != prepared);
        // No worker may begin to answer under a map that is being given up.
        let is_replaced = self.change.is_some() || self.lost.is_due();
        let activation = member.filter(|_| active != map.epoch && !is_replaced);
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        WorkerLeaseGrant {
            lease_ms: ms(self.options.settings.lease.0),
            outage_ms: ms(self.options.settings.outage.0),
            // Nobody answers under the found map while others may under a lost one.
            active: if self.lost.is_due() { Epoch(0) } else { map.epoch },
            activation: activation.map(|record| self.build_activation(record, knows)),
            prepare: prepare.filter(|_| member.is_some()),
            words: Vec::new(),
            // The caller adds the leader's wish; membership does not decide it.
            hot: None,
        }
    }

    fn build_activation(&self, record: &MemberRecord, knows: Epoch) -> ActivationNews {
        let ClusterDocument { active, former, .. } = &self.document;
        let map = if knows == former.epoch && knows.0 > 0 {
            MapAnswer::Change(self.told.from_former.clone())
        } else if knows == active.epoch {
            MapAnswer::Change(active.change_to(active))
        } else {
            MapAnswer::Membership(active.clone())
        };
        let uncertain_ms = match &record.resumes {
            Some(noted) => noted.uncertain_ms,
            None => self.handed_over.values().map(|noted| noted.uncertain_ms).max().unwrap_or(0),
        };
        ActivationNews {
            map,
            former: self.told.to_former.clone(),
            handed_over: self.told.handed_over.clone(),
            open_writes: self
                .handed_over
                .values()
                .flat_map(|noted| &noted.open_writes)
                .copied()
                .collect(),
            resumes: record.resumes.as_ref().map(|noted| noted.open_writes.clone()),
            uncertain_ms,
            restarted: record.restarted,
        }
    }
}
