//! Looking an object up: where it is placed, and who has it.

use std::time::Duration;

use maud::{Markup, html};
use verbs3_preload::api::{BlockView, ObjectView, PlaceView};

use super::super::shown_text::{count_text, duration_text, plain_text, size_text};
use super::frame::draw_notice;

/// Blocks of one page. The API shows 1,024 at once, which is no page to read.
const BLOCKS_SHOWN_MAX: usize = 64;

/// What was asked, and what came of it.
pub(in super::super) struct ObjectQuestion<'a> {
    pub(in super::super) path: &'a str,
    pub(in super::super) first_block: u32,
}

pub(in super::super) fn draw_object_form(path: &str, refusal: Option<&str>) -> Markup {
    html! {
        section class="panel" {
            form method="get" action="/console/object" role="search" {
                label for="path" { "Object" }
                p class="hint" id="path-hint" {
                    "As clients name it: " code { "s3://bucket/key" }
                }
                div class="row" {
                    input id="path" name="path" class="grow" required spellcheck="false"
                        autocomplete="off" aria-describedby="path-hint" value=(path);
                    button type="submit" { "Look up" }
                }
            }
        }
        @if let Some(refusal) = refusal { (draw_notice(refusal)) }
    }
}

pub(in super::super) fn draw_object(view: &ObjectView, question: &ObjectQuestion<'_>) -> Markup {
    let shown = &view.blocks[..view.blocks.len().min(BLOCKS_SHOWN_MAX)];
    let held = |part: fn(&PlaceView) -> u32| {
        let places = shown.iter().flat_map(|block| &block.places);
        places.map(|place| u64::from(part(place))).sum::<u64>()
    };
    html! {
        section aria-labelledby="object-title" {
            h2 id="object-title" class="key" { bdi { (plain_text(&view.path)) } }
            dl class="facts" {
                div { dt { "Length" } dd { (size_text(view.bytes)) } }
                div { dt { "Blocks" } dd { (count_text(view.blocks_total)) } }
                div { dt { "Home" } dd {
                    (view.home.as_deref().map_or_else(|| "–".to_owned(), plain_text))
                } }
                div { dt { "Hash slot" } dd { (view.slot) } }
                div { dt { "ETag" } dd class="key" { (plain_text(&view.etag)) } }
                @if let Some(version) = &view.version_id {
                    div { dt { "Version" } dd class="key" { (plain_text(version)) } }
                }
                div { dt { "In the store" } dd class="key" { bdi {
                    (plain_text(&view.volume)) "/" (plain_text(&view.key))
                } } }
                div { dt { "In memory, of the blocks shown" }
                    dd { (size_text(held(|place| place.memory_bytes))) } }
                div { dt { "On disk, of the blocks shown" }
                    dd { (size_text(held(|place| place.disk_bytes))) } }
            }
            @for silent in &view.silent { (draw_notice(&plain_text(silent))) }
            @if view.blocks_total == 0 { p { "It has no blocks." } }
            @else if shown.is_empty() {
                p { "It has no block " (question.first_block) "; the first one is 0." }
            } @else {
                p class="hint" { "Held by those that the map places a block at. Other workers may \
                    have copies, of what is hot or was moved; they are not asked." }
                div class="scroll" tabindex="0" role="region" aria-label="Blocks" {
                    table {
                        thead { tr {
                            th scope="col" class="number" { "Block" }
                            th scope="col" class="number" { "Length" }
                            th scope="col" { "Placed at" } th scope="col" { "Held by" }
                        } }
                        tbody { @for block in shown { (draw_block(block)) } }
                    }
                }
            }
            (draw_next(view, shown, question))
        }
    }
}

fn draw_block(block: &BlockView) -> Markup {
    html! { tr {
        th scope="row" class="number" { (block.block) }
        td class="number" { (size_text(u64::from(block.bytes))) }
        td { @for (at, owner) in block.owners.iter().enumerate() {
            @if at > 0 { ", " } (plain_text(owner))
        } }
        td {
            @if block.places.is_empty() { "nobody" }
            @for place in &block.places { div { (place_text(place)) } }
        }
    } }
}

fn place_text(place: &PlaceView) -> String {
    let mut parts = Vec::new();
    for (bytes, name) in [
        (place.memory_bytes, "in memory"),
        (place.disk_bytes, "on disk"),
        (place.pinned_bytes, "pinned"),
    ] {
        if bytes > 0 {
            parts.push(format!("{} {name}", size_text(u64::from(bytes))));
        }
    }
    let idle = duration_text(Duration::from_secs(u64::from(place.idle_seconds)));
    format!("{}: {}; used {idle} ago", plain_text(&place.worker), parts.join(", "))
}

fn draw_next(view: &ObjectView, shown: &[BlockView], question: &ObjectQuestion<'_>) -> Markup {
    let next = u64::from(question.first_block) + shown.len() as u64;
    html! {
        @if next < view.blocks_total && !shown.is_empty() {
            form method="get" action="/console/object" {
                input type="hidden" name="path" value=(question.path);
                input type="hidden" name="first_block" value=(next);
                button type="submit" class="quiet" { "Blocks from " (count_text(next)) " on" }
            }
        }
    }
}
