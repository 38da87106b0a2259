//! Opens: one call to the home alone, and what becomes of its answer.

use super::*;
use crate::{BypassReason, OpenOutcome, OpenRequest, OpenSilence, OpenedObject};
use verbs3_protocol::{
    AbsentReply, AnswerHeaders, AttributeLease, ByteRange, HeadAttributes, KeyGeneration,
    OpenMessage, OpenObjectReply, UfsAnswer,
};

pub(super) const BYTES: u64 = 3 * (1 << 20);

pub(super) fn request(tier: &CacheTierClient, want: Option<ByteRange>) -> OpenRequest {
    OpenRequest {
        object: object_of(tier, "a", 0),
        version_id: None,
        attributes_age_ms_max: 0,
        absence_age_ms_max: 0,
        checksums: false,
        want,
        silence: None,
        trace: None,
        tenant: None,
        place: None,
    }
}

pub(super) fn opened(etag: &str, bytes: u64, piece: Option<BlockPiece>) -> WorkerReply {
    WorkerReply::Opened(Box::new(OpenObjectReply {
        attributes: HeadAttributes {
            version: ContentVersion { etag: etag.into(), bytes, version_id: None },
            last_modified: None,
            headers: AnswerHeaders::default(),
            checksums_known: false,
        },
        generation: KeyGeneration(0),
        lease: AttributeLease::default(),
        attributes_cached: true,
        piece,
    }))
}

fn wanted(open: &OpenMessage, bytes: u64) -> Option<(u32, u32)> {
    let range = open.want?.resolve_range(bytes)?;
    let end = range.end.min(1 << 20).min(range.start + u64::from(open.piece_bytes_max));
    (range.start < end).then_some((range.start as u32, end as u32))
}

/// Answers an open with its first page in the first part and the others in parts of their own.
pub(super) fn opens(bytes: u64) -> Script {
    Box::new(move |request, mut reply| {
        Box::pin(async move {
            let open = match request {
                WorkerRequest::Open(open) => open,
                other => return honest()(other, reply).await,
            };
            let Some((start, end)) = wanted(&open, bytes) else {
                reply.send_last(opened("\"v1\"", bytes, None).encode(), 0, vec![]).await.unwrap();
                return;
            };
            let first = ((start / PAGE + 1) * PAGE).min(end);
            let (head, data) = piece(start, first);
            if first == end {
                reply
                    .send_last(opened("\"v1\"", bytes, Some(head)).encode(), 0, data)
                    .await
                    .unwrap();
                return;
            }
            reply.send_part(opened("\"v1\"", bytes, Some(head)).encode(), 0, data).await.unwrap();
            let (tail, data) = piece(first, end);
            reply
                .send_last(WorkerReply::Data(tail).encode(), u64::from(first - start), data)
                .await
                .unwrap();
        })
    })
}

pub(super) async fn all(found: OpenedObject) -> Vec<u8> {
    let mut bytes = found.data.concat();
    if let Some(mut rest) = found.rest {
        bytes.extend(drain(&mut rest).await.0);
    }
    bytes
}

async fn found(tier: &Arc<CacheTierClient>, want: Option<ByteRange>) -> OpenedObject {
    match tier.open_object(&request(tier, want)).await {
        OpenOutcome::Found(found) => *found,
        _ => panic!("not found"),
    }
}

#[tokio::test]
async fn an_open_gives_attributes_and_the_first_bytes_in_one_call() {
    let a = TestWorker::new("a", opens(BYTES));
    let tier = tier(&[&a]);
    let ranges = [
        (ByteRange::All, 0..4 * PAGE),
        (ByteRange::From { first: 5, last: Some(9) }, 5..10),
        (ByteRange::From { first: 70_000, last: None }, 70_000..70_000 + 4 * PAGE),
        (ByteRange::From { first: (1 << 20) - 3, last: None }, (1 << 20) - 3..1 << 20),
    ];
    for (want, expected) in ranges {
        let found = found(&tier, Some(want)).await;
        assert_eq!(found.covered, u64::from(expected.start)..u64::from(expected.end).min(1 << 20));
        assert!(all(found).await == content(expected.start, expected.end), "{want:?}");
    }
    assert_eq!(a.asked().len(), 4);
}

#[tokio::test]
async fn ranges_outside_the_first_block_give_attributes_alone() {
    let a = TestWorker::new("a", opens(BYTES));
    let tier = tier(&[&a]);
    for want in [
        None,
        Some(ByteRange::From { first: 2 << 20, last: None }),
        Some(ByteRange::Suffix { bytes: 10 }),
    ] {
        let found = found(&tier, want).await;
        assert_eq!(found.reply.attributes.version.bytes, BYTES);
        assert!(
            found.covered.is_empty() && found.rest.is_none() && found.data.is_empty(),
            "{want:?}"
        );
    }
}

#[tokio::test]
async fn an_open_that_breaks_after_a_part_goes_on_at_the_next_owner() {
    // Delivery 1 is the first part, 2 the second.
    let a = TestWorker::with_faults(
        "a",
        InProcessFaults::without_faults().drop_at_event(2),
        opens(BYTES),
    );
    let b = TestWorker::new("b", honest());
    let tier = tier(&[&a, &b]);
    let found = found(&tier, Some(ByteRange::All)).await;
    assert!(all(found).await == content(0, 4 * PAGE));
}

#[tokio::test]
async fn attributes_are_never_asked_of_another_worker_than_the_home() {
    let a = TestWorker::with_faults(
        "a",
        InProcessFaults::without_faults().refuse_connects(100),
        opens(BYTES),
    );
    let b = TestWorker::new("b", opens(BYTES));
    let tier = tier(&[&a, &b]);
    for _ in 0..4 {
        let outcome = tier.open_object(&request(&tier, Some(ByteRange::All))).await;
        assert!(matches!(outcome, OpenOutcome::Bypass(BypassReason::Workers)));
    }
    assert!(b.asked().is_empty());
}

#[tokio::test]
async fn an_arena_whose_cells_hold_no_page_is_refused_at_the_start() {
    let a = TestWorker::new("a", silent());
    let placement =
        PlacementMap::new(Epoch(1), vec![PlacementMember::new(a.id.clone(), 1.0)], 1).unwrap();
    let arena = Arena::map_memory(ArenaOptions {
        capacity_bytes: 8 << 20,
        cell_bytes_max: 4096,
        populate: false,
    })
    .unwrap();
    let peers = HashMap::from([(a.id.clone(), a.peer.clone())]);
    let made = crate::CacheTierClient::new(options(), placement, peers, arena, &Registry::new());
    assert!(made.err().unwrap().to_string().contains("cell_bytes_max"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_home_costs_one_deadline() {
    let a = TestWorker::new("a", silent());
    let tier = tier(&[&a]);
    let began = tokio::time::Instant::now();
    assert!(matches!(
        tier.open_object(&request(&tier, None)).await,
        OpenOutcome::Bypass(BypassReason::Workers)
    ));
    assert!(began.elapsed() < tier.asker.options.settings.first_progress.0 + SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_silent_home_is_reported_and_each_lost_race_is_its_failure() {
    let a = TestWorker::new("a", silent());
    let tier = tier(&[&a]);
    let silence = Arc::new(OpenSilence::default());
    let watched = OpenRequest { silence: Some(silence.clone()), ..request(&tier, None) };
    // `failures_max` times.
    for _ in 0..2 {
        tokio::select! {
            biased;
            () = silence.wait_for_silence() => {}
            _ = tier.open_object(&watched) => panic!("a silent home has answered"),
        }
    }
    assert!(matches!(tier.open_object(&watched).await, OpenOutcome::Bypass(BypassReason::Workers)));
    assert_eq!(a.asked().len(), 2, "a home that rests is asked");
}

/// It is asked on after its silence, and its failure counts once.
#[tokio::test(start_paused = true)]
async fn a_late_home_is_heard_and_a_silent_one_fails_once() {
    let late: Script = Box::new(|request, reply| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            opens(BYTES)(request, reply).await;
        })
    });
    let a = TestWorker::new("a", late);
    let tier_a = tier(&[&a]);
    let watched = |tier: &CacheTierClient| OpenRequest {
        silence: Some(Arc::default()),
        ..request(tier, None)
    };
    for _ in 0..4 {
        let outcome = tier_a.open_object(&watched(&tier_a)).await;
        assert!(matches!(outcome, OpenOutcome::Found(_)));
    }
    let b = TestWorker::new("a", silent());
    let tier_b = tier(&[&b]);
    let outcome = tier_b.open_object(&watched(&tier_b)).await;
    assert!(matches!(outcome, OpenOutcome::Bypass(BypassReason::Workers)));
    let _ = tier_b.open_object(&watched(&tier_b)).await;
    assert_eq!(b.asked().len(), 2, "one failure counts as two");
}

#[tokio::test]
async fn answers_of_the_ufs_are_passed_on() {
    let answer =
        UfsAnswer { status: 404, headers: AnswerHeaders::default(), body: b"<Error/>".to_vec() };
    let (generation, lease) = (KeyGeneration(0), AttributeLease::default());
    let absent = AbsentReply { answer: answer.clone(), generation, lease, cached: true };
    let script: Script = Box::new(move |_, reply| {
        let message = WorkerReply::Absent(absent.clone()).encode();
        Box::pin(async move { reply.send_last(message, 0, vec![]).await.unwrap() })
    });
    let a = TestWorker::new("a", script);
    let tier = tier(&[&a]);
    assert!(
        matches!(tier.open_object(&request(&tier, None)).await, OpenOutcome::Absent(absent) if absent.answer == answer)
    );
    let a = TestWorker::new("a", refuses(RefusalKind::Ufs(answer.clone())));
    let tier = super::tier(&[&a]);
    assert!(
        matches!(tier.open_object(&request(&tier, None)).await, OpenOutcome::Ufs(got) if got == answer)
    );
}

#[tokio::test]
async fn refusals_send_the_reader_to_the_ufs() {
    for (kind, reason) in [
        (RefusalKind::Uncertain, BypassReason::Uncertain),
        (RefusalKind::Busy, BypassReason::Busy),
        (RefusalKind::Uncacheable, BypassReason::Uncacheable),
        (RefusalKind::VersionGone, BypassReason::Changing),
        (RefusalKind::WrongEpoch(Epoch(2)), BypassReason::Epoch),
        (RefusalKind::UnknownVolume, BypassReason::Misconfigured),
    ] {
        let a = TestWorker::new("a", refuses(kind));
        let tier = tier(&[&a]);
        let outcome = tier.open_object(&request(&tier, Some(ByteRange::All))).await;
        assert!(matches!(outcome, OpenOutcome::Bypass(got) if got == reason), "{reason:?}");
    }
}

#[tokio::test]
async fn a_weak_version_is_refused() {
    let script: Script = Box::new(|_, reply| {
        let message = opened("W/\"v1\"", 10, None).encode();
        Box::pin(async move { reply.send_last(message, 0, vec![]).await.unwrap() })
    });
    let a = TestWorker::new("a", script);
    let tier = tier(&[&a]);
    assert!(matches!(
        tier.open_object(&request(&tier, None)).await,
        OpenOutcome::Bypass(BypassReason::Workers)
    ));
}
