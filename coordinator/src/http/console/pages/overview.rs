//! The first page: health, the figures of the last hour, what moves, and what is hot.

use maud::{Markup, html};
use verbs3_coordinator_client::api::{ActivityCounters, ActivityRole, WorkerState, WorkerView};

use super::super::picture::ClusterPicture;
use super::super::shown_text::{
    count_text, duration_text, latency_text, per_second, percent_text, plain_text, rate_text,
    size_text,
};
use super::super::sparkline::draw_sparkline;
use super::health::{health_of, jobs_text};
use crate::activity_board::{ActivityHour, ActivitySpan, BIN, BINS_MAX};

/// One figure, with the line of its hour.
struct FigureTile<'a> {
    name: &'a str,
    value: String,
    detail: String,
    line: Vec<Option<f64>>,
    label: &'a str,
}

pub(in super::super) fn draw_overview(picture: &ClusterPicture) -> Markup {
    let hour = &picture.hour;
    html! {
        (health_of(picture).draw_health())
        section aria-labelledby="hour-title" {
            h2 id="hour-title" { "The last hour" }
            p class="hint" { (coverage_text(picture)) }
            div class="tiles" {
                @for tile in hour_tiles(hour) { (draw_tile(&tile)) }
            }
            (draw_latencies(hour))
        }
        (draw_movement(picture))
        (draw_hot(picture))
    }
}

/// Says what the figures are made of.
fn coverage_text(picture: &ClusterPicture) -> String {
    let heard = |role| {
        picture.nodes.iter().filter(|node| node.last.role == role && !node.is_silent).count()
    };
    let named = |count: usize, name: &str| match count {
        1 => format!("1 {name}"),
        count => format!("{} {name}s", count_text(count as u64)),
    };
    let mut text = format!(
        "From {} and {}",
        named(heard(ActivityRole::Gateway), "gateway"),
        named(heard(ActivityRole::Worker), "worker")
    );
    let silent = picture.nodes.iter().filter(|node| node.is_silent).count();
    if silent > 0 {
        let verb = if silent == 1 { "is" } else { "are" };
        text.push_str(&format!("; {} {verb} silent", count_text(silent as u64)));
    }
    let seen = picture.hour.seen;
    if seen + BIN * 2 < BIN * (BINS_MAX as u32) {
        text.push_str(&format!(
            ". Only {} of the hour are known: figures begin anew with each coordinator that leads",
            duration_text(seen)
        ));
    }
    text + "."
}

/// Returns one value per bin.
fn line_of(hour: &ActivityHour, value: impl Fn(&ActivitySpan) -> Option<f64>) -> Vec<Option<f64>> {
    // The last bin has just begun: it would look as if all had ended.
    let is_first = hour.bins.iter().flatten().count() < 2;
    let bins = &hour.bins[..hour.bins.len() - usize::from(!is_first)];
    bins.iter().map(|bin| bin.as_ref().and_then(&value)).collect()
}

fn hour_tiles(hour: &ActivityHour) -> [FigureTile<'static>; 4] {
    let total = &hour.total.counters;
    let rate = |pick: fn(&ActivityCounters) -> u64| {
        line_of(hour, move |bin| Some(per_second(pick(&bin.counters), BIN)))
    };
    let hit_ratio = |bin: &ActivitySpan| {
        let ActivityCounters { reads, reads_hit, .. } = bin.counters;
        (reads > 0).then(|| reads_hit as f64 / reads as f64)
    };
    [
        FigureTile {
            name: "Hit ratio",
            value: percent_text(total.reads_hit, total.reads).unwrap_or_else(|| "–".to_owned()),
            detail: format!(
                "of {} reads; {} went past the cache",
                count_text(total.reads),
                count_text(total.reads_bypassed)
            ),
            line: line_of(hour, hit_ratio),
            label: "Hit ratio over the last hour",
        },
        FigureTile {
            name: "Sent to clients",
            value: size_text(total.bytes_sent),
            detail: format!("{} taken from them", size_text(total.bytes_received)),
            line: rate(|counters| counters.bytes_sent),
            label: "Bytes a second sent to clients over the last hour",
        },
        FigureTile {
            name: "Read from stores",
            value: size_text(total.store_bytes_read),
            detail: format!(
                "{} written; {} requests, {} failed",
                size_text(total.store_bytes_written),
                count_text(total.store_requests),
                count_text(total.store_failures)
            ),
            line: rate(|counters| counters.store_bytes_read),
            label: "Bytes a second read from stores over the last hour",
        },
        FigureTile {
            name: "Requests",
            value: rate_text(per_second(total.requests, hour.seen)),
            detail: format!(
                "{} in all, {} failed (5xx)",
                count_text(total.requests),
                count_text(total.requests_failed)
            ),
            line: rate(|counters| counters.requests),
            label: "Requests a second over the last hour",
        },
    ]
}

fn draw_tile(tile: &FigureTile<'_>) -> Markup {
    html! {
        div class="tile" {
            h3 { (tile.name) }
            p class="figure" { (tile.value) }
            (draw_sparkline(&tile.line, tile.label))
            p class="detail" { (tile.detail) }
        }
    }
}

fn draw_latencies(hour: &ActivityHour) -> Markup {
    let rows = [
        (
            "Requests of clients",
            &hour.total.requests,
            line_of(hour, |bin| bin.requests.quantile_us(0.99)),
        ),
        (
            "Store, to its answer's head",
            &hour.total.store,
            line_of(hour, |bin| bin.store.quantile_us(0.99)),
        ),
    ];
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Latency" {
            table {
                caption { "Latency: so many of the requests took no longer" }
                thead { tr {
                    th scope="col" { "What" }
                    @for head in ["50 %", "90 %", "99 %", "99.9 %"] {
                        th scope="col" class="number" { (head) }
                    }
                    th scope="col" { "99 % over the hour" }
                } }
                tbody { @for (name, counts, line) in &rows { tr {
                    th scope="row" { (name) }
                    @for part in [0.5, 0.9, 0.99, 0.999] {
                        td class="number" { (latency_text(counts.quantile_us(part))) }
                    }
                    td { (draw_sparkline(line, &format!("{name}: 99 % over the last hour"))) }
                } } }
            }
        }
    }
}

fn draw_movement(picture: &ClusterPicture) -> Markup {
    let (gauges, total) = (&picture.gauges, &picture.hour.total.counters);
    let moving = |worker: &&WorkerView| {
        let is_there = matches!(worker.state, WorkerState::Serving | WorkerState::Joining);
        (is_there && worker.share_percent < 100) || worker.state == WorkerState::Draining
    };
    let preload = &picture.cluster.preload;
    html! {
        section aria-labelledby="moves-title" {
            h2 id="moves-title" { "Fills, moves and jobs" }
            dl class="facts" {
                div { dt { "Fills under way" } dd { (count_text(gauges.fills_running)) } }
                div { dt { "Fills that wait" } dd { (count_text(gauges.fills_waiting)) } }
                div { dt { "Fills that failed in the hour" } dd { (count_text(total.fills_failed)) } }
                div { dt { "Moved between workers in the hour" }
                    dd { (size_text(total.bytes_moved)) } }
                div { dt { "Pages given up in the hour" } dd { (count_text(total.evictions)) } }
                div { dt { "Jobs" } dd {
                    a href="/console/jobs" {
                        (count_text(preload.running)) " running, "
                        (count_text(preload.waiting)) " waiting"
                    } } }
            }
            @if let Some(preparing) = &picture.cluster.preparing {
                p { "Placement map " (preparing.epoch.0) " is being prepared; map "
                    (picture.cluster.epoch.0) " is in force until then." }
            } @else {
                p { "Placement map " (picture.cluster.epoch.0) " is in force." }
            }
            @for worker in picture.cluster.workers.iter().filter(moving) {
                p { (moving_text(worker)) }
            }
        }
    }
}

fn moving_text(worker: &WorkerView) -> String {
    let id = plain_text(&worker.id.0);
    let share = worker.share_percent;
    match (worker.state, worker.handing_over) {
        (WorkerState::Draining, Some(left)) if left.blocks_left > 0 => format!(
            "Worker {id} is being drained: it has {share} % of its share left, and has {} of {} hot \
            blocks to hand over. Wait with stopping it.",
            count_text(left.blocks_left),
            count_text(left.blocks)
        ),
        (WorkerState::Draining, _) if worker.drained => {
            format!("Worker {id} is drained and may be stopped.")
        }
        (WorkerState::Draining, _) => format!(
            "Worker {id} is being drained: it has {share} % of its share left. Wait with stopping it."
        ),
        (WorkerState::Joining, _) => format!("Worker {id} joins with the next map."),
        _ => format!("Worker {id} joins: it has {share} % of its share so far."),
    }
}

fn draw_hot(picture: &ClusterPicture) -> Markup {
    let hot = &picture.cluster.hot;
    html! {
        section aria-labelledby="hot-title" {
            h2 id="hot-title" { "What is hot" }
            @if hot.hottest.is_empty() {
                p { "No block is read more than one worker should serve." }
            } @else {
                p {
                    @if hot.blocks == 1 { "One block is read so much that several workers serve it." }
                    @else {
                        (count_text(hot.blocks)) " blocks are read so much that several workers \
                        serve each. The hottest:"
                    }
                }
                div class="scroll" tabindex="0" role="region" aria-label="Hot blocks" {
                    table {
                        thead { tr {
                            th scope="col" { "Object" } th scope="col" class="number" { "Block" }
                            th scope="col" class="number" { "Workers" }
                            th scope="col" class="number" { "Rate" }
                        } }
                        tbody { @for block in &hot.hottest { tr {
                            td class="key" { bdi {
                                (plain_text(&block.volume)) "/" (plain_text(&block.key))
                            } }
                            td class="number" { (block.block) }
                            td class="number" { (block.workers) }
                            td class="number" { (size_text(block.bytes_per_second)) "/s" }
                        } } }
                    }
                }
            }
            @let unfinished = picture.cluster.preload.unfinished.len() as u64;
            @if unfinished > 0 {
                p { a href="/console/jobs" { (jobs_text(unfinished)) " not finished" } }
            }
        }
    }
}
