//! Leases on attributes: what is answered without asking the home, and when that ends.

use super::following::{adopt, following, following_with};
use super::opening::request;
use super::writing::volume;
use super::*;
use crate::metrics::LeasedOpenKind;
use crate::{OpenOutcome, OpenRequest, OpenedObject};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tokio::sync::watch;
use verbs3_protocol::{
    AbsentReply, AnswerHeaders, AttributeLease, ByteRange, HeadAttributes, KeyGeneration,
    OpenMessage, OpenObjectReply, RecallPollMessage, RecallReply, UfsAnswer, WriteOutcome,
};

const BYTES: u64 = 3 * (1 << 20);

/// A home that grants whatever is asked for, until it is told to recall.
pub(super) struct Home {
    milliseconds: AtomicU32,
    /// Of the version that opens are answered with.
    pub(super) version: AtomicU64,
    /// Its length.
    pub(super) bytes: AtomicU64,
    /// All its bits are turned.
    pub(super) flips: AtomicBool,
    /// Opens are answered with an absence of this body.
    pub(super) absent: Mutex<Option<&'static [u8]>>,
    recalled: watch::Sender<RecallReply>,
    /// Opens are answered while this is true.
    pub(super) answers: watch::Sender<bool>,
    /// What holders have acknowledged.
    dropped: watch::Sender<u64>,
    versions_gone: bool,
    /// Answers no poll.
    mute: bool,
}

pub(super) fn home() -> Arc<Home> {
    home_of(false, false)
}

fn home_of(versions_gone: bool, mute: bool) -> Arc<Home> {
    Arc::new(Home {
        milliseconds: AtomicU32::new(600_000),
        version: AtomicU64::new(1),
        bytes: AtomicU64::new(BYTES),
        flips: AtomicBool::new(false),
        absent: Mutex::default(),
        recalled: watch::channel(RecallReply { life: 7, through: 0, keys: vec![], all: false }).0,
        answers: watch::channel(true).0,
        dropped: watch::channel(0).0,
        versions_gone,
        mute,
    })
}

impl Home {
    fn opened(&self, open: &OpenMessage, may_hold: bool) -> (WorkerReply, Vec<Bytes>) {
        let milliseconds = if may_hold { self.milliseconds.load(Ordering::SeqCst) } else { 0 };
        let lease = AttributeLease { id: 1, milliseconds };
        if let Some(body) = *self.absent.lock() {
            let headers = AnswerHeaders::default();
            let answer = UfsAnswer { status: 404, headers, body: body.to_vec() };
            let (generation, cached) = (KeyGeneration(0), true);
            let absent = AbsentReply { answer, generation, lease, cached };
            return (WorkerReply::Absent(absent), Vec::new());
        }
        let version = self.version.load(Ordering::SeqCst);
        let bytes = self.bytes.load(Ordering::SeqCst);
        let wanted = open
            .want
            .and_then(|want| want.resolve_range(bytes))
            .filter(|range| range.start < 1 << 20);
        let piece = wanted.map(|range| {
            let end = range.end.min(1 << 20).min(range.start + u64::from(open.piece_bytes_max));
            // Version 1 is what spans give, too.
            let mask = if self.flips.load(Ordering::SeqCst) { 0xff } else { (version - 1) as u8 };
            let data = content(range.start as u32, end as u32);
            piece_of(range.start as u32, data.iter().map(|byte| byte ^ mask).collect())
        });
        let (piece, data) = piece.unzip();
        let version = ContentVersion { etag: format!("\"v{version}\""), bytes, version_id: None };
        let attributes = HeadAttributes {
            version,
            last_modified: None,
            headers: AnswerHeaders::default(),
            checksums_known: false,
        };
        let opened = OpenObjectReply {
            attributes,
            generation: KeyGeneration(0),
            lease,
            attributes_cached: true,
            piece,
        };
        (WorkerReply::Opened(Box::new(opened)), data.unwrap_or_default())
    }

    async fn recalls(&self, asked: RecallPollMessage) -> WorkerReply {
        if self.mute {
            std::future::pending::<()>().await;
        }
        self.dropped.send_modify(|dropped| *dropped = (*dropped).max(asked.through));
        let mut recalled = self.recalled.subscribe();
        let recalled = recalled
            .wait_for(|recalled| recalled.through != asked.through || asked.life != 7)
            .await;
        WorkerReply::Recalled(recalled.unwrap().clone())
    }

    /// Until the holder has said that it dropped it.
    pub(super) async fn recall(&self, keys: Vec<verbs3_protocol::KeyHash>, all: bool) {
        let through = self.recalled.borrow().through + 1;
        self.recalled.send_replace(RecallReply { life: 7, through, keys, all });
        self.dropped.subscribe().wait_for(|dropped| *dropped >= through).await.unwrap();
    }
}

pub(super) fn worker(home: &Arc<Home>) -> TestWorker {
    let home = home.clone();
    TestWorker::new(
        "a",
        Box::new(move |asked, reply| {
            let home = home.clone();
            Box::pin(async move {
                let open = match asked {
                    WorkerRequest::Open(open) => open,
                    WorkerRequest::Recalls(asked) => {
                        let _ =
                            reply.send_last(home.recalls(asked).await.encode(), 0, vec![]).await;
                        return;
                    }
                    WorkerRequest::Read(_) if home.versions_gone => {
                        return refuses(RefusalKind::VersionGone)(asked, reply).await;
                    }
                    other => return honest()(other, reply).await,
                };
                // What it says is what it knew when it was asked.
                let (opened, data) = home.opened(&open, open.holder.is_some());
                home.answers.subscribe().wait_for(|answers| *answers).await.unwrap();
                let _ = reply.send_last(opened.encode(), 0, data).await;
            })
        }),
    )
}

pub(super) fn asking(tier: &CacheTierClient, want: Option<ByteRange>) -> OpenRequest {
    OpenRequest { attributes_age_ms_max: 5000, ..request(tier, want) }
}

pub(super) async fn open(tier: &Arc<CacheTierClient>, request: &OpenRequest) -> OpenedObject {
    match tier.open_object(request).await {
        OpenOutcome::Found(found) => *found,
        _ => panic!("not found"),
    }
}

/// The version that a HEAD shows.
pub(super) async fn head(tier: &Arc<CacheTierClient>) -> String {
    open(tier, &asking(tier, None)).await.reply.attributes.version.etag
}

pub(super) fn opens_asked(worker: &TestWorker) -> usize {
    worker.asked().iter().filter(|request| matches!(request, WorkerRequest::Open(_))).count()
}

pub(super) fn reads_asked(worker: &TestWorker) -> usize {
    worker.asked().iter().filter(|request| matches!(request, WorkerRequest::Read(_))).count()
}

/// A gateway that holds a lease.
pub(super) async fn leased(home: &Arc<Home>) -> (Arc<CacheTierClient>, TestWorker) {
    leased_with(home, |_| ()).await
}

/// The same, with other settings.
pub(super) async fn leased_with(
    home: &Arc<Home>,
    change: impl FnOnce(&mut TierSettings),
) -> (Arc<CacheTierClient>, TestWorker) {
    let (tier, a) = (following_with(change), worker(home));
    adopt(&tier, 7, &[&a]);
    // The hint, and the poll that follows from it.
    head(&tier).await;
    // Its first answer.
    home.recall(vec![], false).await;
    head(&tier).await;
    assert_eq!(opens_asked(&a), 2);
    (tier, a)
}

#[tokio::test]
async fn a_home_that_grants_leases_is_polled_and_then_asked_no_more() {
    let home = home();
    let (tier, a) = leased(&home).await;
    for _ in 0..5 {
        assert_eq!(head(&tier).await, "\"v1\"");
    }
    assert_eq!((opens_asked(&a), tier.asker.metrics.leased[LeasedOpenKind::Head].get()), (2, 5));
    let holders: Vec<_> = a.asked().iter().filter_map(holder_of).collect();
    assert_eq!(
        holders,
        [(tier.announcer.gateway, 0)],
        "the first one was a question like any other"
    );
    tier.shutdown().await;
}

fn holder_of(request: &WorkerRequest) -> Option<(u64, u32)> {
    let WorkerRequest::Open(open) = request else { return None };
    open.holder.map(|holder| (holder.id.0, holder.answered))
}

#[tokio::test]
async fn after_a_recall_the_home_is_asked_and_told_of_leased_reads() {
    for all in [false, true] {
        let home = home();
        let (tier, a) = leased(&home).await;
        assert_eq!([head(&tier).await, head(&tier).await], ["\"v1\"", "\"v1\""]);
        home.version.store(2, Ordering::SeqCst);
        let key = asking(&tier, None).object.hash();
        home.recall(if all { vec![] } else { vec![key] }, all).await;
        assert_eq!(head(&tier).await, "\"v2\"");
        assert_eq!(
            a.asked().iter().filter_map(holder_of).next_back(),
            Some((tier.announcer.gateway, 2))
        );
        assert_eq!(
            (head(&tier).await.as_str(), opens_asked(&a)),
            ("\"v2\"", 3),
            "and is leased again"
        );
        tier.shutdown().await;
    }
}

/// The answer that grants it is slower than the recall.
#[tokio::test]
async fn a_lease_that_is_recalled_before_it_arrives_is_not_used() {
    for all in [false, true] {
        let home = home();
        let (tier, a) = leased(&home).await;
        let key = asking(&tier, None).object.hash();
        home.recall(vec![key], false).await;
        home.answers.send_replace(false);
        let late = tokio::spawn({
            let tier = tier.clone();
            async move { head(&tier).await }
        });
        while opens_asked(&a) < 3 {
            tokio::task::yield_now().await;
        }
        home.version.store(2, Ordering::SeqCst);
        home.recall(if all { vec![] } else { vec![key] }, all).await;
        home.answers.send_replace(true);
        assert_eq!(late.await.unwrap(), "\"v1\"", "it began before the write was acknowledged");
        assert_eq!(head(&tier).await, "\"v2\"");
        assert_eq!(opens_asked(&a), 4);
        tier.shutdown().await;
    }
}

#[tokio::test]
async fn only_requests_within_the_terms_of_a_lease_use_it() {
    let home = home();
    let (tier, a) = leased(&home).await;
    let plain = asking(&tier, None);
    let others = [
        OpenRequest { attributes_age_ms_max: 4999, ..plain.clone() },
        OpenRequest { checksums: true, ..plain.clone() },
        OpenRequest { version_id: Some("x".into()), ..plain.clone() },
    ];
    for (number, other) in others.iter().enumerate() {
        open(&tier, other).await;
        assert_eq!(opens_asked(&a), 3 + number, "{other:?}");
    }
    tier.shutdown().await;
}

#[tokio::test]
async fn a_lease_ends_with_the_map_that_it_was_granted_under() {
    let home = home();
    let (tier, a) = leased(&home).await;
    adopt(&tier, 8, &[&a]);
    home.version.store(2, Ordering::SeqCst);
    assert_eq!((head(&tier).await.as_str(), opens_asked(&a)), ("\"v2\"", 3));
    tier.shutdown().await;
}

#[tokio::test]
async fn a_gateways_own_write_ends_its_lease_when_it_is_announced() {
    let home = home();
    let (tier, a) = leased(&home).await;
    let key = asking(&tier, None).object.key.clone();
    let announced = tier.announce_write(&volume(), &[key]).await.unwrap();
    head(&tier).await;
    assert_eq!(opens_asked(&a), 3);
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    tier.shutdown().await;
}

#[tokio::test]
async fn the_home_gives_few_first_bytes_and_spans_give_all_others() {
    let home = home();
    let (tier, a) = leased(&home).await;
    let from = |first, last| Some(ByteRange::From { first, last });
    // Those of a later block are the caller's to ask for.
    let cases = [
        (from(5, Some(1000)), 1, 0, 5..1001),
        (from(100, Some(400_000)), 0, 1, 100..400_001),
        (Some(ByteRange::All), 0, 1, 0..1 << 20),
        (from(2 << 20, None), 0, 0, 0..0),
        (None, 0, 0, 0..0),
    ];
    for (want, opens, reads, covered) in cases {
        let before = (opens_asked(&a), reads_asked(&a));
        let found = open(&tier, &asking(&tier, want)).await;
        assert_eq!(found.covered, covered, "{want:?}");
        let bytes = super::opening::all(found).await;
        assert!(bytes == content(covered.start as u32, covered.end as u32), "{want:?}");
        assert_eq!(
            (opens_asked(&a) - before.0, reads_asked(&a) - before.1),
            (opens, reads),
            "{want:?}"
        );
    }
    tier.shutdown().await;
}

#[tokio::test]
async fn a_version_that_is_gone_ends_its_lease() {
    let home = home_of(true, false);
    let (tier, a) = leased(&home).await;
    let found = open(&tier, &asking(&tier, Some(ByteRange::All))).await;
    let mut rest = found.rest.unwrap();
    assert!(matches!(rest.next().await, SpanItem::VersionGone));
    assert_eq!(opens_asked(&a), 2);
    head(&tier).await;
    assert_eq!(opens_asked(&a), 3);
    tier.shutdown().await;
}

#[tokio::test]
async fn without_an_answer_to_its_poll_a_gateway_asks_for_no_lease() {
    let home = home_of(false, true);
    let (tier, a) = (following(), worker(&home));
    adopt(&tier, 7, &[&a]);
    for _ in 0..3 {
        head(&tier).await;
    }
    assert!(a.asked().iter().all(|asked| holder_of(asked).is_none()));
    while !a.asked().iter().any(|asked| matches!(asked, WorkerRequest::Recalls(_))) {
        tokio::task::yield_now().await;
    }
    tier.shutdown().await;
}

#[tokio::test]
async fn a_process_that_wants_no_leases_polls_nobody() {
    let home = home();
    let a = worker(&home);
    let tier = following_with(|settings| settings.leases_max = 0);
    adopt(&tier, 7, &[&a]);
    head(&tier).await;
    head(&tier).await;
    assert!(
        a.asked()
            .iter()
            .all(|asked| matches!(asked, WorkerRequest::Open(open) if open.holder.is_none()))
    );
}
