//! Is the cluster well, and if not, what is to be done: in sentences.

use maud::{Markup, html};
use verbs3_coordinator_client::api::{ActivityRole, ClusterView, WorkerState, WorkerView};

use super::super::picture::ClusterPicture;
use super::super::shown_text::{count_text, duration_text, plain_text, sentence};
use super::runbooks::runbook_path;
use crate::activity_board::{ActivityHour, NodeReport};

/// Bins of the history that are "the last minutes": five minutes.
const RECENT_BINS: usize = 10;
/// Bins in which a store that fails is noticed. Gateways ask a store of which nobody wants anything
/// every 30 seconds, so that there is a request in one of two.
const STORE_BINS: usize = 2;
/// Failures of stores above which one in a hundred is too many. Below, it is one in two.
const STORE_FAILURES_MANY: u64 = 10;
/// What still works, and what is to be done.
const WITHOUT_STORE: &str = "Cached objects can be read as long as their attributes are believed \
    (attributes_ttl of their mount); all other reads fail, and all writes. Look at the store, and \
    at the way to it.";
/// Processes that one sentence names.
const NAMED_MAX: usize = 3;

/// A sentence, and the page that says more.
pub(in super::super) struct HealthLine {
    pub(in super::super) text: String,
    page: Option<(String, String)>,
}

impl HealthLine {
    fn from_text(text: String) -> Self {
        Self { text, page: None }
    }

    /// `title` is the end of the link's text: several links of one page must differ.
    fn with_runbook(self, name: &str, title: &str) -> Self {
        Self { page: Some((runbook_path(name), format!("Runbook: {title}"))), ..self }
    }
}

/// What is wrong, and what is merely worth knowing.
pub(in super::super) struct HealthPicture {
    pub(in super::super) findings: Vec<HealthLine>,
    pub(in super::super) notes: Vec<HealthLine>,
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
    let cluster = &picture.cluster;
    let own = cluster.findings.iter().map(|finding| cluster_finding(finding, cluster));
    let mut findings: Vec<HealthLine> = own.collect();
    findings.extend(picture.users_flaw.iter().map(|flaw| {
        HealthLine::from_text(format!(
            "The console's users file is bad, so the users before its change can still sign in: \
            {}. Mend the file; it is read again by itself.",
            plain_text(flaw)
        ))
    }));
    findings.extend(rail_findings(picture));
    findings.extend(picture.nodes.iter().filter_map(|node| silence_finding(node, cluster)));
    findings.extend(
        cut_off_finding(&picture.nodes)
            .or_else(|| store_finding(&picture.hour))
            .map(|text| HealthLine::from_text(text).with_runbook("store", "the object store")),
    );
    let workers = cluster.workers.len();
    HealthPicture { findings, notes: collect_notes(picture), workers }
}

/// Finds the runbook of what the coordinator says of a worker that is gone.
fn cluster_finding(finding: &str, cluster: &ClusterView) -> HealthLine {
    let is_about = |worker: &&WorkerView| finding.starts_with(&format!("worker {} ", worker.id));
    let is_gone = cluster
        .workers
        .iter()
        .find(is_about)
        .is_some_and(|worker| matches!(worker.state, WorkerState::Lost | WorkerState::Missing));
    let line = HealthLine::from_text(sentence(finding));
    if is_gone { line.with_runbook("workers", "workers that are gone") } else { line }
}

/// Names the processes that leave a store alone.
fn cut_off_finding(nodes: &[NodeReport]) -> Option<String> {
    let is_cut_off = |node: &&NodeReport| !node.is_silent && node.last.gauges.stores_cut_off > 0;
    let names = nodes.iter().filter(is_cut_off).map(node_name).collect::<Vec<_>>();
    let (named, others) = names.split_at(names.len().min(NAMED_MAX));
    let others = match others.len() {
        0 => String::new(),
        count => format!(" and {} more", count_text(count as u64)),
    };
    (!names.is_empty()).then(|| {
        format!(
            "A store failed so often that it is not asked at present by {}{others}. \
            {WITHOUT_STORE} It is asked again by itself.",
            named.join(", ")
        )
    })
}

/// Tells of stores that fail, also where too little is asked of them to leave them alone.
fn store_finding(hour: &ActivityHour) -> Option<String> {
    let recent = hour.bins.iter().rev().take(STORE_BINS).flatten();
    let (failed, asked) = recent.fold((0u64, 0u64), |(failed, asked), bin| {
        let counters = &bin.counters;
        (failed + counters.store_failures, asked + counters.store_requests)
    });
    let is_most = failed > 0 && failed.saturating_mul(2) >= asked;
    let is_much = failed >= STORE_FAILURES_MANY && failed.saturating_mul(100) > asked;
    (is_most || is_much).then(|| {
        format!(
            "{} of {} requests to stores failed within the last minute: no answer, an error of the \
            store (5xx), or an answer that can't be trusted. {WITHOUT_STORE}",
            count_text(failed),
            count_text(asked)
        )
    })
}

fn node_name(node: &NodeReport) -> String {
    let role = match node.last.role {
        ActivityRole::Worker => "worker",
        ActivityRole::Gateway => "gateway",
    };
    format!("{role} {}", plain_text(&node.last.name))
}

/// Of a worker that is lost, the coordinator's own finding tells.
fn silence_finding(node: &NodeReport, cluster: &ClusterView) -> Option<HealthLine> {
    let name = &node.last.name;
    let is_expected = match node.last.role {
        ActivityRole::Gateway => true,
        ActivityRole::Worker => cluster.workers.iter().any(|worker| {
            worker.id.0 == *name
                && matches!(worker.state, WorkerState::Serving | WorkerState::Draining)
        }),
    };
    (node.is_silent && is_expected).then(|| {
        HealthLine::from_text(sentence(&format!(
            "{} has said nothing of its work for {}, and did not say that it would end. Look \
            whether it runs and reaches the coordinators. The figures leave it out.",
            node_name(node),
            duration_text(node.age)
        )))
        .with_runbook("workers", "processes that are gone")
    })
}

/// Workers tell the coordinators of their rails, and by their reports what these are called.
/// Gateways have reports alone.
fn rail_findings(picture: &ClusterPicture) -> Vec<HealthLine> {
    let heard =
        |role| picture.nodes.iter().filter(move |node| !node.is_silent && node.last.role == role);
    let down_of = |node: &NodeReport| -> Vec<String> {
        let down = node.last.rails.iter().filter(|rail| !rail.up);
        down.map(|rail| plain_text(&rail.name)).collect()
    };
    let mut findings = Vec::new();
    for worker in &picture.cluster.workers {
        let down = worker.rails.iter().filter(|rail| rail.is_empty()).count();
        if down > 0 && matches!(worker.state, WorkerState::Serving | WorkerState::Draining) {
            let report = heard(ActivityRole::Worker).find(|node| node.last.name == worker.id.0);
            let names = report.map(down_of).unwrap_or_default();
            let owner = format!("worker {}", plain_text(&worker.id.0));
            findings.push(rail_finding(&owner, &names, down, worker.rails.len()));
        }
    }
    for gateway in heard(ActivityRole::Gateway) {
        let names = down_of(gateway);
        if !names.is_empty() {
            let all = gateway.last.rails.len();
            findings.push(rail_finding(&node_name(gateway), &names, names.len(), all));
        }
    }
    findings
}

/// `down` of `all` rails can't be used. Its last report may not name them yet.
fn rail_finding(owner: &str, names: &[String], down: usize, all: usize) -> HealthLine {
    let named = match names {
        [] => String::new(),
        _ => format!(": {}", names.join(", ")),
    };
    let verb = if down == 1 { "is" } else { "are" };
    HealthLine::from_text(format!(
        "{down} of {all} rails of {owner} {verb} down{named}. Its traffic goes another way \
        meanwhile. Look at the cable and the switch's port, and run `verbs3 doctor` on that host; \
        it is used again by itself."
    ))
    .with_runbook("rails", "rails")
}

fn collect_notes(picture: &ClusterPicture) -> Vec<HealthLine> {
    let mut notes = Vec::new();
    let unfinished = picture.cluster.preload.unfinished.len() as u64;
    if unfinished > 0 {
        let text = format!(
            "{} of the last day ended without all that was asked for.",
            jobs_text(unfinished)
        );
        let page = Some(("/console/jobs".to_owned(), "See which, and why".to_owned()));
        notes.push(HealthLine { text, page });
    }
    let recent = picture.hour.bins.iter().rev().take(RECENT_BINS).flatten();
    let failed: u64 = recent.map(|bin| bin.counters.requests_failed).sum();
    if failed > 0 {
        let text = format!(
            "{} requests of the last five minutes were answered with an error of the server (5xx). \
            The gateways' logs say why.",
            count_text(failed)
        );
        notes.push(HealthLine::from_text(text).with_runbook("errors", "requests that fail"));
    }
    if picture.nodes.is_empty() {
        let text = "No gateway and no worker has reported its figures yet. They ask every minute \
            whether a leader wants them.";
        notes.push(HealthLine::from_text(text.to_owned()));
    }
    notes
}

pub(super) fn jobs_text(count: u64) -> String {
    if count == 1 { "One job".to_owned() } else { format!("{} jobs", count_text(count)) }
}

fn draw_line(line: &HealthLine) -> Markup {
    html! {
        (line.text)
        @if let Some((path, text)) = &line.page { " " a href=(path) { (text) } }
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
                @else { ul { @for finding in &self.findings { li { (draw_line(finding)) } } } }
            }
            @if !self.notes.is_empty() {
                ul class="notes" { @for note in &self.notes { li { (draw_line(note)) } } }
            }
        }
    }
}
