//! Workers and gateways, with their rails and transports.

use maud::{Markup, html};
use verbs3_coordinator_client::api::{
    ActivityCounters, ActivityRole, RailActivity, TransportActivity, WorkerState, WorkerView,
};

use super::super::picture::ClusterPicture;
use super::super::shown_text::{
    count_text, duration_text, per_second, plain_text, rate_text, size_text,
};
use crate::activity_board::NodeReport;

pub(in super::super) fn draw_nodes(picture: &ClusterPicture) -> Markup {
    let gateways: Vec<&NodeReport> = of_role(&picture.nodes, ActivityRole::Gateway).collect();
    html! {
        section {
            h2 { "Workers" }
            @if picture.cluster.workers.is_empty() {
                p { "No worker has joined yet." }
            } @else { (draw_workers(picture)) }
        }
        section {
            h2 { "Gateways" }
            @if gateways.is_empty() {
                p { "No gateway has reported within the last hour. Coordinators know gateways by \
                    their reports alone." }
            } @else { (draw_gateways(&gateways)) }
        }
        section {
            h2 { "Rails and transports" }
            @if picture.nodes.is_empty() { p { "Nobody has reported yet." } }
            @else { (draw_ways(&picture.nodes)) }
        }
    }
}

fn of_role(nodes: &[NodeReport], role: ActivityRole) -> impl Iterator<Item = &NodeReport> {
    nodes.iter().filter(move |node| node.last.role == role)
}

fn draw_workers(picture: &ClusterPicture) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Workers" {
            table {
                thead { tr {
                    th scope="col" { "Worker" } th scope="col" { "State" }
                    th scope="col" class="number" { "Share" }
                    th scope="col" class="number" { "Slots" }
                    th scope="col" class="number" { "Memory" }
                    th scope="col" class="number" { "Disk" }
                    th scope="col" class="number" { "Rails" }
                    th scope="col" { "Heard" }
                    th scope="col" { "Zone" } th scope="col" { "Address" }
                } }
                tbody { @for worker in &picture.cluster.workers {
                    @let report = of_role(&picture.nodes, ActivityRole::Worker)
                        .find(|node| node.last.name == worker.id.0);
                    (draw_worker(worker, report))
                } }
            }
        }
    }
}

fn draw_worker(worker: &WorkerView, report: Option<&NodeReport>) -> Markup {
    let tier = |kind: &str| {
        let tiers = worker.tiers.iter().filter(|tier| tier.kind == kind);
        tiers.map(|tier| tier.bytes).sum::<u64>()
    };
    let (up, rails) = (worker.rails.iter().filter(|rail| !rail.is_empty()), worker.rails.len());
    html! {
        tr {
            th scope="row" { (plain_text(&worker.id.0)) }
            td { (draw_state(worker)) }
            td class="number" { (worker.share_percent) " %" }
            td class="number" { (count_text(u64::from(worker.slots))) }
            td class="number" {
                @if let Some(report) = report.filter(|report| !report.is_silent) {
                    (size_text(report.last.gauges.memory_held)) " of "
                }
                (size_text(tier("memory")))
            }
            td class="number" {
                @match tier("disk") { 0 => { "–" } bytes => { (size_text(bytes)) } }
            }
            td class="number" {
                @if rails == 0 { "–" } @else { (up.count()) " of " (rails) }
            }
            td { @if let Some(report) = report { (draw_heard(report)) } @else { "no report" } }
            td { (plain_text(&worker.zone)) }
            td class="key" { (plain_text(&worker.address)) }
        }
    }
}

fn draw_state(worker: &WorkerView) -> Markup {
    let (class, text) = match worker.state {
        WorkerState::Serving => ("chip good", "serving"),
        WorkerState::Joining => ("chip busy", "joining"),
        WorkerState::Draining if worker.drained => ("chip busy", "drained"),
        WorkerState::Draining => ("chip busy", "draining"),
        WorkerState::Lost => ("chip bad", "does not answer"),
        WorkerState::Missing => ("chip bad", "missing"),
        WorkerState::Unknown => ("chip", "unknown"),
    };
    html! { span class=(class) { (text) } }
}

fn draw_gateways(gateways: &[&NodeReport]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Gateways" {
            table {
                thead { tr {
                    th scope="col" { "Gateway" }
                    th scope="col" class="number" { "Requests" }
                    th scope="col" class="number" { "Failed" }
                    th scope="col" class="number" { "Sent" }
                    th scope="col" { "Heard" }
                } }
                tbody { @for gateway in gateways {
                    @let pace = gateway.pace.filter(|_| !gateway.is_silent);
                    @let rate = |pick: fn(&ActivityCounters) -> u64| {
                        pace.map(|pace| per_second(pick(&pace.counters), pace.over))
                    };
                    @let sent = rate(|counters| counters.bytes_sent);
                    tr {
                        th scope="row" {
                            (plain_text(&gateway.last.name))
                            // Names are what a gateway says; its certificate is proved.
                            @if !gateway.certificate.is_empty() {
                                " (" (plain_text(&gateway.certificate)) ")"
                            }
                        }
                        td class="number" { (rate_or_dash(rate(|counters| counters.requests))) }
                        td class="number" {
                            (rate_or_dash(rate(|counters| counters.requests_failed)))
                        }
                        td class="number" {
                            @match sent { Some(sent) => { (size_text(sent as u64)) "/s" } None => { "–" } }
                        }
                        td { (draw_heard(gateway)) }
                    }
                } }
            }
        }
    }
}

fn rate_or_dash(rate: Option<f64>) -> String {
    rate.map_or_else(|| "–".to_owned(), rate_text)
}

/// When a process has last reported. What it said before a silence is not shown as if it were so.
fn draw_heard(report: &NodeReport) -> Markup {
    let age = duration_text(report.age);
    html! {
        @if report.is_silent { span class="chip bad" { "silent for " (age) } }
        @else { (age) " ago" }
    }
}

fn draw_ways(nodes: &[NodeReport]) -> Markup {
    html! {
        p { "What went over each transport since the start of its process, by its last report." }
        div class="scroll" tabindex="0" role="region" aria-label="Rails and transports" {
            table {
                thead { tr {
                    th scope="col" { "Node" } th scope="col" { "Way" }
                    th scope="col" class="number" { "Connections" }
                    th scope="col" class="number" { "In" }
                    th scope="col" class="number" { "Out" }
                } }
                tbody { @for node in nodes.iter().filter(|node| !node.is_silent) {
                    @for way in &node.last.transports { (draw_transport(node, way)) }
                    @for rail in &node.last.rails { (draw_rail(node, rail)) }
                } }
            }
        }
    }
}

fn draw_transport(node: &NodeReport, way: &TransportActivity) -> Markup {
    html! { tr {
        th scope="row" { (plain_text(&node.last.name)) }
        td { (plain_text(&way.name)) }
        td class="number" { (count_text(way.connections)) }
        td class="number" { (size_text(way.bytes_in)) }
        td class="number" { (size_text(way.bytes_out)) }
    } }
}

fn draw_rail(node: &NodeReport, rail: &RailActivity) -> Markup {
    let (class, text) = if rail.up { ("chip good", "open") } else { ("chip bad", "not open") };
    html! { tr {
        th scope="row" { (plain_text(&node.last.name)) }
        td { "rail " (plain_text(&rail.name)) }
        td colspan="3" { span class=(class) { (text) } }
    } }
}
