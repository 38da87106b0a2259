//! Payloads that are written into memory of clients of other hosts: whose they are, which bytes, what
//! clients are told, and that nothing is written once they were told. Over a rail of the test.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use verbs3_gateway::auth::IdentityStore;
use verbs3_settings::TimePeriod;

use crate::client_rail::{BASE, SharedRail, TestRail};
use crate::gateway_fixture::{Answer, GatewayFixture, GatewaySetup, until};
use crate::signing::Request;

pub const COOKIE: &str = "1a2b3c4d";
/// Queue pair 0x77 at 10.77.0.3.
const TOKEN: &str = "017700000000000000000000000000ffff0a4d000300\
    00000000000000000000000000000000000000000000";

pub struct TransferFixture {
    pub gateway: GatewayFixture,
    pub rail: Arc<TestRail>,
}

pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
}

impl TransferFixture {
    pub async fn start(change: impl FnOnce(&mut GatewaySetup)) -> Self {
        let gateway = GatewayFixture::start_with(change).await;
        let rail = TestRail::with_memory(4 << 20);
        gateway.gateway.serve_by_rdma(vec![Arc::new(SharedRail(rail.clone()))]);
        assert_eq!(gateway.put("/data/k", &content(300_000)).await.status, 200);
        Self { gateway, rail }
    }

    pub async fn usual() -> Self {
        Self::start(|_| {}).await
    }

    pub async fn step(&self, request: Request) -> Answer {
        self.gateway.send(&request, b"").await
    }

    /// Prepares, and returns the session.
    async fn session(&self, path: &str, offset: u64, bytes: u64) -> String {
        let answer = self.step(prepare(path, offset, bytes)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.headers["x-amz-rdma-session"].clone()
    }

    pub async fn until_over(&self) {
        until(|| self.rail.open_connections() == 0).await;
    }

    pub fn ended(&self, outcome: &str) -> f64 {
        let metric = "verbs3_s3_rdma_sessions_ended_total";
        self.gateway.metrics().sum_shown(metric, &[&format!("outcome=\"{outcome}\"")]).unwrap()
    }

    pub fn sessions(&self) -> f64 {
        self.gateway.metrics().sum_shown("verbs3_s3_rdma_sessions", &[]).unwrap()
    }
}

pub fn step(name: &str) -> Request {
    Request::new("POST", &format!("/.hipobj-rc/{name}"))
        .header("content-length", "0")
        .header("x-amz-rdma-protocol", "hipobj-rc-v2")
}

pub fn prepare(path: &str, offset: u64, bytes: u64) -> Request {
    step("prepare")
        .header("x-amz-rdma-token", TOKEN)
        .header("x-amz-rdma-psn", "0a1b2c")
        .header("x-amz-rdma-cookie", COOKIE)
        .header("x-amz-rdma-op", "GET")
        .header("x-amz-rdma-target", path)
        .header("x-amz-rdma-size", &bytes.to_string())
        .header("x-amz-rdma-offset", &offset.to_string())
}

pub fn ready_with(session: &str, cookie: &str) -> Request {
    step("ready")
        .header("x-amz-rdma-session", session)
        .header("x-amz-rdma-cookie", cookie)
        .header("x-amz-rdma-qpn", "77")
        .header("x-amz-rdma-mr-addr", &format!("{BASE:x}"))
        .header("x-amz-rdma-mr-rkey", "1234")
}

pub fn ready(session: &str) -> Request {
    ready_with(session, COOKIE)
}

pub fn cancel(session: &str) -> Request {
    step("cancel").header("x-amz-rdma-session", session)
}

#[tokio::test]
async fn client_gets_the_bytes_that_it_asked_for() {
    let transfers = TransferFixture::usual().await;
    let all = content(300_000);
    for (offset, bytes) in [(0, 300_000), (0, 1), (299_999, 1), (12_345, 200_000), (1, 299_999)] {
        transfers.rail.memory.lock().fill(0);
        let prepared = transfers.step(prepare("/data/k", offset, bytes)).await;
        assert_eq!((prepared.status, prepared.body.len()), (200, 0));
        let reply = &prepared.headers["x-amz-rdma-reply"];
        assert!(reply.starts_with("200:01") && reply.len() == 92, "{reply}");
        assert_eq!(prepared.headers["x-amz-rdma-psn"], "000abc");
        assert_eq!(prepared.headers["x-amz-rdma-qpn"], "11");
        assert_eq!(prepared.headers["x-amz-rdma-protocol"], "hipobj-rc-v2");
        let done = transfers.step(ready(&prepared.headers["x-amz-rdma-session"])).await;
        assert_eq!((done.status, done.body.len()), (200, 0));
        assert_eq!(done.headers["x-amz-rdma-bytes-transferred"], bytes.to_string());
        assert_eq!(done.headers["x-amz-rdma-cookie"], COOKIE);
        let reply = if bytes == 300_000 { "200" } else { "206" };
        assert_eq!(done.headers["x-amz-rdma-reply"], reply);
        assert!(done.headers["x-amz-rdma-etag"].starts_with('"'));
        assert_eq!(transfers.rail.open_connections(), 0, "it is closed before its client is told");
        let memory = transfers.rail.memory.lock();
        let range = offset as usize..(offset + bytes) as usize;
        assert!(memory[..bytes as usize] == all[range], "{offset} {bytes}");
        assert!(memory[bytes as usize..].iter().all(|&byte| byte == 0), "and no other place");
    }
    assert_eq!(*transfers.rail.immediates.lock(), [0x1a2b_3c4d; 5], "once for each, at its end");
    let client = transfers.rail.connected.lock()[0];
    assert_eq!((client.pair_number, client.first_packet), (0x77, 0x000a_1b2c));
    assert_eq!(client.gid.ip_address().to_string(), "10.77.0.3");
    assert_eq!((transfers.ended("done"), transfers.sessions()), (5.0, 0.0));
}

#[tokio::test]
async fn signature_has_to_hold_and_to_cover_the_dialect() {
    let transfers = TransferFixture::usual().await;
    let mut request = prepare("/data/k", 0, 10);
    for (service, status) in [("hipobj", 200), ("s3", 200), ("sts", 403)] {
        request.service = service;
        assert_eq!(transfers.step(request.clone()).await.status, status, "{service}");
    }
    for wrong in [
        prepare("/data/k", 0, 10).by("AKOWNER", "wrong"),
        prepare("/data/k", 0, 10).by("AKNOBODY", "owner-secret"),
    ] {
        assert_eq!(transfers.step(wrong).await.error(), (403, "AccessDenied".into()));
    }
    let host = transfers.gateway.host();
    let (head, _) = prepare("/data/k", 0, 10).signed(&host);
    for changed in [
        head.replace("x-amz-rdma-size: 10", "x-amz-rdma-size: 11"),
        head.replacen("\r\n", "\r\nx-amz-rdma-op: GET\r\n", 1),
        head.replacen("\r\n", "\r\nx-amz-rdma-more: 1\r\n", 1),
        head.split("\r\n")
            .filter(|line| !line.starts_with("auth"))
            .collect::<Vec<_>>()
            .join("\r\n"),
    ] {
        assert_eq!(transfers.gateway.exchange(&changed, b"").await.status, 403, "{changed}");
    }
    let mut old = prepare("/data/k", 0, 10);
    old.time -= Duration::from_secs(3600);
    assert_eq!(transfers.step(old).await.status, 403);
    assert_eq!(transfers.sessions(), 2.0);
}

#[tokio::test]
async fn nothing_is_readable_that_http_refuses() {
    let identities = tempfile::tempdir().unwrap();
    let file = identities.path().join("identities.toml");
    let text = "[[identity]]\naccess_key = \"AKOWNER\"\nsecret_key = \"owner-secret\"\n\
        [[identity.allow]]\nmount = \"*\"\nrights = [\"read\", \"write\"]\n\
        [[identity]]\naccess_key = \"AKOTHER\"\nsecret_key = \"other-secret\"\n\
        [[identity.allow]]\nmount = \"data\"\nprefix = \"theirs/\"\nrights = [\"read\"]\n";
    std::fs::write(&file, text).unwrap();
    let transfers = TransferFixture::start(|setup| {
        setup.identities = IdentityStore::load_file(&file).unwrap();
    })
    .await;
    assert_eq!(transfers.gateway.put("/data/theirs/k", b"0123456789").await.status, 200);
    let as_other = |request: Request| request.by("AKOTHER", "other-secret");
    assert_eq!(transfers.step(as_other(prepare("/data/k", 0, 10))).await.status, 403);
    for path in ["/data/theirs/../k", "/data/theirs%2F..%2Fk", "//data/k", "http://other/data/k"] {
        let answer = transfers.step(as_other(prepare(path, 0, 10))).await;
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
    }
    let theirs = transfers.step(as_other(prepare("/data/theirs/k", 0, 10))).await;
    let theirs = &theirs.headers["x-amz-rdma-session"];
    // A session is its owner's, whoever has learned its name.
    assert_eq!(transfers.step(ready(theirs)).await.status, 409);
    assert_eq!(transfers.step(cancel(theirs)).await.status, 204);
    assert_eq!(transfers.step(as_other(ready(theirs))).await.status, 200);
    assert_eq!(&transfers.rail.memory.lock()[..10], b"0123456789");
}

#[tokio::test]
async fn what_can_not_be_prepared_is_said_exactly() {
    let transfers = TransferFixture::usual().await;
    for (request, status) in [
        (prepare("/data/none", 0, 1), 404),
        (prepare("/nowhere/k", 0, 1), 404),
        (prepare("/data/k", 300_000, 1), 416),
        (prepare("/data/k", 1, 300_000), 416),
        (prepare("/data/k", 0, (1 << 30) + 1), 413),
        (prepare("/data/k", 0, 1 << 31), 413),
        (prepare("/data/k", 0, 0), 400),
        (prepare("data/k", 0, 1), 400),
        (prepare("/data/k?versionId=x", 0, 1), 501),
        (step("more"), 501),
        (step("ready").header("x-amz-rdma-session", "zz"), 400),
    ] {
        let answer = transfers.step(request.clone()).await;
        assert_eq!((answer.status, answer.body.len()), (status, 0), "{:?}", request.headers);
        let marker = answer.headers.contains_key("x-amz-rdma-protocol-status");
        assert_eq!(marker, status == 501, "the marker is leave to use HTTP");
    }
    transfers.rail.is_down.store(true, Ordering::SeqCst);
    let answer = transfers.step(prepare("/data/k", 0, 1)).await;
    assert_eq!(answer.headers["x-amz-rdma-protocol-status"], "unsupported");
    assert_eq!((transfers.sessions(), transfers.rail.open_connections()), (0.0, 0));
}

#[tokio::test]
async fn session_is_good_for_one_transfer_and_its_cookie() {
    let transfers = TransferFixture::usual().await;
    let session = transfers.session("/data/k", 0, 10).await;
    assert_eq!(transfers.step(ready_with(&session, "00000000")).await.status, 403);
    assert_eq!(transfers.step(ready(&session)).await.status, 200);
    assert_eq!(transfers.step(ready(&session)).await.status, 409);
    assert_eq!(transfers.step(ready(&"0".repeat(32))).await.status, 409);
    for _ in 0..2 {
        assert_eq!(transfers.step(cancel(&session)).await.status, 204);
    }
    assert_eq!(transfers.rail.immediates.lock().len(), 1);
}

#[tokio::test]
async fn object_that_changed_is_not_moved() {
    let transfers = TransferFixture::usual().await;
    let session = transfers.session("/data/k", 0, 10).await;
    assert_eq!(transfers.gateway.put("/data/k", &[1; 300_000]).await.status, 200);
    assert_eq!(transfers.step(ready(&session)).await.status, 412);
    assert_eq!(transfers.rail.open_connections(), 0);
    assert!(transfers.rail.memory.lock().iter().all(|&byte| byte == 0));
    assert_eq!(transfers.ended("unread"), 1.0);
}

#[tokio::test]
async fn cancel_is_answered_once_nothing_is_written_any_more() {
    let transfers = TransferFixture::usual().await;
    transfers.rail.holds_up.store(true, Ordering::SeqCst);
    transfers.rail.closing_ms.store(300, Ordering::SeqCst);
    let session = transfers.session("/data/k", 0, 300_000).await;
    let moving = async {
        let answer = transfers.step(ready(&session)).await;
        assert_eq!((answer.status, transfers.rail.open_connections()), (409, 0));
    };
    let cancelling = async {
        until(|| !transfers.rail.connected.lock().is_empty()).await;
        let began = Instant::now();
        assert_eq!(transfers.step(cancel(&session)).await.status, 204);
        assert!(began.elapsed() >= Duration::from_millis(300), "it waits for the end");
        assert_eq!(transfers.rail.open_connections(), 0);
    };
    tokio::join!(moving, cancelling);
    transfers.rail.holds_up.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(transfers.rail.memory.lock().iter().all(|&byte| byte == 0));
    assert_eq!((transfers.ended("cancelled"), transfers.sessions()), (1.0, 0.0));
}

#[tokio::test]
async fn client_that_goes_away_ends_its_transfer() {
    let transfers = TransferFixture::usual().await;
    transfers.rail.holds_up.store(true, Ordering::SeqCst);
    let session = transfers.session("/data/k", 0, 300_000).await;
    let (head, _) = ready(&session).signed(&transfers.gateway.host());
    let mut socket = TcpStream::connect(transfers.gateway.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    until(|| !transfers.rail.connected.lock().is_empty()).await;
    drop(socket);
    transfers.until_over().await;
    until(|| transfers.sessions() == 0.0).await;
    assert_eq!(transfers.ended("cancelled"), 1.0);
}

#[tokio::test]
async fn session_that_nobody_uses_or_ends_in_time_is_over() {
    let transfers = TransferFixture::start(|setup| {
        setup.settings.s3_over_rdma.ready_wait = TimePeriod(Duration::from_millis(200));
        setup.settings.s3_over_rdma.transfer_time = TimePeriod(Duration::from_millis(200));
    })
    .await;
    let unused = transfers.session("/data/k", 0, 10).await;
    transfers.until_over().await;
    until(|| transfers.sessions() == 0.0).await;
    assert_eq!(transfers.step(ready(&unused)).await.status, 409);
    transfers.rail.holds_up.store(true, Ordering::SeqCst);
    let slow = transfers.session("/data/k", 0, 10).await;
    assert_eq!(transfers.step(ready(&slow)).await.status, 408);
    assert_eq!((transfers.ended("expired"), transfers.ended("late")), (1.0, 1.0));
    assert_eq!(transfers.rail.open_connections(), 0);
}

#[tokio::test]
async fn client_that_lies_harms_its_own_transfer_only() {
    let transfers = TransferFixture::usual().await;
    let (liar, honest) = (
        transfers.session("/data/k", 0, 300_000).await,
        transfers.session("/data/k", 0, 300_000).await,
    );
    transfers.rail.refuses.store(true, Ordering::SeqCst);
    assert_eq!(transfers.step(ready(&liar)).await.status, 500);
    assert_eq!(transfers.rail.open_connections(), 1, "that of the other");
    transfers.rail.refuses.store(false, Ordering::SeqCst);
    assert_eq!(transfers.step(ready(&honest)).await.status, 200);
    assert!(transfers.rail.memory.lock()[..300_000] == content(300_000));
    assert_eq!((transfers.ended("refused"), transfers.ended("done")), (1.0, 1.0));
}

#[tokio::test]
async fn sessions_and_transfers_are_bounded() {
    let transfers = TransferFixture::start(|setup| {
        setup.settings.s3_over_rdma.sessions_max = 2;
        setup.settings.s3_over_rdma.transfers_max = 1;
        setup.settings.timeouts.turn_wait = TimePeriod(Duration::from_millis(100));
    })
    .await;
    let first = transfers.session("/data/k", 0, 10).await;
    let second = transfers.session("/data/k", 0, 10).await;
    assert_eq!(transfers.step(prepare("/data/k", 0, 10)).await.status, 503);
    transfers.rail.holds_up.store(true, Ordering::SeqCst);
    let moving = async { assert_eq!(transfers.step(ready(&first)).await.status, 409) };
    let waiting = async {
        until(|| !transfers.rail.connected.lock().is_empty()).await;
        assert_eq!(transfers.step(ready(&second)).await.status, 503, "its turn did not come");
        assert_eq!(transfers.step(cancel(&first)).await.status, 204);
    };
    tokio::join!(moving, waiting);
    assert_eq!((transfers.ended("unread"), transfers.ended("cancelled")), (1.0, 1.0));
    transfers.rail.holds_up.store(false, Ordering::SeqCst);
    let third = transfers.session("/data/k", 0, 10).await;
    assert_eq!(transfers.step(ready(&third)).await.status, 200);
    let metrics = transfers.gateway.metrics();
    let shown = |name| metrics.sum_shown(name, &[]).unwrap();
    assert_eq!(shown("verbs3_s3_rdma_sessions_max"), 2.0);
    assert_eq!(shown("verbs3_s3_rdma_transfers_max"), 1.0);
    assert_eq!((transfers.sessions(), shown("verbs3_s3_rdma_transfers")), (0.0, 0.0));
    assert_eq!(shown("verbs3_s3_rdma_written_bytes_total"), 10.0);
}

#[tokio::test]
async fn client_that_goes_before_its_turn_has_cancelled() {
    let transfers = TransferFixture::start(|setup| {
        setup.settings.s3_over_rdma.transfers_max = 1;
        setup.settings.timeouts.turn_wait = TimePeriod(Duration::from_secs(60));
    })
    .await;
    let (first, second) =
        (transfers.session("/data/k", 0, 10).await, transfers.session("/data/k", 0, 10).await);
    transfers.rail.holds_up.store(true, Ordering::SeqCst);
    let moving = async { assert_eq!(transfers.step(ready(&first)).await.status, 409) };
    let waiting = async {
        until(|| !transfers.rail.connected.lock().is_empty()).await;
        let (head, _) = ready(&second).signed(&transfers.gateway.host());
        let mut socket = TcpStream::connect(transfers.gateway.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        drop(socket);
        until(|| transfers.sessions() == 1.0).await;
        assert_eq!((transfers.ended("unread"), transfers.ended("cancelled")), (0.0, 1.0));
        assert_eq!(transfers.step(cancel(&first)).await.status, 204);
    };
    tokio::join!(moving, waiting);
    assert_eq!(transfers.rail.connected.lock().len(), 1);
}

#[tokio::test]
async fn rail_that_goes_and_a_gateway_that_ends_leave_no_writer() {
    let transfers = TransferFixture::usual().await;
    let session = transfers.session("/data/k", 0, 10).await;
    transfers.rail.is_down.store(true, Ordering::SeqCst);
    transfers.until_over().await;
    assert_eq!(transfers.step(ready(&session)).await.status, 409);
    transfers.rail.is_down.store(false, Ordering::SeqCst);
    transfers.session("/data/k", 0, 10).await;
    transfers.gateway.gateway.shutdown(Duration::from_secs(20)).await;
    assert_eq!(transfers.rail.open_connections(), 0);
    assert_eq!((transfers.ended("rail_lost"), transfers.ended("cancelled")), (1.0, 1.0));
}

#[tokio::test]
async fn rail_of_another_kind_leaves_clients_to_the_next() {
    let gateway = GatewayFixture::start().await;
    let (other, rail) = (TestRail::with_memory(0), TestRail::with_memory(4096));
    other.is_other.store(true, Ordering::SeqCst);
    let rails = [&other, &rail].map(|rail| Arc::new(SharedRail(rail.clone())) as _);
    gateway.gateway.serve_by_rdma(rails.into());
    assert_eq!(gateway.put("/data/k", b"0123456789").await.status, 200);
    let transfers = TransferFixture { gateway, rail };
    let session = transfers.session("/data/k", 2, 5).await;
    assert_eq!(transfers.step(ready(&session)).await.status, 200);
    assert_eq!(&transfers.rail.memory.lock()[..6], b"23456\0");
    transfers.rail.is_other.store(true, Ordering::SeqCst);
    let answer = transfers.step(prepare("/data/k", 0, 1)).await;
    assert_eq!(answer.headers["x-amz-rdma-protocol-status"], "unsupported");
}
