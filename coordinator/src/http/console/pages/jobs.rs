//! Preload jobs: the list, one of them, and the form that begins one.

use std::time::Duration;

use maud::{Markup, html};
use verbs3_coordinator_client::api::escape_path_segment;
use verbs3_preload::api::{JobState, JobView, PreloadJobAction, PreloadPhase};

use super::super::form::ConsoleForm;
use super::super::shown_text::{count_text, duration_text, plain_text, sentence, size_text};
use super::frame::draw_notice;
use super::runbooks::runbook_path;
use crate::console_access::SignedInUser;

/// Most paths of a job that its page lists.
const PATHS_SHOWN_MAX: usize = 20;

/// What a form is filled with: what was sent, where it was refused.
#[derive(Default)]
pub(in super::super) struct JobFormValues<'a> {
    pub(in super::super) sent: Option<&'a ConsoleForm>,
    pub(in super::super) refusal: Option<String>,
}

pub(in super::super) fn draw_jobs(jobs: &[JobView], now_ms: u64) -> Markup {
    html! {
        @if jobs.is_empty() { p { "There are no jobs." } }
        @else {
            div class="scroll" tabindex="0" role="region" aria-label="Jobs" {
                table {
                    thead { tr {
                        th scope="col" { "Job" } th scope="col" { "State" }
                        th scope="col" { "Progress" }
                        th scope="col" class="number" { "Failures" }
                        th scope="col" { "Owner" } th scope="col" class="number" { "Begun" }
                    } }
                    tbody { @for job in jobs { tr {
                        th scope="row" class="key" {
                            a href=(job_path(&job.id)) { (plain_text(&job.id)) }
                        }
                        td { (draw_state(job)) }
                        td { (draw_progress(job)) }
                        td class="number" { (count_text(job.failures.count)) }
                        td { (owner_text(job)) }
                        td class="number" { (age_text(job.created_ms, now_ms)) " ago" }
                    } } }
                }
            }
        }
    }
}

pub(in super::super) fn job_path(id: &str) -> String {
    format!("/console/jobs/{}", escape_path_segment(id))
}

fn owner_text(job: &JobView) -> String {
    job.owner.as_deref().map_or_else(|| "operators".to_owned(), plain_text)
}

fn age_text(since_ms: u64, now_ms: u64) -> String {
    duration_text(Duration::from_millis(now_ms.saturating_sub(since_ms)))
}

fn draw_state(job: &JobView) -> Markup {
    let (class, text) = match (job.state, job.phase) {
        (JobState::Queued, _) => ("chip", "waits"),
        (JobState::Running, PreloadPhase::Count) => ("chip busy", "counts"),
        (JobState::Running, PreloadPhase::Load) => ("chip busy", "loads"),
        (JobState::Running, PreloadPhase::Check) => ("chip busy", "checks"),
        (JobState::Done, _) => ("chip good", "done"),
        (JobState::Incomplete, _) => ("chip bad", "incomplete"),
        (JobState::Failed, _) => ("chip bad", "failed"),
        (JobState::Stopped, _) => ("chip", "stopped"),
    };
    html! { span class=(class) { (text) } }
}

fn draw_progress(job: &JobView) -> Markup {
    let counters = &job.counters;
    let (done, all) = match job.phase {
        PreloadPhase::Check if !job.state.is_over() => (counters.objects_checked, counters.objects),
        _ => (counters.objects_loaded, counters.objects),
    };
    let mut text = format!("{} of {} objects", count_text(done), count_text(all));
    if counters.objects_failed > 0 {
        let failed = count_text(counters.objects_failed);
        text.push_str(&format!(" gone through, {failed} failed"));
    }
    html! {
        @if job.state == JobState::Running && all > 0 && job.phase != PreloadPhase::Count {
            progress max=(all) value=(done.min(all)) aria-label=(text) {}
        }
        span class="detail" { (text) }
    }
}

/// Draws one job.
pub(in super::super) fn draw_job(job: &JobView, now_ms: u64) -> Markup {
    let counters = &job.counters;
    html! {
        p { (draw_state(job)) " " (draw_progress(job)) }
        @if let Some(reason) = &job.reason { p { (sentence(reason)) } }
        dl class="facts" {
            div { dt { "Action" } dd { (action_text(job)) } }
            div { dt { "Objects" } dd { (count_text(counters.objects)) } }
            div { dt { "Bytes" } dd { (size_text(counters.bytes)) } }
            div { dt { "Loaded from stores" } dd { (size_text(counters.bytes_loaded)) } }
            div { dt { "There already" } dd { (size_text(counters.bytes_held)) } }
            div { dt { "Objects missing after the check" }
                dd { (count_text(counters.objects_missing)) } }
            div { dt { "Repeated questions" } dd { (count_text(counters.retries)) } }
            div { dt { "Owner" } dd { (owner_text(job)) } }
            div { dt { "Begun" } dd { (age_text(job.created_ms, now_ms)) " ago" } }
            @if let Some(ended_ms) = job.ended_ms {
                div { dt { "Ended" } dd { (age_text(ended_ms, now_ms)) " ago" } }
            }
        }
        (draw_failures(job))
        (draw_selection(job))
    }
}

fn action_text(job: &JobView) -> &'static str {
    match job.spec.action {
        PreloadJobAction::Load if job.spec.dry_run => "count, without loading",
        PreloadJobAction::Load if job.spec.pin_ttl.is_some() => "load and pin",
        PreloadJobAction::Load => "load",
        PreloadJobAction::Evict => "give up",
        PreloadJobAction::Unpin => "unpin",
    }
}

fn failures_text(count: u64) -> String {
    if count == 1 { "One failure.".to_owned() } else { format!("{} failures.", count_text(count)) }
}

fn draw_failures(job: &JobView) -> Markup {
    let failures = &job.failures;
    if failures.count == 0 {
        return html! {};
    }
    html! {
        section aria-labelledby="failures-title" {
            h2 id="failures-title" { "Failures" }
            p { a href=(runbook_path("preload")) { "Runbook: preload jobs" } }
            p { (failures_text(failures.count)) " "
                @if let Some(file) = &failures.file {
                    "All are in " code { (plain_text(file)) } " on the coordinator's host. "
                }
                @if job.counters.objects_failed > 0 && job.counters.objects_missing > 0 {
                    "What was not loaded, and is missing at the check, is named for each."
                }
            }
            ul class="keys" { @for failure in &failures.first { li {
                bdi class="key" { (plain_text(&failure.path)) } br;
                span class="detail" { (sentence(&failure.reason)) }
            } } }
        }
    }
}

fn draw_selection(job: &JobView) -> Markup {
    let spec = &job.spec;
    let manifest = spec.manifest.iter();
    let named: Vec<&String> = spec.paths.iter().chain(&spec.prefixes).chain(manifest).collect();
    html! {
        section aria-labelledby="selection-title" {
            h2 id="selection-title" { "What it is about" }
            ul class="keys" { @for path in named.iter().take(PATHS_SHOWN_MAX) {
                li { bdi class="key" { (plain_text(path)) } }
            } }
            @if named.len() > PATHS_SHOWN_MAX {
                p { "and " (count_text((named.len() - PATHS_SHOWN_MAX) as u64)) " more" }
            }
        }
    }
}

/// Draws the form that ends a job, for who may.
pub(in super::super) fn draw_stop_form(job: &JobView, user: &SignedInUser) -> Option<Markup> {
    (user.may_change() && !job.state.is_over()).then(|| {
        html! {
            form method="post" action=(format!("{}/stop", job_path(&job.id))) {
                input type="hidden" name="form_token" value=(user.form_token);
                button type="submit" class="danger" { "Stop this job" }
            }
        }
    })
}

/// Draws the form that begins a job, for who may.
pub(in super::super) fn draw_job_form(
    user: &SignedInUser,
    values: JobFormValues<'_>,
) -> Option<Markup> {
    if !user.may_change() {
        return None;
    }
    let JobFormValues { sent, refusal } = values;
    let value = |name: &str| sent.and_then(|sent| sent.field(name)).unwrap_or_default();
    let options = |name: &'static str, options: [(&'static str, &'static str); 3]| {
        let chosen = sent.and_then(|sent| sent.field(name)).unwrap_or(options[0].0);
        html! { @for (option, text) in options.iter().filter(|(option, _)| !option.is_empty()) {
            option value=(option) selected[*option == chosen] { (text) }
        } }
    };
    let priorities = [("normal", "normal"), ("high", "high"), ("low", "low")];
    Some(html! {
        section class="panel" aria-labelledby="begin-title" {
            h2 id="begin-title" { "Begin a job" }
            @if let Some(refusal) = &refusal { (draw_notice(&sentence(refusal))) }
            form method="post" action="/console/jobs" {
                input type="hidden" name="form_token" value=(user.form_token);
                label for="prefixes" { "Load all below these prefixes" }
                p class="hint" id="prefixes-hint" { "One " code { "s3://bucket/prefix" } " a line" }
                textarea id="prefixes" name="prefixes" rows="2" spellcheck="false"
                    aria-describedby="prefixes-hint" { (value("prefixes")) }
                label for="paths" { "Load these objects" }
                p class="hint" id="paths-hint" { "One " code { "s3://bucket/key" } " a line" }
                textarea id="paths" name="paths" rows="2" spellcheck="false"
                    aria-describedby="paths-hint" { (value("paths")) }
                div class="row" {
                    div { label for="id" { "Name (optional)" }
                        input id="id" name="id" maxlength="64" autocomplete="off"
                            value=(value("id")); }
                    div { label for="tier" { "Into" }
                        select id="tier" name="tier" {
                            (options("tier", [("memory", "memory"), ("disk", "disk"), ("", "")]))
                        } }
                    div { label for="priority" { "Priority" }
                        select id="priority" name="priority" { (options("priority", priorities)) } }
                }
                div class="tick" {
                    input id="verify" type="checkbox" name="verify" value="yes"
                        checked[value("verify") == "yes"];
                    label for="verify" { "Read all back at the end, and compare" }
                }
                button type="submit" { "Begin" }
            }
        }
    })
}
