//! Builds the view of the cluster that people are shown.

use std::collections::BTreeMap;

use verbs3_coordinator_client::api::{
    ClusterView, DrainProgress, EpochPreparation, PreloadView, WorkerState, WorkerView,
};
use verbs3_coordinator_client::hot_blocks::HotView;
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{Epoch, MemberRoster, WorkerId};

use super::MembershipController;

impl MembershipController {
    /// Builds the view. `slots` holds how many slots each worker owns in the map in force.
    pub fn build_cluster_view(
        &self,
        name: &str,
        leader: &str,
        slots: &BTreeMap<WorkerId, u32>,
        now: LeaseInstant,
    ) -> ClusterView {
        let preparing = self
            .waiting_for(now)
            .map(|(epoch, waiting_for)| EpochPreparation { epoch, waiting_for });
        let mut workers = self.worker_views(slots, now);
        for worker in &mut workers {
            worker.drained = is_drained(worker, &self.document.active);
        }
        let mut findings = collect_findings(&self.document.active, &workers, preparing.as_ref());
        findings.extend(self.lost_map_in_use().map(|epoch| {
            format!(
                "processes follow the map of epoch {}, which the coordinators' store does not \
                hold: it was emptied or put back; a map above comes once the leases of that time \
                are over",
                epoch.0
            )
        }));
        ClusterView {
            name: name.to_owned(),
            leader: Some(leader.to_owned()),
            epoch: self.document.active.epoch,
            preparing,
            replicas: self.options.replicas,
            workers,
            hot: HotView::default(),
            preload: PreloadView::default(),
            findings,
        }
    }

    fn worker_views(&self, slots: &BTreeMap<WorkerId, u32>, now: LeaseInstant) -> Vec<WorkerView> {
        let shown = self
            .records
            .iter()
            .filter(|(id, record)| record.is_live(now) || self.document.active.get(id).is_some());
        let view = shown.map(|(id, record)| {
            let state = match self.document.active.get(id) {
                _ if !record.is_live(now) => WorkerState::Lost,
                None => WorkerState::Joining,
                Some(member) if member.draining || record.member.draining => WorkerState::Draining,
                Some(_) => WorkerState::Serving,
            };
            WorkerView {
                id: id.clone(),
                address: record.member.address.clone(),
                weight: record.member.weight,
                zone: record.member.zone.clone(),
                state,
                lease_ms: u64::try_from(
                    record.lease_until.saturating_duration_since(now).as_millis(),
                )
                .unwrap_or(u64::MAX),
                tiers: record.tiers.clone(),
                rails: record.rails.clone(),
                active: record.active,
                slots: slots.get(id).copied().unwrap_or_default(),
                share_percent: self.document.share_percent(id),
                handing_over: record.handing_over,
                drained: false,
            }
        });
        let is_there =
            |id: &WorkerId| self.records.get(id).is_some_and(|record| record.is_live(now));
        let missing =
            self.document.missing.iter().filter(|member| !is_there(&member.id)).map(|member| {
                WorkerView {
                    id: member.id.clone(),
                    address: member.address.clone(),
                    weight: member.weight,
                    zone: member.zone.clone(),
                    state: WorkerState::Missing,
                    lease_ms: 0,
                    tiers: Vec::new(),
                    rails: Vec::new(),
                    active: Epoch(0),
                    slots: 0,
                    share_percent: 0,
                    handing_over: None,
                    drained: false,
                }
            });
        view.chain(missing).collect()
    }
}

/// Returns whether nobody needs this worker any more. Its hand-over report comes together with the
/// map that it follows.
fn is_drained(worker: &WorkerView, map: &MemberRoster) -> bool {
    let is_told =
        map.get(&worker.id).is_some_and(|member| member.draining) && worker.active == map.epoch;
    let has_handed_over = worker.handing_over.is_none_or(|progress| progress.blocks_left == 0);
    let owns_nothing = worker.slots == 0 && worker.share_percent == 0;
    worker.state == WorkerState::Draining && is_told && owns_nothing && has_handed_over
}

/// Collects what is wrong in the cluster, each with its remedy.
fn collect_findings(
    map: &MemberRoster,
    workers: &[WorkerView],
    preparing: Option<&EpochPreparation>,
) -> Vec<String> {
    let mut findings = Vec::new();
    if map.members.is_empty() {
        findings.push(
            "no worker has joined; start workers with cluster.coordinators = [this coordinator]"
                .to_owned(),
        );
    }
    let of = |state: WorkerState| workers.iter().filter(move |worker| worker.state == state);
    for worker in of(WorkerState::Lost) {
        findings.push(format!(
            "worker {} at {} does not answer; start it again, or say that it is dead: verbs3 \
            worker forget {}",
            worker.id, worker.address, worker.id
        ));
    }
    for worker in of(WorkerState::Missing) {
        findings.push(format!(
            "worker {} at {} went without a word, and the others have its slots; start it again, \
            or: verbs3 worker forget {}",
            worker.id, worker.address, worker.id
        ));
    }
    for worker in
        of(WorkerState::Draining).filter(|worker| worker.slots == 0 && worker.share_percent == 0)
    {
        let id = &worker.id;
        findings.push(match worker.handing_over {
            Some(DrainProgress { blocks, blocks_left, bytes }) if blocks_left > 0 => {
                let (done, mebibytes) = (blocks - blocks_left.min(blocks), bytes >> 20);
                format!(
                    "worker {id} hands over what is hot: {done} of {blocks} blocks, \
                    {mebibytes} MiB; wait with stopping it"
                )
            }
            _ if worker.drained => format!("worker {id} owns nothing any more and may be stopped"),
            // The worker has not heard of the map yet.
            _ => format!("worker {id} has to hear that it owns nothing any more; wait"),
        });
    }
    for worker in
        of(WorkerState::Serving).filter(|worker| worker.active != map.epoch && worker.active.0 != 0)
    {
        findings.push(format!(
            "worker {} still follows epoch {}; it asks the UFS meanwhile",
            worker.id, worker.active.0
        ));
    }
    let owning = map.members.iter().filter(|member| !member.draining).count();
    if owning > 0 && owning < usize::from(map.replicas) {
        findings.push(format!(
            "{owning} workers are fewer than {} replicas; add workers",
            map.replicas
        ));
    }
    if let Some(EpochPreparation { epoch, waiting_for }) = preparing
        && !waiting_for.is_empty()
    {
        let ids: Vec<&str> = waiting_for.iter().map(|id| id.0.as_str()).collect();
        findings.push(format!(
            "epoch {} waits for {} to give up the present map",
            epoch.0,
            ids.join(", ")
        ));
    }
    findings
}
