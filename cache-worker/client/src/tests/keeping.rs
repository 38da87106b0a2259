//! Pages of a worker of this host that are kept for further reads: which are, and until when.

use super::*;
use crate::{OpenOutcome, OpenRequest, SpanItem, SpanRequest};
use std::sync::atomic::AtomicUsize;
use verbs3_protocol::{
    AnswerHeaders, AttributeLease, BlockSpan, ByteRange, HeadAttributes, KeyGeneration,
    OpenObjectReply,
};

const SPAN: u32 = 2 * PAGE;
const SPAN_BYTES: u64 = SPAN as u64;

/// Memory of a worker that counts while it can't be used again.
struct PinnedMemory {
    data: Vec<u8>,
    pinned: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for PinnedMemory {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        self.pinned.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A worker whose answers lie in its own memory, of which as many are `pinned`.
fn sharing() -> (TestWorker, Arc<AtomicUsize>) {
    let pinned = Arc::new(AtomicUsize::new(0));
    let count = pinned.clone();
    let script: Script = Box::new(move |request, reply| {
        let pinned = count.clone();
        Box::pin(async move {
            let (start, end) = read_of(request);
            let (piece, data) = piece(start, end);
            pinned.fetch_add(1, Ordering::SeqCst);
            let memory = PinnedMemory { data: data.concat(), pinned };
            let memory = Bytes::from_owner(memory);
            let (mut at, range) = (0, start..end);
            let pages = GEOMETRY.page_cuts(&range).map(|length| {
                at += length;
                memory.slice(at - length..at)
            });
            let (message, pages) = (WorkerReply::Data(piece).encode(), pages.collect());
            let _ = reply.send_last(message, 0, pages).await;
        })
    });
    (TestWorker::sharing_memory("a", script), pinned)
}

fn keeping(worker: &TestWorker, bytes_max: u64) -> Arc<CacheTierClient> {
    let options = options();
    let settings = TierSettings {
        kept_pages_max: ByteSize(bytes_max),
        kept_pages_for: TimePeriod::from_seconds(60),
        ..options.settings
    };
    tier_of(&[worker], TierOptions { settings, ..options }, arena(16 << 20))
}

/// The answer to an open of this version, with its first bytes.
fn opened_version(version: &ContentVersion, piece: BlockPiece) -> WorkerReply {
    let attributes = HeadAttributes {
        version: version.clone(),
        last_modified: None,
        headers: AnswerHeaders::default(),
        checksums_known: false,
    };
    WorkerReply::Opened(Box::new(OpenObjectReply {
        attributes,
        generation: KeyGeneration(0),
        lease: AttributeLease::default(),
        attributes_cached: true,
        piece: Some(piece),
    }))
}

/// A request for bytes of an object's first block.
fn request(key: &str, range: std::ops::Range<u32>) -> SpanRequest {
    let object = ObjectKey { volume: ObjectVolume::new("store", "train"), key: key.into() };
    SpanRequest {
        object: Arc::new(object),
        version: version(1 << 20),
        span: BlockSpan { block: BlockIndex(0), range },
        ahead_bytes: 0,
        request_range: 0..0,
        trace: None,
        tenant: None,
        place: None,
    }
}

async fn read(tier: &Arc<CacheTierClient>, request: SpanRequest) {
    let range = request.span.range.clone();
    let (bytes, end) = drain(&mut tier.read_span(request)).await;
    assert!(bytes == content(range.start, range.end) && matches!(end, SpanItem::End));
}

/// Reads the span twice, so that it is kept.
async fn read_twice(tier: &Arc<CacheTierClient>, request: &SpanRequest) {
    read(tier, request.clone()).await;
    read(tier, request.clone()).await;
}

fn kept_bytes(tier: &CacheTierClient) -> i64 {
    tier.asker.metrics.kept_page_bytes.get()
}

#[tokio::test]
async fn a_span_that_was_read_twice_is_read_on_without_its_worker() {
    let (a, _) = sharing();
    let tier = keeping(&a, 1 << 20);
    let whole = request("k", 0..SPAN);
    read(&tier, whole.clone()).await;
    assert_eq!(kept_bytes(&tier), 0, "of many that are read once each, nobody has a use");
    read(&tier, whole.clone()).await;
    assert_eq!((a.asked().len(), kept_bytes(&tier)), (2, i64::from(SPAN)));
    for range in [0..SPAN, 0..PAGE / 2, 7..PAGE + 7, SPAN - PAGE..SPAN] {
        let mut part = tier.read_span(request("k", range.clone()));
        assert!(part.start());
        let (bytes, _) = drain(&mut part).await;
        assert!(bytes == content(range.start, range.end));
        assert_eq!(part.bytes_origin(), Some((CacheVerdict::Hit, None)));
    }
    assert_eq!((a.asked().len(), tier.asker.metrics.kept_page_reads.get()), (2, 4));
    // Who has a small part for long would keep all of it.
    read(&tier, request("k", 0..PAGE / 2 - 1)).await;
    let mut asked = tier.ask_span(whole);
    assert!(drain(&mut asked).await.0 == content(0, SPAN));
    assert_eq!(a.asked().len(), 4);
    tier.shutdown().await;
}

#[tokio::test]
async fn only_the_same_bytes_of_the_same_version_are_answered() {
    let (a, _) = sharing();
    let tier = keeping(&a, 1 << 20);
    read_twice(&tier, &request("k", PAGE..SPAN)).await;
    let plain = request("k", PAGE..SPAN);
    let newer = ContentVersion { etag: "\"v2\"".into(), bytes: 1 << 20, version_id: None };
    let named = ContentVersion { version_id: Some("x".into()), ..ContentVersion::clone(&newer) };
    let of_block = BlockSpan { block: BlockIndex(1), range: PAGE..SPAN };
    let others = [
        request("other", PAGE..SPAN),
        request("k", PAGE - 1..SPAN),
        request("k", PAGE..SPAN + 1),
        SpanRequest { version: Arc::new(newer), ..plain.clone() },
        SpanRequest { version: Arc::new(named), ..plain.clone() },
    ];
    for (number, other) in others.into_iter().enumerate() {
        read(&tier, other).await;
        assert_eq!(a.asked().len(), 3 + number);
    }
    let _ = tier.read_span(SpanRequest { span: of_block, ..plain }).next().await;
    assert_eq!(a.asked().len(), 8);
    tier.shutdown().await;
}

#[tokio::test]
async fn a_longer_span_of_a_block_replaces_a_shorter_one() {
    let (a, _) = sharing();
    let tier = keeping(&a, 1 << 20);
    read_twice(&tier, &request("k", 0..PAGE)).await;
    read(&tier, request("k", 0..PAGE)).await;
    read_twice(&tier, &request("k", PAGE..SPAN)).await;
    assert_eq!(kept_bytes(&tier), i64::from(PAGE));
    read(&tier, request("k", 0..PAGE)).await;
    assert_eq!(a.asked().len(), 4, "the first of two that are as long, which was of use");
    read_twice(&tier, &request("k", 0..SPAN)).await;
    assert_eq!(kept_bytes(&tier), i64::from(SPAN));
    read(&tier, request("k", PAGE..SPAN)).await;
    assert_eq!(a.asked().len(), 6);
    // One that nobody has read since it came makes room for any.
    read_twice(&tier, &request("l", 0..SPAN)).await;
    read_twice(&tier, &request("l", 0..10)).await;
    read(&tier, request("l", 0..10)).await;
    assert_eq!(a.asked().len(), 10);
    tier.shutdown().await;
}

/// A piece of a page keeps all of the page from being used again.
#[tokio::test]
async fn few_bytes_of_a_page_count_as_the_page() {
    let (a, pinned) = sharing();
    let tier = keeping(&a, 2 * u64::from(PAGE));
    for number in 0..4 {
        read_twice(&tier, &request(&format!("k{number}"), 0..10)).await;
    }
    settle().await;
    assert_eq!((kept_bytes(&tier), pinned.load(Ordering::SeqCst)), (2 * i64::from(PAGE), 2));
    tier.shutdown().await;
}

/// What comes with the attributes may be landing in a client's memory, which would have to wait for
/// its end.
#[tokio::test]
async fn an_answer_that_goes_on_is_not_left_for_pages_that_are_kept() {
    let script: Script = Box::new(move |request, mut reply| {
        Box::pin(async move {
            let (start, end) = match request {
                WorkerRequest::Read(read) => (read.start, read.end),
                _ => {
                    let (piece, data) = piece(0, PAGE);
                    let opened = opened_version(&version(1 << 20), piece);
                    reply.send_part(opened.encode(), 0, data).await.unwrap();
                    (PAGE, SPAN)
                }
            };
            let (piece, data) = piece(start, end);
            let at = if start == PAGE { u64::from(PAGE) } else { 0 };
            let _ = reply.send_last(WorkerReply::Data(piece).encode(), at, data).await;
        })
    });
    let a = TestWorker::sharing_memory("a", script);
    let tier = keeping(&a, 1 << 20);
    let part = Some(ByteRange::From { first: 0, last: Some(u64::from(SPAN) - 1) });
    let open = OpenRequest { want: part, ..super::opening::request(&tier, None) };
    let key = open.object.key.clone();
    read_twice(&tier, &request(&key, PAGE..SPAN)).await;
    assert_eq!(kept_bytes(&tier), i64::from(PAGE));
    let OpenOutcome::Found(found) = tier.open_object(&open).await else { panic!("not found") };
    assert!(super::opening::all(*found).await == content(0, SPAN));
    assert_eq!(tier.asker.metrics.kept_page_reads.get(), 0);
    tier.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn kept_pages_are_given_back_after_a_moment() {
    let (a, pinned) = sharing();
    let tier = keeping(&a, 1 << 20);
    read_twice(&tier, &request("k", 0..SPAN)).await;
    settle().await;
    assert_eq!(pinned.load(Ordering::SeqCst), 1, "the second answer");
    // Reads in between make it no longer.
    for _ in 0..5 {
        tokio::time::sleep(10 * SECOND).await;
        read(&tier, request("k", 0..SPAN)).await;
    }
    assert_eq!(a.asked().len(), 2);
    let mut late = tier.read_span(request("k", 0..SPAN));
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!((kept_bytes(&tier), pinned.load(Ordering::SeqCst)), (0, 1), "a reader has it");
    let (bytes, _) = drain(&mut late).await;
    assert!(bytes == content(0, SPAN));
    drop(late);
    assert_eq!(pinned.load(Ordering::SeqCst), 0);
    read(&tier, request("k", 0..SPAN)).await;
    assert_eq!(a.asked().len(), 3, "the worker hears that it is read");
    tier.shutdown().await;
}

#[tokio::test]
async fn no_more_pages_are_kept_than_there_may_be() {
    let (a, pinned) = sharing();
    let tier = keeping(&a, 2 * SPAN_BYTES);
    for number in 0..10 {
        read_twice(&tier, &request(&format!("k{number}"), 0..SPAN)).await;
        assert!(kept_bytes(&tier) <= 2 * i64::from(SPAN));
    }
    settle().await;
    assert_eq!(pinned.load(Ordering::SeqCst), 2);
    assert_eq!(tier.asker.metrics.kept_page_evictions.get(), 8);
    let asked = a.asked().len();
    read(&tier, request("k9", 0..SPAN)).await;
    read(&tier, request("k8", 0..SPAN)).await;
    assert_eq!(a.asked().len(), asked, "the latest are there");
    read_twice(&tier, &request("long", 0..3 * SPAN)).await;
    assert_eq!(kept_bytes(&tier), 2 * i64::from(SPAN), "a longer one is not kept");
    tier.shutdown().await;

    let (b, pinned) = sharing();
    let none = keeping(&b, 0);
    read_twice(&none, &request("k", 0..SPAN)).await;
    read(&none, request("k", 0..SPAN)).await;
    settle().await;
    assert_eq!((b.asked().len(), pinned.load(Ordering::SeqCst)), (3, 0));
    none.shutdown().await;
}

/// One of them reads much, the other little.
#[tokio::test]
async fn a_tenant_keeps_its_share_beside_another() {
    let (a, _) = sharing();
    let tier = keeping(&a, 4 * SPAN_BYTES);
    let of = |tenant: &str, key: &str| SpanRequest {
        tenant: TenantTag::new(tenant, 1),
        ..request(key, 0..SPAN)
    };
    read_twice(&tier, &of("little", "mine")).await;
    for number in 0..10 {
        read_twice(&tier, &of("much", &format!("k{number}"))).await;
    }
    let asked = a.asked().len();
    read(&tier, of("little", "mine")).await;
    assert_eq!(a.asked().len(), asked);
    tier.shutdown().await;
}
