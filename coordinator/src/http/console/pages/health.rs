//! Is the cluster well, and if not, what is to be done: in sentences.

use maud::{Markup, html};
use verbs3_coordinator_client::api::{ActivityRole, ClusterView, WorkerState};

use super::super::picture::ClusterPicture;
use super::super::shown_text::{count_text, duration_text, plain_text, sentence};
use crate::activity_board::{BINS_MAX, NodeReport};

/// Bins of the history that are "the last minutes": five minutes.
const RECENT_BINS: usize = 10;

/// What is wrong, and what is merely worth knowing.
pub(in super::super) struct HealthPicture {
    pub(in super::super) findings: Vec<String>,
    pub(in super::super) notes: Vec<String>,
    workers: usize,
}

fn well_text(workers: usize) -> String {
    match workers {
        1 => "The one worker answers, and nothing waits for you.".to_owned(),
        _ => {
            format!("All {} workers answer, and nothing waits for you.", count_text(workers as u64))
        }
    }
}

/// Collects what is wrong. The coordinator's own findings come first.
pub(in super::super) fn health_of(picture: &ClusterPicture) -> HealthPicture {
    let mut findings: Vec<String> =
        picture.cluster.findings.iter().map(|finding| sentence(finding)).collect();
    findings.extend(picture.users_flaw.iter().map(|flaw| {
        format!(
            "The console's users file is bad, so the users before its change can still sign in: \
            {}. Mend the file; it is read again by itself.",
            plain_text(flaw)
        )
    }));
    findings.extend(rail_findings(&picture.cluster));
    findings
        .extend(picture.nodes.iter().filter_map(|node| silence_finding(node, &picture.cluster)));
    for node in picture.nodes.iter().filter(|node| !node.is_silent) {
        let name = plain_text(&node.last.name);
        let cut_off = node.last.gauges.stores_cut_off;
        if cut_off > 0 {
            findings.push(format!(
                "{} {name} does not ask {} at present, because it failed too often. Objects that \
                are not cached can't be read there. See to the store; it is tried again by itself.",
                role_name(node.last.role),
                if cut_off == 1 { "one store".to_owned() } else { format!("{cut_off} stores") },
            ));
        }
        let down = node.last.rails.iter().filter(|rail| !rail.up);
        for rail in down.filter(|_| node.last.role == ActivityRole::Gateway) {
            findings.push(format!(
                "Rail {} of gateway {name} is not open. Look at its cable and its switch's port, \
                and run `verbs3 doctor` on that host.",
                plain_text(&rail.name)
            ));
        }
    }
    let workers = picture.cluster.workers.len();
    HealthPicture { findings, notes: collect_notes(picture), workers }
}

/// Of a worker that is lost, the coordinator's own finding tells.
fn silence_finding(node: &NodeReport, cluster: &ClusterView) -> Option<String> {
    let name = &node.last.name;
    let is_expected = match node.last.role {
        ActivityRole::Gateway => true,
        ActivityRole::Worker => cluster.workers.iter().any(|worker| {
            worker.id.0 == *name
                && matches!(worker.state, WorkerState::Serving | WorkerState::Draining)
        }),
    };
    (node.is_silent && is_expected).then(|| {
        format!(
            "{} {} has said nothing of its work for {}, and did not say that it would end. Look \
            whether it runs and reaches the coordinators. The figures leave it out.",
            role_name(node.last.role),
            plain_text(name),
            duration_text(node.age)
        )
    })
}

fn rail_findings(cluster: &ClusterView) -> Vec<String> {
    let mut findings = Vec::new();
    for worker in &cluster.workers {
        let down = worker.rails.iter().filter(|rail| rail.is_empty()).count();
        if down > 0 && matches!(worker.state, WorkerState::Serving | WorkerState::Draining) {
            findings.push(format!(
                "{down} of {} rails of worker {} is down. Look at the cable and the switch's port, \
                and run `verbs3 doctor` on that host. Its traffic goes another way meanwhile.",
                worker.rails.len(),
                plain_text(&worker.id.0)
            ));
        }
    }
    findings
}

fn collect_notes(picture: &ClusterPicture) -> Vec<String> {
    let mut notes = Vec::new();
    let preload = &picture.cluster.preload;
    if !preload.unfinished.is_empty() {
        notes.push(format!(
            "{} of the last day ended without all that was asked for. See Jobs.",
            jobs_text(preload.unfinished.len() as u64)
        ));
    }
    let recent = picture.hour.bins.iter().skip(BINS_MAX as usize - RECENT_BINS).flatten();
    let failed: u64 = recent.map(|bin| bin.counters.requests_failed).sum();
    if failed > 0 {
        notes.push(format!(
            "{} requests of the last five minutes were answered with an error of the server (5xx). \
            The gateways' logs say why.",
            count_text(failed)
        ));
    }
    if picture.nodes.is_empty() {
        notes.push(
            "No gateway and no worker has reported its figures yet. They ask every minute \
            whether a leader wants them."
                .to_owned(),
        );
    }
    notes
}

pub(super) fn jobs_text(count: u64) -> String {
    if count == 1 { "One job".to_owned() } else { format!("{} jobs", count_text(count)) }
}

pub(super) fn role_name(role: ActivityRole) -> &'static str {
    match role {
        ActivityRole::Worker => "Worker",
        ActivityRole::Gateway => "Gateway",
    }
}

impl HealthPicture {
    pub(in super::super) fn draw_health(&self) -> Markup {
        let is_well = self.findings.is_empty();
        html! {
            section class=(if is_well { "health well" } else { "health unwell" })
                aria-labelledby="health-title" {
                h2 id="health-title" {
                    @if is_well { "The cluster is well" } @else { "Something is to be done" }
                }
                @if is_well { p { (well_text(self.workers)) } }
                @else { ul { @for finding in &self.findings { li { (finding) } } } }
            }
            @if !self.notes.is_empty() {
                ul class="notes" { @for note in &self.notes { li { (note) } } }
            }
        }
    }
}
