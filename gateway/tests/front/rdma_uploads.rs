//! PUTs whose payload is read out of memory of clients of other hosts: what is stored is what the
//! client had, under the rights, promises and announcements of a PUT over HTTP, and nothing is stored
//! of a payload that was not read to its end. Over a rail of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use verbs3_gateway::PopulateTier;
use verbs3_gateway::auth::IdentityStore;
use verbs3_settings::TimePeriod;

use crate::chunked::crc32;
use crate::client_rail::{BASE, PIECE_BYTES, READS_AHEAD, TAKEN_BYTES};
use crate::gateway_fixture::{Answer, until};
use crate::identities::rules;
use crate::populating::OneWorker;
use crate::rdma_transfers::{COOKIE, TransferFixture, cancel, content, prepare, ready, ready_with};
use crate::signing::Request;

const CRC32: &str = "ZDewnA==";
const MD5: &str = "SjCjzCqnwdLrLY1p4Q5Gkg==";
const BODY: &[u8] = b"what is written";

/// Asks for a PUT, without leave to read the client's memory.
fn prepare_push(path: &str, bytes: u64) -> Request {
    let mut request = prepare(path, 0, bytes);
    for (name, value) in &mut request.headers {
        if name == "x-amz-rdma-op" {
            *value = "PUT".to_owned();
        }
    }
    request
}

fn prepare_put(path: &str, bytes: u64) -> Request {
    prepare_push(path, bytes).header("x-amz-rdma-pull", "4")
}

fn with_headers(request: Request, headers: &[(&str, &str)]) -> Request {
    headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// What an answer tells of the object, and not of itself.
fn object_headers(answer: Answer) -> BTreeMap<String, String> {
    let own = ["date", "last-modified", "x-amz-request-id", "x-amz-id-2"];
    answer.headers.into_iter().filter(|(name, _)| !own.contains(&name.as_str())).collect()
}

impl TransferFixture {
    fn has_memory(&self, bytes: &[u8]) {
        self.rail.memory.lock()[..bytes.len()].copy_from_slice(bytes);
    }

    async fn put_session(&self, request: Request) -> String {
        let answer = self.step(request).await;
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{answer:?}");
        assert!(!answer.headers.contains_key("x-amz-rdma-mr-addr"), "it is not written to");
        answer.headers["x-amz-rdma-session"].clone()
    }

    /// Puts `body`, and returns the answer to its `ready`.
    async fn put_by_rdma(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.has_memory(body);
        let prepared = with_headers(prepare_put(path, body.len() as u64), headers);
        let session = self.put_session(prepared).await;
        self.step(ready(&session)).await
    }

    async fn is_absent(&self, path: &str) -> bool {
        self.gateway.get(path).await.status == 404
    }
}

#[tokio::test]
async fn put_stores_every_byte_that_the_client_has() {
    let transfers = TransferFixture::usual().await;
    for (at, bytes) in [1, 2, 65_535, 65_536, 65_537, 300_000, 4 << 20].into_iter().enumerate() {
        let (path, body) = (format!("/data/up/{at}"), content(bytes));
        let done = transfers.put_by_rdma(&path, &[], &body).await;
        assert_eq!((done.status, done.body.len()), (200, 0), "{done:?}");
        assert_eq!(transfers.rail.open_connections(), 0, "it is closed before its client is told");
        assert_eq!(done.headers["x-amz-rdma-bytes-transferred"], bytes.to_string());
        assert_eq!(done.headers["x-amz-rdma-cookie"], COOKIE);
        assert_eq!(done.headers["x-amz-rdma-reply"], "200");
        let stored = transfers.gateway.get(&path).await;
        assert!(*stored.body == *body, "{bytes}");
        assert_eq!(done.headers["x-amz-rdma-etag"], stored.headers["etag"]);
    }
    assert!(transfers.rail.immediates.lock().is_empty(), "nothing is written to the client");
    let client = transfers.rail.connected.lock()[0];
    assert_eq!((client.pair_number, client.first_packet, client.reads_max), (0x77, 0x000a_1b2c, 4));
    assert_eq!((transfers.ended("done"), transfers.sessions()), (7.0, 0.0));
    // Each byte is asked for once, where it is, by the client's key.
    let places = transfers.rail.read_places.lock().clone();
    let longest: Vec<_> = (0..4 << 20).step_by(PIECE_BYTES as usize).collect();
    let (last, keys) = (&places[places.len() - longest.len()..], [0x1234].into());
    assert!(last.iter().map(|place| place.address - BASE).eq(longest));
    assert_eq!(places.iter().map(|place| place.key).collect::<BTreeSet<_>>(), keys);
    let metrics = transfers.gateway.metrics();
    let read = (1 + 2 + 65_535 + 65_536 + 65_537 + 300_000 + (4 << 20)) as f64;
    assert_eq!(metrics.sum_shown("verbs3_s3_rdma_read_bytes_total", &[]), Some(read));
    assert_eq!(transfers.gateway.gateway_metric("body_bytes_received_total"), read + 300_000.0);
}

#[tokio::test]
async fn put_is_stored_and_told_to_homes_as_over_http() {
    let transfers = TransferFixture::usual().await;
    let begun = transfers.gateway.told().len();
    let before = transfers.gateway.gateway_metric("requests_total");
    let cases = [
        &[
            ("content-type", "a/b"),
            ("cache-control", "no-store"),
            ("content-language", "de"),
            ("content-disposition", "inline"),
            ("x-amz-meta-run", "7"),
        ][..],
        &[("x-amz-checksum-crc32", CRC32)],
        &[("content-md5", MD5)],
    ];
    let mut shown = Vec::new();
    for headers in cases {
        let done = transfers.put_by_rdma("/data/up", headers, BODY).await;
        assert_eq!(done.status, 200, "{headers:?}");
        let stored = transfers.gateway.get("/data/up").await;
        assert_eq!(*stored.body, *BODY);
        shown.push(object_headers(stored));
    }
    let by_rdma = transfers.gateway.told().len() - begun;
    let counted = transfers.gateway.gateway_metric("requests_total") - before;
    // The questions, the PUTs that they stand for, and the GETs.
    assert_eq!(counted, 3.0 * (2.0 + 1.0 + 1.0));
    for (headers, shown) in cases.into_iter().zip(shown) {
        let put = with_headers(Request::new("PUT", "/data/up"), headers)
            .header("content-length", &BODY.len().to_string());
        assert_eq!(transfers.gateway.send(&put, BODY).await.status, 200);
        assert_eq!(object_headers(transfers.gateway.get("/data/up").await), shown);
    }
    let all = transfers.gateway.told().len() - begun;
    assert!(by_rdma > 0 && all == 2 * by_rdma, "{by_rdma} of {all}");
}

/// A parser that cut the target would judge the rights of one object and put another.
#[tokio::test]
async fn target_names_the_object_that_http_would_name() {
    let transfers = TransferFixture::usual().await;
    for path in ["/data/a%23b", "/data/a//b", "/data/a/../b", "/data/a%3Fb"] {
        let by_http = transfers.gateway.put(path, b"something else!").await.status;
        transfers.has_memory(BODY);
        let prepared = transfers.step(prepare_put(path, 15)).await;
        let Some(session) = prepared.headers.get("x-amz-rdma-session") else {
            assert_eq!(prepared.status, by_http, "{path}");
            continue;
        };
        assert_eq!(transfers.step(ready(session)).await.status, by_http, "{path}");
        if by_http == 200 {
            assert_eq!(*transfers.gateway.get(path).await.body, *BODY, "{path}");
        }
    }
    assert!(transfers.is_absent("/data/a").await);
    for path in ["/data/k#", "/data/k#x"] {
        for request in [prepare(path, 0, 10), prepare_put(path, 10)] {
            let answer = transfers.step(request).await;
            assert_eq!(answer.headers["x-amz-rdma-malformed"], "x-amz-rdma-target", "{path}");
            assert_eq!(answer.status, 400, "{path}");
        }
    }
}

/// Somebody on the way could change what is stored by a header that nobody has signed.
#[tokio::test]
async fn headers_of_the_object_have_to_be_signed() {
    let transfers = TransferFixture::usual().await;
    for header in ["content-md5", "if-none-match", "content-type", "cache-control", "expires"] {
        let (head, _) = prepare_put("/data/up", 15).signed(&transfers.gateway.host());
        let head = head.replacen("\r\n", &format!("\r\n{header}: *\r\n"), 1);
        let mut socket = TcpStream::connect(transfers.gateway.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 403", "{header}");
    }
    // A GET has no object to change.
    let (head, _) = prepare("/data/k", 0, 10).signed(&transfers.gateway.host());
    let head = head.replacen("\r\n", "\r\ncontent-type: a/b\r\n", 1);
    let mut socket = TcpStream::connect(transfers.gateway.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200");
}

/// Whatever happens to its task, a session is over once it is.
#[tokio::test]
async fn session_whose_task_panics_is_over() {
    let transfers = TransferFixture::usual().await;
    transfers.has_memory(BODY);
    transfers.rail.panics.store(true, Ordering::SeqCst);
    let session = transfers.put_session(prepare_put("/data/up", 15)).await;
    assert_eq!(transfers.step(ready(&session)).await.status, 409);
    assert_eq!(transfers.step(cancel(&session)).await.status, 204);
    assert_eq!((transfers.sessions(), transfers.rail.open_connections()), (0.0, 0));
    assert!(transfers.is_absent("/data/up").await);
}

/// Clients of the dialect push into the server's memory. They take this answer as leave to use HTTP.
#[tokio::test]
async fn put_of_a_client_that_pushes_is_left_to_http() {
    let transfers = TransferFixture::usual().await;
    for request in [
        prepare_push("/data/up", 10),
        prepare_put("/data/up?partNumber=1&uploadId=u", 10),
        prepare_put("/data/up", 10).header("x-amz-copy-source", "/data/k"),
        prepare_put("/data/up", 10).header("x-amz-trailer", "x-amz-checksum-crc32"),
        prepare_put("/data/up", 10).header("x-amz-decoded-content-length", "10"),
        prepare_put("/data/up", 10).header("x-amz-write-offset-bytes", "10"),
        prepare_put("/data/up", 0),
    ] {
        let answer = transfers.step(request).await;
        assert_eq!((answer.status, answer.body.len()), (501, 0));
        assert_eq!(answer.headers["x-amz-rdma-protocol-status"], "unsupported");
    }
    for pull in ["0", "17", "-1", "+4", "x", "4 4", "256"] {
        let request = prepare_push("/data/up", 10).header("x-amz-rdma-pull", pull);
        let answer = transfers.step(request).await;
        assert_eq!(answer.headers["x-amz-rdma-malformed"], "x-amz-rdma-pull", "{pull}");
        assert_eq!(answer.status, 400, "{pull}");
    }
    let direct = Request::new("PUT", "/data/up")
        .header("x-amz-rdma-token", &"01".repeat(44))
        .header("content-length", "0");
    let answer = transfers.gateway.send(&direct, b"").await;
    assert_eq!(answer.error(), (501, "NotImplemented".into()));
    assert!(transfers.is_absent("/data/up").await);
    assert_eq!(transfers.sessions(), 0.0);
}

#[tokio::test]
async fn put_that_http_refuses_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identities.toml");
    rules(&file, "[[identity.allow]]\nmount = \"data\"\nrights = [\"read\"]\n");
    let transfers = TransferFixture::start(|setup| {
        setup.identities = IdentityStore::load_file(&file).unwrap();
    })
    .await;
    let put = |path: &str| prepare_put(path, 15);
    for (request, status) in [
        (put("/data/up").by("AKOTHER", "other-secret"), 403),
        (put("/data/up").by("AKOWNER", "wrong"), 403),
        (put("/frozen/up"), 403),
        (put("/nowhere/up"), 404),
        (put("/data/up").header("x-amz-acl", "public-read"), 403),
        (put("/data/up").header("content-md5", "short"), 400),
        (put("/data/up").header("x-amz-checksum-crc32", "short"), 400),
        (prepare_put("/data/up", (1 << 30) + 1), 413),
        (prepare_put("/data/up", 1 << 31), 413),
        (put("/data/up#x"), 400),
        (put("/data/up#"), 400),
        (put("data/up"), 400),
        (put("/data/%ff"), 400),
    ] {
        let answer = transfers.step(request.clone()).await;
        assert_eq!(answer.status, status, "{} {:?}", request.path, request.headers);
        assert!(!answer.headers.contains_key("x-amz-rdma-session"));
    }
    let mut offset = prepare_put("/data/up", 15);
    offset.headers.iter_mut().filter(|(name, _)| name == "x-amz-rdma-offset").for_each(|field| {
        field.1 = "1".to_owned();
    });
    assert_eq!(transfers.step(offset).await.status, 400);
    assert_eq!((transfers.sessions(), transfers.rail.open_connections()), (0.0, 0));
    assert!(transfers.is_absent("/data/up").await);
}

#[tokio::test]
async fn put_is_of_its_sender_and_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identities.toml");
    rules(&file, "[[identity.allow]]\nmount = \"*\"\nrights = [\"read\", \"write\"]\n");
    let transfers = TransferFixture::start(|setup| {
        setup.identities = IdentityStore::load_file(&file).unwrap();
    })
    .await;
    transfers.has_memory(BODY);
    let session = transfers.put_session(prepare_put("/data/up", 15)).await;
    let other = ready(&session).by("AKOTHER", "other-secret");
    assert_eq!(transfers.step(other).await.status, 409);
    assert_eq!(transfers.step(ready_with(&session, "00000000")).await.status, 403);
    assert!(transfers.is_absent("/data/up").await);
    assert_eq!(transfers.step(ready(&session)).await.status, 200);
    transfers.has_memory(b"something else!");
    assert_eq!(transfers.step(ready(&session)).await.status, 409);
    assert_eq!(*transfers.gateway.get("/data/up").await.body, *BODY);
    assert_eq!(transfers.ended("done"), 1.0);
}

/// Whatever was there before stays: the write is cut like one whose client has hung up.
#[tokio::test]
async fn read_that_fails_stores_nothing() {
    let transfers = TransferFixture::usual().await;
    let body = content(300_000).into_iter().rev().collect::<Vec<_>>();
    for path in ["/data/up", "/data/k"] {
        for readable in [0, 1, 65_536, 262_144, 299_999] {
            transfers.rail.readable.store(readable, Ordering::SeqCst);
            let answer = transfers.put_by_rdma(path, &[], &body).await;
            assert_eq!((answer.status, answer.body.len()), (500, 0), "{readable}");
            assert!(!answer.headers.contains_key("x-amz-rdma-etag"));
            assert_eq!(transfers.rail.open_connections(), 0);
        }
    }
    assert!(transfers.is_absent("/data/up").await);
    assert!(*transfers.gateway.get("/data/k").await.body == *content(300_000));
    assert_eq!((transfers.ended("refused"), transfers.sessions()), (10.0, 0.0));
    let told = transfers.gateway.told();
    assert!(!told.iter().any(|told| told.contains("announce up")), "{told:?}");
    let metrics = transfers.gateway.metrics();
    assert_eq!(metrics.sum_shown("verbs3_s3_rdma_read_bytes_total", &[]), Some(0.0));
}

#[tokio::test]
async fn promise_that_does_not_hold_stores_nothing() {
    let transfers = TransferFixture::usual().await;
    for headers in [
        [("x-amz-checksum-crc32", CRC32)],
        [("content-md5", MD5)],
        [("x-amz-checksum-sha256", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")],
    ] {
        let answer = transfers.put_by_rdma("/data/up", &headers, b"something else!").await;
        assert_eq!(answer.status, 400, "{headers:?}");
    }
    assert!(transfers.is_absent("/data/up").await);
    let kept = transfers.put_by_rdma("/data/k", &[("if-none-match", "*")], BODY).await;
    assert_eq!(kept.status, 412);
    assert!(*transfers.gateway.get("/data/k").await.body == *content(300_000));
    assert_eq!((transfers.rail.open_connections(), transfers.sessions()), (0, 0.0));
}

#[tokio::test]
async fn put_that_is_cancelled_in_the_middle_stores_nothing() {
    let transfers = TransferFixture::usual().await;
    transfers.has_memory(&content(300_000));
    transfers.rail.holds_up.store(true, Ordering::SeqCst);
    transfers.rail.closing_ms.store(300, Ordering::SeqCst);
    let session = transfers.put_session(prepare_put("/data/up", 300_000)).await;
    let moving = async {
        let answer = transfers.step(ready(&session)).await;
        assert_eq!((answer.status, transfers.rail.open_connections()), (409, 0));
    };
    let cancelling = async {
        until(|| transfers.rail.reads_posted.load(Ordering::SeqCst) == READS_AHEAD).await;
        assert_eq!(transfers.step(cancel(&session)).await.status, 204);
        assert_eq!(transfers.rail.open_connections(), 0, "it waits for the end");
    };
    tokio::join!(moving, cancelling);
    transfers.rail.holds_up.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(transfers.rail.reads_posted.load(Ordering::SeqCst), READS_AHEAD);
    assert!(transfers.is_absent("/data/up").await);
    assert_eq!((transfers.ended("cancelled"), transfers.sessions()), (1.0, 0.0));
}

#[tokio::test]
async fn put_of_a_client_that_hangs_up_stores_nothing() {
    let transfers = TransferFixture::usual().await;
    transfers.rail.holds_up.store(true, Ordering::SeqCst);
    let session = transfers.put_session(prepare_put("/data/up", 300_000)).await;
    let (head, _) = ready(&session).signed(&transfers.gateway.host());
    let mut socket = TcpStream::connect(transfers.gateway.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    until(|| transfers.rail.reads_posted.load(Ordering::SeqCst) > 0).await;
    drop(socket);
    transfers.until_over().await;
    until(|| transfers.sessions() == 0.0).await;
    transfers.rail.holds_up.store(false, Ordering::SeqCst);
    assert!(transfers.is_absent("/data/up").await);
    assert_eq!(transfers.ended("cancelled"), 1.0);
}

#[tokio::test]
async fn put_that_is_not_read_in_time_stores_nothing() {
    let transfers = TransferFixture::start(|setup| {
        setup.settings.s3_over_rdma.ready_wait = TimePeriod(Duration::from_millis(200));
        setup.settings.s3_over_rdma.transfer_time = TimePeriod(Duration::from_millis(200));
    })
    .await;
    let unused = transfers.put_session(prepare_put("/data/up", 10)).await;
    transfers.until_over().await;
    until(|| transfers.sessions() == 0.0).await;
    assert_eq!(transfers.step(ready(&unused)).await.status, 409);
    transfers.rail.holds_up.store(true, Ordering::SeqCst);
    let slow = transfers.put_session(prepare_put("/data/up", 10)).await;
    assert_eq!(transfers.step(ready(&slow)).await.status, 408);
    assert_eq!((transfers.ended("expired"), transfers.ended("late")), (1.0, 1.0));
    assert_eq!(transfers.rail.open_connections(), 0);
    assert!(transfers.is_absent("/data/up").await);
}

/// A home that can't be told keeps the write from the store, whose bytes are all read by then.
#[tokio::test]
async fn put_that_the_homes_do_not_hear_of_is_not_acknowledged() {
    let transfers = TransferFixture::usual().await;
    transfers.gateway.homes.refuse_announce.store(true, Ordering::SeqCst);
    let answer = transfers.put_by_rdma("/data/up", &[], BODY).await;
    let by_http = transfers.gateway.put("/data/up", BODY).await;
    assert_eq!(answer.status, by_http.status);
    assert!(answer.status >= 500 && !answer.headers.contains_key("x-amz-rdma-etag"));
    transfers.gateway.homes.refuse_announce.store(false, Ordering::SeqCst);
    assert!(transfers.is_absent("/data/up").await);
}

#[tokio::test]
async fn put_whose_right_is_gone_at_ready_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identities.toml");
    let allow = |rights| format!("[[identity.allow]]\nmount = \"*\"\nrights = [{rights}]\n");
    rules(&file, &allow("\"read\", \"write\""));
    let transfers = TransferFixture::start(|setup| {
        setup.identities = IdentityStore::load_file(&file).unwrap();
        setup.settings.s3_over_rdma.ready_wait = TimePeriod(Duration::from_secs(120));
    })
    .await;
    let as_other = |request: Request| request.by("AKOTHER", "other-secret");
    transfers.has_memory(BODY);
    let session = transfers.put_session(as_other(prepare_put("/data/up", 15))).await;
    rules(&file, &allow("\"read\""));
    let probe = as_other(Request::new("PUT", "/data/probe").header("content-length", "1"));
    let withdrawn = async {
        while transfers.gateway.send(&probe, b"0").await.status != 403 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), withdrawn).await.unwrap();
    assert_eq!(transfers.step(as_other(ready(&session))).await.status, 403);
    assert!(transfers.is_absent("/data/up").await);
    assert_eq!((transfers.ended("unstored"), transfers.rail.open_connections()), (1.0, 0));
    assert!(transfers.rail.connected.lock().is_empty(), "nothing is connected for it");
    assert_eq!(transfers.rail.reads_posted.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn put_is_copied_to_workers_and_one_that_is_cut_is_not() {
    let worker = Arc::new(OneWorker::default());
    let shown: Arc<dyn PopulateTier> = worker.clone();
    let transfers = TransferFixture::start(|setup| {
        setup.settings.populate.commit_wait_max = TimePeriod(Duration::from_secs(60));
        setup.populate = Some(shown);
    })
    .await;
    let done = transfers.put_by_rdma("/data/up", &[], BODY).await;
    let etag = done.headers["x-amz-rdma-etag"].clone();
    let copied = worker.committed();
    assert_eq!(copied.last(), Some(&("up".to_owned(), etag, BODY.to_vec())));
    transfers.rail.readable.store(65_536, Ordering::SeqCst);
    assert_eq!(transfers.put_by_rdma("/data/up", &[], &content(300_000)).await.status, 500);
    assert_eq!(worker.committed(), copied);
    assert_eq!(*transfers.gateway.get("/data/up").await.body, *BODY);
}

/// Each byte is read once, so what is promised, stored and told is of the same bytes.
#[tokio::test]
async fn put_of_memory_that_changes_is_what_was_read() {
    let transfers = TransferFixture::usual().await;
    transfers.rail.changes.store(true, Ordering::SeqCst);
    let done = transfers.put_by_rdma("/data/up", &[], &content(300_000)).await;
    assert_eq!(done.status, 200);
    let stored = transfers.gateway.get("/data/up").await;
    let mut read = content(300_000);
    read[TAKEN_BYTES..].fill(0xff);
    assert!(*stored.body == *read);
    let by_http = transfers.gateway.put("/data/same", &read).await;
    assert_eq!(done.headers["x-amz-rdma-etag"], by_http.headers["etag"]);
    // CRC32 of what the client had before.
    let crc32 = crc32(&content(300_000));
    let promise = [("x-amz-checksum-crc32", crc32.as_str())];
    let broken = transfers.put_by_rdma("/data/broken", &promise, &content(300_000)).await;
    assert_eq!(broken.status, 400);
    assert!(transfers.is_absent("/data/broken").await);
    transfers.rail.changes.store(false, Ordering::SeqCst);
    let kept = transfers.put_by_rdma("/data/kept", &promise, &content(300_000)).await;
    assert_eq!(kept.status, 200);
}
