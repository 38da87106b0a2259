//! What strangers have named is shown, and never taken for markup.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::json;
use verbs3_coordinator_client::api::{ActivityRole, NodeActivity, WorkerState};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_preload::api::{JobView, ObjectView};
use verbs3_protocol::WorkerId;

use super::super::form::ConsoleForm;
use super::super::picture::ClusterPicture;
use super::*;
use crate::activity_board::ActivityBoard;
use crate::console_access::ConsoleRole;
use crate::console_access::SignedInUser;

/// Markup in a text, in an attribute, and letters that turn the direction of writing.
const HOSTILE: &str = "'\"></textarea></td><script>alert(1)</script><img src=x onerror=y>\u{202e}";

fn seconds(seconds: u64) -> LeaseInstant {
    LeaseInstant::default().saturating_add(Duration::from_secs(seconds))
}

fn hostile_job() -> JobView {
    serde_json::from_value(json!({
        "id": HOSTILE, "owner": HOSTILE, "state": "incomplete", "phase": "check",
        "reason": HOSTILE,
        "counters": { "objects": 3, "objects_loaded": 2 },
        "failures": {
            "count": 1, "file": HOSTILE, "left_out": 0,
            "first": [{ "path": HOSTILE, "reason": HOSTILE }],
        },
        "created_ms": 0, "ended_ms": 1, "resumed": 0, "rounds": 1, "news": 0,
        "spec": { "id": HOSTILE, "paths": [HOSTILE], "prefixes": [HOSTILE], "manifest": HOSTILE },
    }))
    .unwrap()
}

fn hostile_report(role: ActivityRole, count: u64) -> NodeActivity {
    let role = serde_json::to_value(role).unwrap();
    serde_json::from_value(json!({
        "role": role, "name": HOSTILE, "number": count, "counters": { "requests": count },
        "gauges": { "stores_cut_off": 1 },
        "transports": [{ "name": HOSTILE, "connections": 1 }],
        "rails": [{ "name": HOSTILE, "up": false }],
        "tenants": [{ "name": HOSTILE, "requests": count }],
    }))
    .unwrap()
}

fn hostile_picture(now: u64) -> ClusterPicture {
    let mut board = ActivityBoard::new(Duration::from_secs(10));
    // A name with control characters is refused; this one has none.
    for (at, count) in [(100, 1), (110, 2)] {
        for role in [ActivityRole::Gateway, ActivityRole::Worker] {
            board.record_report("", hostile_report(role, count), seconds(at)).unwrap();
        }
    }
    let cluster = json!({
        "name": HOSTILE, "leader": HOSTILE, "epoch": 4, "preparing": null, "replicas": 1,
        "workers": [{
            "id": HOSTILE, "address": HOSTILE, "weight": 1.0, "zone": HOSTILE, "state": "serving",
            "lease_ms": 1, "tiers": [], "rails": [""], "active": 4, "slots": 1, "share_percent": 50,
        }],
        "hot": { "blocks": 1, "hottest": [{
            "volume": HOSTILE, "key": HOSTILE, "block": 0, "workers": 2, "bytes_per_second": 7,
        }] },
        "preload": { "running": 0, "waiting": 0, "unfinished": [{
            "id": HOSTILE, "state": "failed", "reason": HOSTILE, "ended_ms": 1,
        }] },
        "findings": [HOSTILE],
    });
    ClusterPicture {
        cluster: serde_json::from_value(cluster).unwrap(),
        hour: board.last_hour(seconds(now)),
        nodes: board.recent_reports(seconds(now)),
        gauges: board.current_gauges(seconds(now)),
        jobs: vec![hostile_job()],
        users_flaw: Some(HOSTILE.to_owned()),
    }
}

#[test]
fn what_strangers_have_named_is_never_taken_for_markup() {
    let user = SignedInUser {
        name: "alice".to_owned(),
        role: ConsoleRole::Operator,
        form_token: "t".to_owned(),
    };
    let (picture, job) = (hostile_picture(115), hostile_job());
    let object: ObjectView = serde_json::from_value(json!({
        "path": HOSTILE, "volume": HOSTILE, "key": HOSTILE, "home": HOSTILE, "slot": 1,
        "etag": HOSTILE, "bytes": 1, "version_id": HOSTILE, "blocks_total": 2,
        "blocks": [{ "block": 0, "bytes": 1, "owners": [HOSTILE], "places": [{
            "worker": HOSTILE, "memory_bytes": 1, "disk_bytes": 0, "pinned_bytes": 0, "uses": 0,
            "idle_seconds": 1,
        }] }],
        "silent": [HOSTILE],
    }))
    .unwrap();
    let encoded: String = HOSTILE.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let fields = ["id", "paths", "prefixes", "priority"].map(|name| format!("{name}={encoded}"));
    let sent = ConsoleForm::parse_fields(fields.join("&").as_bytes()).unwrap();
    let values = JobFormValues { sent: Some(&sent), refusal: Some(HOSTILE.to_owned()) };
    let frame = PageFrame { cluster: HOSTILE, title: HOSTILE, tab: None, user: Some(&user) };
    let question = ObjectQuestion { path: HOSTILE, first_block: 0 };
    let pages = [
        draw_overview(&picture),
        draw_nodes(&picture),
        draw_tenants(&picture),
        draw_jobs(&picture.jobs, 1),
        draw_job(&job, 1),
        draw_object(&object, &question),
        draw_object_form(HOSTILE, Some(HOSTILE)),
        draw_job_form(&user, values).unwrap(),
        frame.draw_page(PageContent::default()),
    ];
    for page in pages {
        let page = page.into_string();
        assert!(page.contains("&lt;script&gt;alert(1)"), "the name is missing in {page}");
        for raw in ["<script>", "<img", "</textarea></td>", "'\">"] {
            assert!(!page.contains(raw), "{raw} in {page}");
        }
    }
    assert!(!draw_tenants(&picture).into_string().contains('\u{202e}'));
    assert!(job_path(HOSTILE).bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'));
}

#[test]
fn what_a_silent_process_said_is_not_shown_as_if_it_were_so() {
    let (heard, silent) = (hostile_picture(115), hostile_picture(110 + 200));
    let overview = draw_overview(&heard).into_string();
    assert!(overview.contains("From 1 gateway and 1 worker. Only 15 s"), "{overview}");
    assert!(overview.contains("is not asked at present by"), "{overview}");
    assert!(overview.contains("users file is bad"), "{overview}");
    let overview = draw_overview(&silent).into_string();
    assert!(overview.contains("From 0 gateways and 0 workers; 2 are silent"), "{overview}");
    assert!(overview.contains("has said nothing of its work for 3 min"), "{overview}");
    assert!(!overview.contains("is not asked at present"), "{overview}");
    let nodes = draw_nodes(&silent).into_string();
    assert_eq!(nodes.matches("silent for 3 min").count(), 2, "{nodes}");
    assert!(!nodes.contains("not open") && !nodes.contains("0.1/s"), "{nodes}");
}

#[test]
fn what_is_wrong_leads_to_its_runbook() {
    let overview = |cut_off: u64, failed: u64, asked: u64| {
        let mut picture = hostile_picture(115);
        let mut board = ActivityBoard::new(Duration::from_secs(10));
        for (number, failed, asked) in [(1, 0, 0), (2, failed, asked)] {
            let report = json!({
                "role": "worker", "name": "a", "number": number,
                "counters": {
                    "store_failures": failed, "store_requests": asked, "requests_failed": 2 * asked,
                },
                "gauges": { "stores_cut_off": cut_off },
                "rails": [{ "name": "mlx5_0:1", "up": false }, { "name": "mlx5_1:1", "up": true }],
            });
            let at = seconds(90 + 10 * number);
            board.record_report("", serde_json::from_value(report).unwrap(), at).unwrap();
        }
        picture.hour = board.last_hour(seconds(115));
        picture.nodes = board.recent_reports(seconds(115));
        let workers = &mut picture.cluster.workers;
        let mut gone = workers[0].clone();
        workers[0].id = WorkerId("a".to_owned());
        workers[0].rails.push("10.0.0.1:9403".to_owned());
        (gone.id, gone.state) = (WorkerId("ab".to_owned()), WorkerState::Missing);
        workers.push(gone);
        picture.cluster.findings =
            vec!["worker ab is gone".to_owned(), "worker a hangs".to_owned()];
        draw_overview(&picture).into_string()
    };
    let link = |name: &str| format!("<a href=\"/console/runbooks/{name}\">Runbook: ");
    let well = overview(0, 0, 4);
    for part in [
        format!("Worker ab is gone. {}", link("workers")),
        "<li>Worker a hangs.</li>".to_owned(),
        "1 of 2 rails of worker a is down: mlx5_0:1.".to_owned(),
        link("rails"),
        "8 requests of the last five minutes were answered with an error".to_owned(),
        link("errors"),
    ] {
        assert!(well.contains(&part), "{part} is not in {well}");
    }
    assert!(!well.contains(&link("store")), "{well}");
    // A slip among many is none of the operator's.
    assert!(!overview(0, 1, 4).contains("requests to stores failed"));
    for (failed, asked) in [(1, 2), (10, 900)] {
        let said = format!("{failed} of {asked} requests to stores failed within the last minute");
        let page = overview(0, failed, asked);
        assert!(page.contains(&said) && page.contains(&link("store")), "{page}");
    }
    let page = overview(1, 3, 3);
    assert!(page.contains("is not asked at present by worker a."), "{page}");
    assert!(!page.contains("requests to stores failed"), "{page}");
}

#[test]
fn figures_of_an_object_are_those_of_the_blocks_shown() {
    let block = |number: u32| {
        json!({ "block": number, "bytes": 1024, "owners": ["a"], "places": [{
            "worker": "a", "memory_bytes": 1024, "disk_bytes": 512, "pinned_bytes": 0, "uses": 0,
            "idle_seconds": 1,
        }] })
    };
    let draw = |blocks: u32, total: u32, first_block: u32| {
        let view: ObjectView = serde_json::from_value(json!({
            "path": "s3://b/k", "volume": "v", "key": "k", "home": "a", "slot": 1, "etag": "e",
            "bytes": 1, "version_id": null, "blocks_total": total, "silent": [],
            "blocks": (0..blocks).map(block).collect::<Vec<_>>(),
        }))
        .unwrap();
        draw_object(&view, &ObjectQuestion { path: "s3://b/k", first_block }).into_string()
    };
    // The API tells of more blocks than a page shows.
    let page = draw(100, 1000, 0);
    assert!(page.contains("In memory, of the blocks shown</dt><dd>64.0 KiB"), "{page}");
    assert!(page.contains("On disk, of the blocks shown</dt><dd>32.0 KiB"), "{page}");
    assert!(draw(0, 0, 0).contains("It has no blocks."));
    let beyond = draw(0, 7, 7);
    assert!(beyond.contains("It has no block 7") && !beyond.contains("no blocks"), "{beyond}");
}
