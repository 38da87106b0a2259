//! What a status shows of a cluster, well or not.

use super::*;
use verbs3_coordinator_client::api::{WorkerTierCapacity, WorkerView};
use verbs3_protocol::WorkerId;

#[test]
fn a_screen_says_what_is_to_be_done() {
    let worker = WorkerView {
        id: WorkerId("gpu-07".into()),
        address: "10.0.0.7:9400".into(),
        weight: 1.0,
        zone: "rack-2".into(),
        state: WorkerState::Lost,
        lease_ms: 0,
        tiers: Vec::new(),
        rails: Vec::new(),
        active: Epoch(1),
        slots: 65_536,
        share_percent: 75,
        handing_over: None,
        drained: false,
    };
    let mut view = ClusterView {
        name: "train".into(),
        leader: Some("http://10.0.0.1:9500".into()),
        epoch: Epoch(7),
        preparing: None,
        replicas: 2,
        workers: vec![worker],
        hot: HotView::default(),
        preload: PreloadView::default(),
        findings: vec!["worker gpu-07 does not answer; start it again".into()],
    };
    let shown = render_screen(&view);
    for part in [
        "NOT WELL",
        "LOST",
        "gpu-07",
        "zone rack-2",
        "- worker gpu-07 does not answer",
        "0 of 1 workers",
        "75 % of its share",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    view.findings.clear();
    let shown = render_screen(&view);
    assert!(shown.contains("cluster train: well") && !shown.contains("hot"), "{shown}");
    for nothing in ["disk", "rails", "reload"] {
        assert!(!shown.contains(nothing), "{nothing} is in\n{shown}");
    }
    let tier = |kind: &str, bytes| WorkerTierCapacity { kind: kind.into(), bytes };
    view.workers[0].tiers = vec![tier("memory", 64 << 30), tier("disk", 3 << 40)];
    view.workers[0].rails = vec!["10.0.0.7:9403".into(), String::new()];
    let shown = render_screen(&view);
    for part in
        ["memory        disk  rails  address", "  64.0 GiB     3.0 TiB    1/2  10.0.0.7:9400"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn unfinished_jobs_are_shown_and_make_no_cluster_unwell() {
    let said: [CoordinatorReply; 0] = [];
    let job = UnfinishedJob {
        id: "night-22".into(),
        state: "incomplete".into(),
        reason: "s3://train/a\nb: no memory".into(),
        ended_ms: 1,
    };
    let preload = PreloadView { running: 1, waiting: 2, unfinished: vec![job] };
    let mut view =
        ClusterView { preload, ..without_leader(&AskError::Away("nobody".into()), &said) };
    view.findings.clear();
    let shown = render_screen(&view);
    let parts = [
        "cluster: well",
        "preload: 1 jobs run, 2 wait",
        "- night-22: incomplete: s3://train/a\\nb: no memory\n",
    ];
    for part in parts {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn hot_blocks_are_shown_and_their_names_break_no_line() {
    let hottest = HotBlockView {
        volume: "store/train".into(),
        key: "a\nb.tar".into(),
        block: 3,
        workers: 4,
        bytes_per_second: 5 << 19,
    };
    let hot = HotView { blocks: 7, hottest: vec![hottest] };
    let said: [CoordinatorReply; 0] = [];
    let view = ClusterView { hot, ..without_leader(&AskError::Away("nobody".into()), &said) };
    let shown = render_screen(&view);
    assert!(shown.contains("7 hot blocks are served by several workers"), "{shown}");
    assert!(shown.contains("- store/train/a\\nb.tar, block 3: 4 workers, 2.5 MiB/s"), "{shown}");
}

#[test]
fn a_coordinator_that_follows_an_older_map_is_named() {
    let map = |epoch| Ok(Some(MemberRoster::new(Epoch(epoch), 2, Vec::new())));
    let said = [
        ("http://c0:9500".to_owned(), map(8)),
        ("http://c1:9500".to_owned(), map(7)),
        ("http://c2:9500".to_owned(), Ok(None)),
        // It has heard of the next one before the leader was asked.
        ("http://c3:9500".to_owned(), map(9)),
    ];
    let nobody: [CoordinatorReply; 0] = [];
    let view = ClusterView {
        epoch: Epoch(8),
        findings: Vec::new(),
        ..without_leader(&AskError::Away("nobody".into()), &nobody)
    };
    let view = with_coordinators(view, &said);
    let [first, second] = &view.findings[..] else { panic!("{:?}", view.findings) };
    assert!(first.contains("http://c1:9500 is at map 7, the leader at 8"), "{first}");
    assert!(second.contains("http://c2:9500 is at map 0, the leader at 8"), "{second}");
    assert!(render_screen(&view).contains("NOT WELL"));
}

#[test]
fn without_a_leader_the_screen_shows_the_last_map_and_why() {
    let member = |id: &str| verbs3_protocol::ClusterMember {
        id: WorkerId(id.into()),
        address: format!("{id}:9400"),
        weight: 1.0,
        zone: String::new(),
        draining: false,
    };
    let map = |epoch, ids: &[&str]| {
        MemberRoster::new(Epoch(epoch), 2, ids.iter().map(|id| member(id)).collect())
    };
    let said = [
        ("http://c0:9500".to_owned(), Ok(Some(map(7, &["a"])))),
        ("http://c1:9500".to_owned(), Ok(Some(map(8, &["a", "b"])))),
        ("http://c2:9500".to_owned(), Err(AskError::Away("connection refused".into()))),
    ];
    let error = AskError::Away(
        "http://c0:9500: no coordinator leads: the store at etcd can't be used".into(),
    );
    let shown = render_screen(&without_leader(&error, &said));
    let parts = [
        "cluster: NOT WELL",
        "2 workers in map 8, led by nobody",
        "the store at etcd can't be used",
        "writes go on while all its workers answer",
        "coordinator http://c2:9500 does not answer; start it again (connection refused)",
    ];
    for part in parts {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}
