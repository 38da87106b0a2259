//! Pages of writes: out of everybody's sight until they are committed, bounded, and only ever those
//! of their version.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use verbs3_protocol::{
    BlockGeometry, BlockIndex, ByteRange, ContentVersion, Epoch, PlacementMap, PlacementMember,
    PopulateToken, RefusalKind, RequestEnvelope, SETTLED_TOKENS_MAX, SettleMessage, StageMessage,
    TenantTag, WorkerId, WorkerReply as Message, WorkerRequest,
};
use verbs3_rdma::inprocess::{InProcess, InProcessMode};
use verbs3_rdma::transport::{
    CallEvent, CallService, IncomingCall, OutgoingCall, PeerConnection, ReplySender,
};
use verbs3_settings::ByteSize;

use super::holding_store::Stored;
use super::worker_fixture::{
    BLOCK, PAGE, WorkerFixture, WorkerSetup, coordinated, first_activation, modes, object, open,
    read, version, with_settings,
};
use crate::metrics::StagedEnd;
use crate::settings::WorkerPopulateSettings;
use crate::worker::CacheWorker;

const TOKEN: PopulateToken = PopulateToken(7);

fn taking(change: impl FnOnce(&mut WorkerPopulateSettings)) -> WorkerSetup {
    with_settings(|settings| {
        settings.populate.staged_max = ByteSize::from_mib(16);
        change(&mut settings.populate);
    })
}

fn new_fixture() -> WorkerFixture {
    WorkerFixture::with(InProcessMode::Share, 32, taking(|_| ()))
}

/// Pages of what will be stored, from this byte on, with their checksums.
fn stage(key: &str, stored: &Stored, from: u64, bytes: u64) -> (StageMessage, Vec<Bytes>) {
    let content = stored.content(from..from + bytes);
    let pages: Vec<Bytes> = content.chunks(PAGE as usize).map(Bytes::copy_from_slice).collect();
    let message = StageMessage {
        object: object(key),
        epoch: Epoch(1),
        geometry: BlockGeometry::DEFAULT,
        token: TOKEN,
        block: BlockIndex((from / BLOCK) as u32),
        first_page: (from % BLOCK / PAGE) as u16,
        bytes: bytes as u32,
        checksums: pages
            .iter()
            .map(|page| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, page))
            .collect(),
    };
    (message, pages)
}

/// Pushes what the worker wants, and returns what it answers.
async fn push(mut call: OutgoingCall, pages: &[Bytes]) -> Message {
    loop {
        match call.next().await.unwrap() {
            CallEvent::Wanted { .. } => call.push_data(pages).await.unwrap(),
            CallEvent::Part(part) => {
                assert!(part.last && part.data.iter().all(Bytes::is_empty));
                return Message::decode(&part.message).unwrap();
            }
        }
    }
}

async fn staged(fixture: &WorkerFixture, (message, pages): (StageMessage, Vec<Bytes>)) -> Message {
    push(fixture.call(&WorkerRequest::Stage(message)), &pages).await
}

async fn assert_staged(fixture: &WorkerFixture, staging: (StageMessage, Vec<Bytes>)) {
    let bytes = u64::from(staging.0.bytes);
    let answer = staged(fixture, staging).await;
    assert!(matches!(answer, Message::Staged(staged) if staged.bytes == bytes), "{answer:?}");
}

fn refusal(answer: Message) -> RefusalKind {
    match answer {
        Message::Refused(refusal) => refusal.kind,
        other => panic!("not refused: {other:?}"),
    }
}

fn settling(key: &str, version: Option<ContentVersion>) -> WorkerRequest {
    WorkerRequest::Settle(SettleMessage { object: object(key), tokens: vec![TOKEN], version })
}

/// Commits, or discards, and returns how many pages belong to the version now.
async fn settle(fixture: &WorkerFixture, key: &str, version: Option<ContentVersion>) -> u32 {
    match &fixture.ask(settling(key, version)).await.messages[..] {
        [Message::Settled(settled)] => settled.pages,
        other => panic!("not settled: {other:?}"),
    }
}

fn held_pages(fixture: &WorkerFixture) -> u64 {
    fixture.worker.pages.filler.memory_tier().held_totals().0
}

fn staged_bytes(fixture: &WorkerFixture) -> u64 {
    fixture.worker.pages.filler.memory_tier().staged_pages().staged_bytes()
}

#[tokio::test]
async fn committed_pages_need_no_store_and_attributes_one_head() {
    for bytes in [1, PAGE - 1, PAGE, PAGE + 1, BLOCK + 1, 2 * BLOCK + 5] {
        for mode in modes() {
            let fixture = WorkerFixture::with(mode, 32, taking(|_| ()));
            let stored = Stored::new(1, bytes);
            for from in (0..bytes).step_by(4 * PAGE as usize) {
                let length = (bytes - from).min(4 * PAGE);
                assert_staged(&fixture, stage("k", &stored, from, length)).await;
            }
            assert_eq!(held_pages(&fixture), 0, "nobody may read them yet");
            fixture.store.put("k", stored.clone());
            let pages = bytes.div_ceil(PAGE);
            assert_eq!(u64::from(settle(&fixture, "k", Some(version(&stored))).await), pages);
            assert_eq!((held_pages(&fixture), staged_bytes(&fixture)), (pages, 0));
            let opened = fixture.open(open("k", Some(ByteRange::All))).await;
            assert_eq!(opened.opened().attributes.version, version(&stored));
            assert_eq!(opened.bytes, stored.content(0..bytes.min(BLOCK)));
            for block in 1..bytes.div_ceil(BLOCK) {
                let end = (bytes - block * BLOCK).min(BLOCK);
                let got = fixture.read(read("k", &stored, block as u32, 0..end as u32)).await;
                assert_eq!(got.bytes, stored.content(block * BLOCK..block * BLOCK + end));
            }
            assert_eq!((fixture.store.asked(), fixture.store.body_bytes()), ((0, 1), 0), "{bytes}");
            fixture.assert_nothing_leaked().await;
        }
    }
}

#[tokio::test]
async fn staged_pages_answer_no_reader() {
    let fixture = new_fixture();
    let (old, new) = (Stored::new(1, PAGE), Stored::new(2, PAGE));
    fixture.store.put("k", old.clone());
    assert_staged(&fixture, stage("k", &new, 0, PAGE)).await;
    let got = fixture.open(open("k", Some(ByteRange::All))).await;
    assert_eq!(got.bytes, old.content(0..PAGE));
    assert_eq!(settle(&fixture, "k", None).await, 0);
    assert_eq!((held_pages(&fixture), staged_bytes(&fixture)), (1, 0), "the old version's page");
    fixture.assert_nothing_leaked().await;
}

/// Two gateways write one key: whoever commits, each ETag has its own bytes.
#[tokio::test]
async fn two_writes_of_one_key_are_readable_under_their_own_versions() {
    let fixture = new_fixture();
    let (one, other) = (Stored::new(1, PAGE + 5), Stored::new(2, PAGE + 5));
    let (mut second, pages) = stage("k", &other, 0, PAGE + 5);
    second.token = PopulateToken(8);
    assert_staged(&fixture, stage("k", &one, 0, PAGE + 5)).await;
    assert_staged(&fixture, (second, pages)).await;
    assert_eq!(settle(&fixture, "k", Some(version(&one))).await, 2);
    fixture.store.put("k", other.clone());
    let commit = SettleMessage {
        object: object("k"),
        tokens: vec![PopulateToken(8)],
        version: Some(version(&other)),
    };
    fixture.ask(WorkerRequest::Settle(commit)).await;
    for stored in [&one, &other] {
        let got = fixture.read(read("k", stored, 0, 0..PAGE as u32 + 5)).await;
        assert_eq!(got.bytes, stored.content(0..PAGE + 5));
    }
    assert_eq!(fixture.store.body_bytes(), 0);
}

#[tokio::test]
async fn pages_that_are_not_whole_pages_of_the_version_are_dropped() {
    let fixture = new_fixture();
    let stored = Stored::new(1, 3 * PAGE + 7);
    // The short page would be the object's last, and a gateway has guessed its place wrongly.
    assert_staged(&fixture, stage("k", &stored, 0, PAGE + 9)).await;
    assert_staged(&fixture, stage("k", &stored, 3 * PAGE, 7)).await;
    assert_staged(&fixture, stage("k", &Stored::new(1, BLOCK), 5 * PAGE, PAGE)).await;
    assert_eq!(settle(&fixture, "k", Some(version(&stored))).await, 2);
    assert_eq!(held_pages(&fixture), 2);
    assert_eq!(fixture.worker.metrics.staged_pages[StagedEnd::Misplaced].get(), 2);
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_page_with_other_bytes_than_its_checksum_says_is_refused() {
    for mode in modes() {
        let fixture = WorkerFixture::with(mode, 32, taking(|_| ()));
        let (mut message, pages) = stage("k", &Stored::new(1, 2 * PAGE), 0, 2 * PAGE);
        message.checksums[1] ^= 1;
        assert_eq!(refusal(staged(&fixture, (message, pages)).await), RefusalKind::Malformed);
        assert_eq!(settle(&fixture, "k", Some(version(&Stored::new(1, 2 * PAGE)))).await, 0);
        assert_eq!((held_pages(&fixture), staged_bytes(&fixture)), (0, 0));
        fixture.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn a_question_that_makes_no_sense_takes_no_memory() {
    let fixture = new_fixture();
    let base = || stage("k", &Stored::new(1, 2 * PAGE), 0, 2 * PAGE);
    let change = |change: fn(&mut StageMessage)| {
        let (mut message, pages) = base();
        change(&mut message);
        (message, pages)
    };
    for (staging, kind) in [
        (change(|stage| stage.checksums.clear()), RefusalKind::Malformed),
        (change(|stage| stage.bytes += 1), RefusalKind::Malformed),
        (change(|stage| stage.first_page = u16::MAX), RefusalKind::Malformed),
        (change(|stage| stage.checksums = vec![0; 17]), RefusalKind::Malformed),
        (change(|stage| stage.object.volume.0 = "x/y".into()), RefusalKind::UnknownVolume),
        (
            change(|stage| stage.geometry.page_bytes /= 2),
            RefusalKind::GeometryMismatch(BlockGeometry::DEFAULT),
        ),
    ] {
        assert_eq!(refusal(staged(&fixture, staging).await), kind);
    }
    for tokens in [0, SETTLED_TOKENS_MAX + 1] {
        let tokens = vec![TOKEN; tokens];
        let settle = SettleMessage { object: object("k"), tokens, version: None };
        let got = fixture.ask(WorkerRequest::Settle(settle)).await;
        assert_eq!(got.refused(), Some(&RefusalKind::Malformed));
    }
    let weak = ContentVersion { etag: "W/\"x\"".into(), bytes: 1, version_id: None };
    assert_eq!(
        fixture.ask(settling("k", Some(weak))).await.refused(),
        Some(&RefusalKind::Malformed)
    );
    assert_eq!(fixture.arena.arena_usage().asked_bytes, 0);
}

/// A gateway gives a write up, or commits what it has heard of, while more pages are on their way.
#[tokio::test]
async fn pages_that_come_after_their_write_was_settled_are_not_kept() {
    let stored = Stored::new(1, BLOCK);
    for version in [None, Some(version(&stored))] {
        let fixture = new_fixture();
        let (message, pages) = stage("k", &stored, 0, PAGE);
        let mut late = fixture.call(&WorkerRequest::Stage(message));
        assert!(matches!(late.next().await.unwrap(), CallEvent::Wanted { .. }));
        assert_eq!(settle(&fixture, "k", version).await, 0);
        late.push_data(&pages).await.unwrap();
        assert_eq!(refusal(push(late, &pages).await), RefusalKind::Busy);
        assert_eq!((held_pages(&fixture), staged_bytes(&fixture)), (0, 0));
        fixture.assert_nothing_leaked().await;
    }
}

/// A gateway that lies uses the token again, for another object and tenant.
#[tokio::test]
async fn late_pages_do_not_join_the_next_write_of_their_token() {
    let fixture = new_fixture();
    let stored = Stored::new(1, PAGE);
    let (first, second) = (TenantTag::new("first", 1), TenantTag::new("second", 1));
    let (message, pages) = stage("k", &stored, 0, PAGE);
    let mut late = fixture.call_for(first, &WorkerRequest::Stage(message));
    assert!(matches!(late.next().await.unwrap(), CallEvent::Wanted { .. }));
    assert_eq!(settle(&fixture, "k", None).await, 0);
    let (message, _) = stage("other", &stored, 0, PAGE);
    let mut next = fixture.call_for(second, &WorkerRequest::Stage(message));
    assert!(matches!(next.next().await.unwrap(), CallEvent::Wanted { .. }));
    late.push_data(&pages).await.unwrap();
    assert_eq!(refusal(push(late, &pages).await), RefusalKind::Busy);
    next.push_data(&pages).await.unwrap();
    assert!(matches!(push(next, &pages).await, Message::Staged(_)));
    assert_eq!(settle(&fixture, "other", None).await, 0);
    assert_eq!(staged_bytes(&fixture), 0);
    for tenant in [first, second] {
        let account = fixture.worker.tenants.note_request(tenant.as_ref(), 0);
        let held = fixture.worker.tenants.held_bytes(crate::tenants::TenantTier::Memory, account);
        assert_eq!(held, 0, "{tenant:?}");
    }
    fixture.assert_nothing_leaked().await;
}

/// Under its token alone, nobody else can make pages readable under another key.
#[tokio::test]
async fn a_token_is_of_no_use_for_another_object() {
    let fixture = new_fixture();
    let stored = Stored::new(1, PAGE);
    assert_staged(&fixture, stage("k", &stored, 0, PAGE)).await;
    assert_eq!(settle(&fixture, "other", Some(version(&stored))).await, 0);
    assert_eq!(settle(&fixture, "other", None).await, 0, "nor can it be discarded there");
    let more = staged(&fixture, stage("other", &stored, 0, PAGE)).await;
    assert_eq!(refusal(more), RefusalKind::Malformed);
    assert_eq!(settle(&fixture, "k", Some(version(&stored))).await, 1);
    fixture.assert_nothing_leaked().await;
}

/// The worker, asked by a gateway of another name.
struct AskedBy(Arc<CacheWorker>, &'static str);

#[async_trait]
impl CallService for AskedBy {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let peer = self.1.into();
        self.0.serve_call(IncomingCall { peer, ..request }, reply).await;
    }
}

#[tokio::test]
async fn a_token_is_of_no_use_to_another_gateway() {
    let fixture = new_fixture();
    let stored = Stored::new(1, PAGE);
    let by = |name| -> Arc<dyn PeerConnection> {
        InProcess::open_connection(
            Arc::new(AskedBy(fixture.worker.clone(), name)),
            InProcessMode::Share,
        )
    };
    let call = |connection: &Arc<dyn PeerConnection>, question: WorkerRequest| {
        connection.start_call(question.with_trace(None).encode(), None)
    };
    let (owner, thief) = (by("gw-1 (10.0.0.1:7)"), by("gw-2 (10.0.0.1:7)"));
    let (message, pages) = stage("k", &stored, 0, PAGE);
    push(call(&owner, WorkerRequest::Stage(message)), &pages).await;
    let commit = || settling("k", Some(version(&stored)));
    let answer = push(call(&thief, commit()), &[]).await;
    assert!(matches!(answer, Message::Settled(settled) if settled.pages == 0), "{answer:?}");
    // The same gateway over another connection.
    let answer = push(call(&by("gw-1 (10.0.0.1:8)"), commit()), &[]).await;
    assert!(matches!(answer, Message::Settled(settled) if settled.pages == 1), "{answer:?}");
}

#[tokio::test]
async fn no_gateway_holds_more_than_the_bound() {
    let [_, copying] = modes();
    let bound = |populate: &mut WorkerPopulateSettings| {
        populate.staged_max = ByteSize::from_mib(4);
    };
    let fixture = WorkerFixture::with(copying, 32, taking(bound));
    let stored = Stored::new(1, 64 * BLOCK);
    let mut refused = 0;
    for at in 0..64 {
        let (mut message, pages) = stage("k", &stored, at * BLOCK, 4 * PAGE);
        message.token = PopulateToken(u128::from(at));
        refused +=
            usize::from(matches!(staged(&fixture, (message, pages)).await, Message::Refused(_)));
        assert!(staged_bytes(&fixture) <= 4 << 20);
        assert!(fixture.arena.arena_usage().loaned_bytes <= 4 << 20);
    }
    // What is on its way takes as much again until it is checked.
    assert_eq!((staged_bytes(&fixture), refused), (3 << 20, 61));
    // Those that never push hold no more, and give it back when they go.
    let silent: Vec<OutgoingCall> = (0..9)
        .map(|at| fixture.call(&WorkerRequest::Stage(stage("q", &stored, at * BLOCK, PAGE).0)))
        .collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.arena.arena_usage().loaned_bytes, 4 << 20);
    drop(silent);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (staged_bytes(&fixture), fixture.arena.arena_usage().loaned_bytes),
        (3 << 20, 3 << 20)
    );
}

#[tokio::test]
async fn a_worker_bounds_its_staged_writes_and_takes_none_by_default() {
    let fixture =
        WorkerFixture::with(InProcessMode::Share, 32, taking(|populate| populate.writes_max = 1));
    let stored = Stored::new(1, 2 * PAGE);
    assert_staged(&fixture, stage("k", &stored, 0, PAGE)).await;
    let (mut second, pages) = stage("k", &stored, PAGE, PAGE);
    second.token = PopulateToken(8);
    assert_eq!(refusal(staged(&fixture, (second, pages)).await), RefusalKind::Busy);
    assert_staged(&fixture, stage("k", &stored, PAGE, PAGE)).await;
    assert_eq!(staged_bytes(&fixture), 2 * PAGE);

    let off = WorkerFixture::new(InProcessMode::Share);
    assert_eq!(refusal(staged(&off, stage("k", &stored, 0, PAGE)).await), RefusalKind::Busy);
    assert_eq!(off.arena.arena_usage().asked_bytes, 0);
}

#[tokio::test]
async fn an_unsettled_write_expires_and_a_late_commit_does_nothing() {
    let fixture = new_fixture();
    let stored = Stored::new(1, PAGE);
    assert_staged(&fixture, stage("k", &stored, 0, PAGE)).await;
    let kept_for = WorkerPopulateSettings::default().staged_for.0;
    let table = fixture.worker.pages.filler.memory_tier().staged_pages().clone();
    fixture.clock.advance_time(kept_for / 2);
    table.sweep_expired(fixture.clock_now());
    assert_eq!(staged_bytes(&fixture), PAGE);
    fixture.clock.advance_time(kept_for / 2);
    table.sweep_expired(fixture.clock_now());
    assert_eq!((staged_bytes(&fixture), fixture.arena.arena_usage().asked_bytes), (0, 0));
    assert_eq!(settle(&fixture, "k", Some(version(&stored))).await, 0);
    assert_eq!(held_pages(&fixture), 0);
    assert_eq!(fixture.worker.metrics.staged_pages[StagedEnd::Expired].get(), 1);
}

/// A question whose connection broke is asked again.
#[tokio::test]
async fn pages_that_come_twice_are_kept_once() {
    let fixture = new_fixture();
    let stored = Stored::new(1, 2 * PAGE);
    for _ in 0..3 {
        assert_staged(&fixture, stage("k", &stored, 0, 2 * PAGE)).await;
    }
    assert_eq!(staged_bytes(&fixture), 2 * PAGE);
    assert_eq!(settle(&fixture, "k", Some(version(&stored))).await, 2);
    assert_eq!(settle(&fixture, "k", Some(version(&stored))).await, 0, "a repeat does nothing");
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn staged_pages_give_way_where_nothing_else_can() {
    let fixture = WorkerFixture::with(InProcessMode::Share, 4, taking(|_| ()));
    let stored = Stored::new(1, BLOCK);
    fixture.store.put("read", stored.clone());
    assert_staged(&fixture, stage("k", &Stored::new(2, BLOCK), 0, 2 * PAGE)).await;
    // A read of as many pages as there are in all.
    let got = fixture.read(read("read", &stored, 0, 0..BLOCK as u32)).await;
    assert_eq!(got.bytes, stored.content(0..BLOCK));
    assert_eq!(staged_bytes(&fixture), 0);
    assert_eq!(fixture.worker.metrics.staged_pages[StagedEnd::Room].get(), 2);
    assert_eq!(settle(&fixture, "k", Some(version(&Stored::new(2, BLOCK)))).await, 0);
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn staged_pages_count_for_their_tenant() {
    let fixture = new_fixture();
    let tenant = TenantTag::new("vision", 1);
    let stored = Stored::new(1, 2 * PAGE);
    let (message, pages) = stage("k", &stored, 0, 2 * PAGE);
    let question = WorkerRequest::Stage(message);
    push(fixture.call_for(tenant, &question), &pages).await;
    let tenants = &fixture.worker.tenants;
    let account = tenants.note_request(tenant.as_ref(), 0);
    let held = || tenants.held_bytes(crate::tenants::TenantTier::Memory, account);
    assert_eq!(held(), 2 * PAGE);
    assert_eq!(settle(&fixture, "k", Some(version(&stored))).await, 2);
    assert_eq!(held(), 2 * PAGE, "and so do they when they are committed");
}

#[tokio::test]
async fn a_worker_that_does_not_own_a_block_takes_no_pages_of_it() {
    let worker = coordinated(|settings| settings.populate.staged_max = ByteSize::from_mib(16));
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker);
    let id = |name: &str| WorkerId(name.into());
    let alone = |epoch, name| {
        PlacementMap::new(Epoch(epoch), vec![PlacementMember::new(id(name), 1.0)], 1).unwrap()
    };
    let activate = |map: &PlacementMap| {
        fixture.worker.activate_map(first_activation(map, &id("a")));
        fixture.worker.hold_lease(|| (Duration::from_secs(10), Duration::from_secs(100)));
    };
    let stored = Stored::new(1, PAGE);
    activate(&alone(1, "b"));
    let answer = staged(&fixture, stage("k", &stored, 0, PAGE)).await;
    assert_eq!(refusal(answer), RefusalKind::NotHeld);
    activate(&alone(2, "a"));
    let answer = staged(&fixture, stage("k", &stored, 0, PAGE)).await;
    assert_eq!(refusal(answer), RefusalKind::WrongEpoch(Epoch(2)));
    let (message, pages) = stage("k", &stored, 0, PAGE);
    assert_staged(&fixture, (StageMessage { epoch: Epoch(2), ..message }, pages)).await;
}

#[test]
fn a_token_crosses_the_wire_and_does_not_show_in_logs() {
    let question = WorkerRequest::Stage(stage("k", &Stored::new(1, 1), 0, 1).0);
    assert!(!format!("{question:?}").contains("PopulateToken(7)"));
    let sent = question.with_trace(None);
    assert_eq!(RequestEnvelope::decode(&sent.encode()).unwrap(), sent);
}
