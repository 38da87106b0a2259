//! Tests of memory that another process has lent: it is registered once, written to by the device
//! alone, and given back with its owner or with the device.

use super::*;
use crate::foreign_memory::{BodyPlace, ForeignMemory, StandInMemory};
use crate::metrics::{PostedOperation, VerbsRailMetrics};

/// Length of the lent memory. A body lies behind its first kilobyte.
const LENT: usize = 1 << 20;
const AT: usize = 1024;

/// Answers with as many bytes as a message has, all like its first one, in pages of its arena.
struct PageService(Arena);

#[async_trait]
impl CallService for PageService {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let (mut writer, reader) = self.0.allocate_cell(MESSAGE).unwrap().split_writer_reader();
        writer.spare_bytes().fill(request.message[0]);
        writer.publish_bytes(MESSAGE);
        let page = reader.pinned_bytes(0..MESSAGE).unwrap();
        let _ = reply.send_last("".into(), 0, vec![page]).await;
    }
}

fn with_windows() -> VerbsOptions {
    let mut options = test_options();
    options.settings.windows = FeatureSwitch::Auto;
    options
}

async fn open_rail(address: IpAddr, requester: VerbsOptions) -> TestRail {
    let pages = test_arena(4);
    let service = Arc::new(PageService(pages.clone()));
    TestRail::open_over(address.into(), test_options(), requester, pages, service).await
}

struct LentRail {
    rail: TestRail,
    metrics: VerbsRailMetrics,
    /// What is registered of the rail's own memory, on both sides.
    registered: i64,
}

impl LentRail {
    async fn open(address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let rail = open_rail(address, with_windows()).await;
        let metrics = rail_metrics(&rail.transport.rail_label().unwrap());
        let registered = metrics.registered_bytes.get();
        Self { rail, metrics, registered }
    }

    fn is_registered(&self) -> bool {
        self.metrics.registered_bytes.get() == self.registered + LENT as i64
    }

    fn count_writes(&self) -> u64 {
        self.metrics.work_requests[PostedOperation::Write].get()
    }
}

/// Has `byte` sent into the memory, as often as a message has bytes.
async fn land(
    connection: &dyn PeerConnection,
    foreign: &Arc<ForeignMemory>,
    memory: &StandInMemory,
    byte: u8,
) {
    let body = BodyPlace::new(foreign.clone(), AT as u64, MESSAGE as u64).unwrap();
    let landing = Landing::in_foreign_memory(body.claim_range(0, MESSAGE as u64).unwrap());
    let wanted = vec![byte; MESSAGE];
    let mut call = connection.start_call(Bytes::from(vec![byte]), Some(landing));
    let CallEvent::Part(part) = call.next().await.unwrap() else { panic!("a part was due") };
    assert!(part.data.concat() == wanted, "wrong bytes");
    drop((part, call));
    body.close_place().await;
    assert!(memory.copy_range(AT..AT + MESSAGE) == wanted);
    let around = [memory.copy_range(0..AT), memory.copy_range(AT + MESSAGE..LENT)].concat();
    assert!(around.iter().all(|&byte| byte == crate::foreign_memory::STAND_IN_BYTE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_device_writes_into_lent_memory_once_it_is_registered() {
    let lent = LentRail::open("127.0.0.41").await;
    {
        let connection = lent.rail.connect_both().await.unwrap();
        let (memory, foreign) = StandInMemory::allocate(LENT);
        land(connection.as_ref(), &foreign, &memory, 1).await;
        assert_eq!(lent.count_writes(), 0, "the first reply travels in the stream");
        wait_until("the memory is registered", || lent.is_registered()).await;
        for byte in 2..10 {
            land(connection.as_ref(), &foreign, &memory, byte).await;
        }
        assert!(lent.count_writes() >= 8, "{} writes", lent.count_writes());
        assert!(lent.is_registered(), "it is registered once");
        assert_eq!(lent.rail.memory.arena_usage().loaned_bytes, 0);
        drop(foreign);
        wait_until("it is given back", || lent.metrics.registered_bytes.get() == lent.registered)
            .await;
        assert_eq!(Arc::strong_count(&memory), 1, "and unmapped");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_device_that_fails_gives_lent_memory_back() {
    let address: IpAddr = "127.0.0.42".parse().unwrap();
    let lent = LentRail::open("127.0.0.42").await;
    let connection = lent.rail.connect_both().await.unwrap();
    let (memory, foreign) = StandInMemory::allocate(LENT);
    land(connection.as_ref(), &foreign, &memory, 1).await;
    wait_until("the memory is registered", || lent.is_registered()).await;
    let device = Arc::downgrade(&lent.rail.rail_device());
    make_happen(FATAL, address);
    wait_until("the connection is over", || connection.broken_reason().is_some()).await;
    drop(connection);
    wait_until("nothing holds the device", || device.strong_count() == 0).await;
    wait_until("both sides are up again", || lent.rail.is_up()).await;
    wait_until("its memory is given back", || {
        lent.metrics.registered_bytes.get() == lent.registered
    })
    .await;
    let connection = lent.rail.connect_both().await.unwrap();
    land(connection.as_ref(), &foreign, &memory, 2).await;
    wait_until("the memory is registered again", || lent.is_registered()).await;
    land(connection.as_ref(), &foreign, &memory, 3).await;
}

/// Lends memory for a call that nobody answers, and ends its connection. Returns whether the place is
/// free then.
async fn is_free_after(address: &str, trouble: Option<u16>) -> bool {
    let address: IpAddr = address.parse().unwrap();
    let service = Arc::new(SilentService::default());
    let called = service.called.clone();
    let rail = TestRail::open_with(address.into(), test_options(), with_windows(), service).await;
    let connection = rail.connect_both().await.unwrap();
    let (memory, foreign) = StandInMemory::allocate(LENT);
    rail.rail_device().foreign.register_for_test(&foreign);
    let body = BodyPlace::new(foreign.clone(), AT as u64, MESSAGE as u64).unwrap();
    let landing = Landing::in_foreign_memory(body.claim_range(0, MESSAGE as u64).unwrap());
    let mut call = connection.start_call("".into(), Some(landing));
    tokio::select! {
        event = call.next() => panic!("nobody answers: {event:?}"),
        () = called.notified() => {}
    }
    assert!(!body.end_claims(), "the device may write there");
    for news in trouble.into_iter().chain([PORT_DOWN]) {
        make_happen(news, address);
    }
    assert!(call.next().await.is_err(), "the connection is over");
    drop((call, connection));
    rail.transport.shutdown().await;
    rail.server.shutdown().await;
    let is_free = body.end_claims();
    drop((foreign, body));
    assert_eq!(Arc::strong_count(&memory) == 1, is_free, "memory in doubt stays mapped");
    is_free
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_queue_pair_that_survives_keeps_lent_memory() {
    assert!(!is_free_after("127.0.0.43", Some(STUCK)).await);
    assert!(is_free_after("127.0.0.44", None).await);
}

/// Has bytes land in lent memory by a device that may not write there.
async fn lands_by_stream_alone(address: &str, tags: bool) {
    let mut options = with_windows();
    options.settings.data_tags = tags;
    let address: IpAddr = address.parse().unwrap();
    let rail = open_rail(address, options).await;
    let metrics = rail_metrics(&rail.transport.rail_label().unwrap());
    let registered = metrics.registered_bytes.get();
    let connection = rail.connect_both().await.unwrap();
    let (memory, foreign) = StandInMemory::allocate(LENT);
    for byte in 0..3 {
        land(connection.as_ref(), &foreign, &memory, byte).await;
    }
    assert_eq!(metrics.work_requests[PostedOperation::Write].get(), 0, "{address}");
    assert_eq!(metrics.registered_bytes.get(), registered, "{address}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_device_without_windows_writes_into_no_lent_memory() {
    lands_by_stream_alone("127.0.5.45", false).await;
    lands_by_stream_alone("127.0.0.46", true).await;
}
