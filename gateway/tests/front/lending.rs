//! Lent memory at a real gateway: proofs, rights, and answers that are those of HTTP.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use verbs3_gateway::auth::IdentityStore;
use verbs3_lending_client::{
    ClientLendingError, LendingClient, LendingClientOptions, LentAnswer, LentReadMethod,
    LentReadRequest,
};
use verbs3_lending_protocol::{
    IdentityClaim, LendingHello, LendingRefusal, LendingVerdict, ProofText,
};

use crate::gateway_fixture::{Answer, GatewayFixture, until};
use crate::identities::rules;
use crate::signing::{ACCESS_KEY, Request, SECRET_KEY, sha256, sign_scope};

fn options(socket: &Path, access_key: &str, secret_key: &str) -> LendingClientOptions {
    LendingClientOptions {
        socket: socket.to_owned(),
        access_key: access_key.to_owned(),
        secret_key: secret_key.to_owned(),
        region: "us-east-1".to_owned(),
        memory_bytes: 8 << 20,
        reads_max: 16,
        page_loans: 64,
        poll_for: Duration::from_micros(100),
        reconnect_for: Duration::ZERO,
        read_for: Duration::from_secs(60),
        pinner: None,
    }
}

pub async fn connect_lender(
    socket: &Path,
    access_key: &str,
    secret_key: &str,
) -> Result<Arc<LendingClient>, ClientLendingError> {
    let options = options(socket, access_key, secret_key);
    tokio::task::spawn_blocking(move || LendingClient::connect(options)).await.unwrap()
}

async fn read(
    client: &Arc<LendingClient>,
    request: LentReadRequest,
) -> Result<LentAnswer, ClientLendingError> {
    let client = client.clone();
    tokio::task::spawn_blocking(move || client.read_object(&request, 4096, || Ok(())))
        .await
        .unwrap()
}

fn asked(method: LentReadMethod, path: &str, headers: &[(&str, &str)]) -> LentReadRequest {
    let (bucket, key) = path[1..].split_once('/').unwrap();
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    LentReadRequest {
        method,
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        headers: headers.iter().map(own).collect(),
    }
}

/// What two answers have to have in common.
fn comparable(status: u16, headers: BTreeMap<String, String>, body: &[u8]) -> String {
    // They name the moment, the request, and the connection.
    let own = ["date", "x-amz-request-id", "x-amz-id-2", "connection", "transfer-encoding"];
    let headers: BTreeMap<_, _> =
        headers.into_iter().filter(|(name, _)| !own.contains(&&**name)).collect();
    let text = String::from_utf8_lossy(body);
    let before_id = text.split("<RequestId>").next().unwrap_or_default();
    format!("{status} {headers:?} {before_id}")
}

pub fn comparable_http(answer: &Answer) -> String {
    comparable(answer.status, answer.headers.clone().into_iter().collect(), &answer.body)
}

pub fn comparable_lent(answer: &LentAnswer) -> String {
    let headers = answer.head.headers.iter();
    let headers = headers
        .map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned()))
        .collect();
    comparable(answer.head.status, headers, &answer.body.to_vec())
}

pub async fn start_lending(
    folder: &Path,
    identities: Option<Arc<IdentityStore>>,
) -> (GatewayFixture, PathBuf) {
    let socket = folder.join("gateway.sock");
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.lending.socket = Some(socket.clone());
        if let Some(identities) = identities {
            setup.identities = identities;
        }
    });
    (fixture.await, socket)
}

/// A fixture whose identities file lets `AKOTHER` read `mine/` of the mount `data`.
async fn start_fixture_with_reader_of_mine(
    folder: &Path,
    file: &Path,
) -> (GatewayFixture, PathBuf) {
    let mine = "[[identity.allow]]\nmount = \"data\"\nprefix = \"mine/\"\nrights = [\"read\"]\n";
    rules(file, mine);
    let identities = IdentityStore::load_file(file).unwrap();
    start_lending(folder, Some(identities)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_comparable_http() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, socket) = start_lending(folder.path(), None).await;
    let body: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    fixture.put("/data/long", &body).await;
    fixture.put("/data/short", b"hello").await;
    fixture.put("/data/empty", b"").await;
    fixture.put("/data/a%20b/%C3%A9%3F%26", b"odd").await;
    fixture.put("/sets/inside", b"of a prefix mount").await;
    fixture.put("/raw/uncached", b"of an uncached mount").await;
    let etag = fixture.get("/data/short").await.headers["etag"].clone();
    let client = connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.unwrap();
    let odd = "/data/a b/\u{e9}?&";
    let cases: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("/data/long", vec![]),
        ("/data/long", vec![("range", "bytes=100000-100099")]),
        ("/data/long", vec![("range", "bytes=-7")]),
        ("/data/long", vec![("range", "bytes=199990-")]),
        ("/data/long", vec![("range", "bytes=200000-")]),
        ("/data/long", vec![("range", "bytes=nonsense")]),
        ("/data/short", vec![("if-match", &etag)]),
        ("/data/short", vec![("if-match", "\"another\"")]),
        ("/data/short", vec![("if-none-match", &etag)]),
        ("/data/short", vec![("range", "bytes=1-2"), ("if-range", "\"another\"")]),
        ("/data/short", vec![("x-amz-checksum-mode", "ENABLED")]),
        ("/data/short", vec![("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT")]),
        ("/data/empty", vec![]),
        ("/data/missing", vec![]),
        ("/nowhere/x", vec![]),
        ("/Not_A_Bucket/x", vec![]),
        ("/sets/inside", vec![]),
        ("/raw/uncached", vec![]),
        (odd, vec![]),
    ];
    for (path, headers) in cases {
        for (method, name) in [(LentReadMethod::Get, "GET"), (LentReadMethod::Head, "HEAD")] {
            let sent = if path == odd { "/data/a%20b/%C3%A9%3F%26" } else { path };
            let mut request = Request::new(name, sent);
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            let over_http = comparable_http(&fixture.send(&request, b"").await);
            let lent =
                comparable_lent(&read(&client, asked(method, path, &headers)).await.unwrap());
            assert_eq!(lent, over_http, "{name} {path} {headers:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_read_that_http_would_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identities.toml");
    let (fixture, socket) = start_fixture_with_reader_of_mine(folder.path(), &file).await;
    fixture.put("/data/mine/x", b"for the other").await;
    fixture.put("/data/secret/x", b"not for the other").await;
    let client = connect_lender(&socket, "AKOTHER", "other-secret").await.unwrap();
    let get = |path: &str| asked(LentReadMethod::Get, path, &[]);
    let answer = read(&client, get("/data/mine/x")).await.unwrap();
    assert_eq!((answer.head.status, answer.body.to_vec()), (200, b"for the other".to_vec()));
    // Segments of dots are a part of the key, which is not there.
    let refused = [("/data/secret/x", 403), ("/data/mine/../secret/x", 404), ("/sets/mine/x", 403)];
    for (path, status) in refused {
        let answer = read(&client, get(path)).await.unwrap();
        assert_eq!(answer.head.status, status, "{path}");
        let body = String::from_utf8_lossy(&answer.body.to_vec()).into_owned();
        assert!(!body.contains("not for the other"), "{path}: {body}");
    }
    // Its rule is gone, and then its key, while it is connected.
    rules(&file, "");
    for _ in 0..6000 {
        if read(&client, get("/data/mine/x")).await.unwrap().head.status == 403 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(read(&client, get("/data/mine/x")).await.unwrap().head.status, 403);
    let one = "[[identity]]\naccess_key = \"AKOWNER\"\nsecret_key = \"owner-secret\"\n";
    std::fs::write(&file, one).unwrap();
    let gone = loop {
        match read(&client, get("/data/mine/x")).await {
            Ok(answer) => assert_eq!(answer.head.status, 403),
            Err(error) => break error,
        }
    };
    let is_unknown =
        matches!(gone, ClientLendingError::Refused { refusal: LendingRefusal::UnknownKey, .. });
    assert!(is_unknown, "{gone}");
    let metric = |name: &str| fixture.metrics().sum_shown(name, &[]);
    until(|| metric("verbs3_lending_clients") == Some(0.0)).await;
    until(|| metric("verbs3_lending_memory_bytes") == Some(0.0)).await;
}

/// Asks for heads by lists, and returns them as they can be compared.
async fn heads(client: &Arc<LendingClient>, paths: &[&str]) -> Vec<String> {
    let names = paths.iter().map(|path| path[1..].split_once('/').unwrap());
    let objects: Vec<_> = names.map(|(bucket, key)| (bucket.to_owned(), key.to_owned())).collect();
    let client = client.clone();
    let asking = move || {
        let heads = client.head_objects(&objects, || Ok::<_, ClientLendingError>(()))?;
        let statuses = client.head_statuses(&objects, || Ok::<_, ClientLendingError>(()))?;
        let told: Vec<u16> = heads.iter().map(|head| head.status).collect();
        assert_eq!(statuses, told);
        Ok::<_, ClientLendingError>(heads)
    };
    let heads = tokio::task::spawn_blocking(asking).await.unwrap().unwrap();
    let told = |name: String, value: Vec<u8>| (name, String::from_utf8_lossy(&value).into_owned());
    heads
        .into_iter()
        .map(|head| {
            let headers = head.headers.into_iter().map(|(name, value)| told(name, value));
            comparable(head.status, headers.collect(), b"")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_heads_are_answered_like_heads_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, socket) = start_lending(folder.path(), None).await;
    fixture.put("/data/short", b"hello").await;
    fixture.put("/data/empty", b"").await;
    fixture.put("/data/a%20b/%C3%A9%3F%26", b"odd").await;
    fixture.put("/sets/inside", b"of a prefix mount").await;
    fixture.put("/raw/uncached", b"of an uncached mount").await;
    let client = connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.unwrap();
    let (odd, sent) = ("/data/a b/\u{e9}?&", "/data/a%20b/%C3%A9%3F%26");
    let paths = [
        "/data/short",
        "/data/missing",
        "/data/empty",
        "/data/short",
        "/nowhere/x",
        "/Not_A_Bucket/x",
        "/sets/inside",
        "/sets/missing",
        "/raw/uncached",
        "/data/../short",
        odd,
    ];
    // This fixture has no tier: each name goes its own way. With one: `read/tests/head_list.rs`.
    for round in 0..2 {
        let listed = heads(&client, &paths).await;
        for (path, lent) in paths.iter().zip(listed) {
            let request = Request::new("HEAD", if *path == odd { sent } else { path });
            let over_http = comparable_http(&fixture.send(&request, b"").await);
            assert_eq!(lent, over_http, "{path}, round {round}");
        }
    }
    // A write shows at once.
    fixture.put("/data/short", b"another").await;
    fixture.put("/data/missing", b"no longer").await;
    for (path, lent) in paths[..2].iter().zip(heads(&client, &paths[..2]).await) {
        assert!(lent.starts_with("200 "), "{path}: {lent}");
        assert_eq!(
            lent,
            comparable_http(&fixture.send(&Request::new("HEAD", path), b"").await),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_tells_nothing_that_a_head_would_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identities.toml");
    let (fixture, socket) = start_fixture_with_reader_of_mine(folder.path(), &file).await;
    for path in ["/data/mine/x", "/data/secret/x", "/sets/mine/x"] {
        fixture.put(path, b"x").await;
        // Homes know it from memory.
        fixture.get(path).await;
    }
    let client = connect_lender(&socket, "AKOTHER", "other-secret").await.unwrap();
    let paths =
        ["/data/secret/x", "/data/mine/x", "/data/secret/y", "/data/mine/y", "/sets/mine/x"];
    let told = heads(&client, &paths).await;
    let statuses: Vec<&str> = told.iter().map(|head| &head[..3]).collect();
    assert_eq!(statuses, ["403", "200", "403", "404", "403"]);
    for refused in [&told[0], &told[2], &told[4]] {
        assert!(!refused.contains("etag") && !refused.contains("last-modified"), "{refused}");
    }
}

/// A claim as a thief would send it.
fn claim(nonce: &[u8; 32], path: &str, change: impl FnOnce(&mut Request)) -> IdentityClaim {
    let mut request = Request::new("GET", "/");
    change(&mut request);
    let access_key = &*request.access_key;
    let text = ProofText { nonce, socket_path: path, access_key }.canonical_text();
    let signed = sign_scope(&request, &sha256(text.as_bytes()));
    IdentityClaim {
        access_key: access_key.to_owned(),
        stamp: signed.stamp,
        scope: signed.scope,
        signature: signed.signature,
    }
}

fn try_claim(
    socket: &Path,
    claim: impl FnOnce(&[u8; 32]) -> IdentityClaim,
) -> Result<(), LendingRefusal> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let mut hello = [0; LendingHello::BYTES];
    stream.read_exact(&mut hello).unwrap();
    let hello = LendingHello::decode_hello(&hello).unwrap();
    stream.write_all(&claim(&hello.nonce).encode_claim().unwrap()).unwrap();
    let mut verdict = [0; LendingVerdict::BYTES];
    stream.read_exact(&mut verdict).unwrap();
    LendingVerdict::decode_verdict(verdict).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_is_of_one_connection_one_socket_and_now() {
    let folder = tempfile::tempdir().unwrap();
    let (_fixture, socket) = start_lending(folder.path(), None).await;
    tokio::task::spawn_blocking(move || {
        let path = socket.to_str().unwrap();
        let mut stolen = None;
        let good = try_claim(&socket, |nonce| {
            let claim = claim(nonce, path, |_| ());
            stolen = Some(claim.clone());
            claim
        });
        assert_eq!(good, Ok(()));
        let stolen = stolen.unwrap();
        assert_eq!(try_claim(&socket, |_| stolen), Err(LendingRefusal::Signature), "replayed");
        let other = |nonce: &[u8; 32]| claim(nonce, "/tmp/another.sock", |_| ());
        assert_eq!(try_claim(&socket, other), Err(LendingRefusal::Signature));
        let wrong =
            |nonce: &[u8; 32]| claim(nonce, path, |request| request.secret_key = "wrong".into());
        assert_eq!(try_claim(&socket, wrong), Err(LendingRefusal::Signature));
        let nobody =
            |nonce: &[u8; 32]| claim(nonce, path, |request| request.access_key = "NOBODY".into());
        assert_eq!(try_claim(&socket, nobody), Err(LendingRefusal::UnknownKey));
        let early = |nonce: &[u8; 32]| {
            claim(nonce, path, |request| request.time -= time::Duration::minutes(20))
        };
        assert_eq!(try_claim(&socket, early), Err(LendingRefusal::Clock));
        let of_sts = |nonce: &[u8; 32]| claim(nonce, path, |request| request.service = "sts");
        assert_eq!(try_claim(&socket, of_sts), Err(LendingRefusal::Signature));
        let empty = |nonce: &[u8; 32]| IdentityClaim {
            signature: String::new(),
            ..claim(nonce, path, |_| ())
        };
        assert_eq!(try_claim(&socket, empty), Err(LendingRefusal::Signature));
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_beyond_the_bound_are_refused_and_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.lending.socket = Some(socket.clone());
        setup.settings.lending.clients_max = 1;
    });
    let _fixture = fixture.await;
    let first = connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.unwrap();
    let second = connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.unwrap_err();
    let is_full =
        matches!(second, ClientLendingError::Refused { refusal: LendingRefusal::Clients, .. });
    assert!(is_full, "{second}");
    drop(first);
    while connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.is_err() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lends_gives_no_way_to_connections_comparable_http() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.lending.socket = Some(socket.clone());
        setup.settings.limits.connections_max = 1;
    })
    .await;
    assert_eq!(fixture.put("/data/x", b"hello").await.status, 200);
    // Idle for longer than the connection that holds the one place.
    let lender = connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (head, _) = Request::new("GET", "/data/x").signed(&fixture.host());
    let mut idle = tokio::net::TcpStream::connect(fixture.address).await.unwrap();
    let staying = head.replace("connection: close\r\n", "");
    idle.write_all(staying.as_bytes()).await.unwrap();
    idle.read_exact(&mut [0; 12]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut newcomer = tokio::net::TcpStream::connect(fixture.address).await.unwrap();
    newcomer.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(Answer::read(newcomer).await.status, 200, "no place got free");
    let answer = read(&lender, asked(LentReadMethod::Get, "/data/x", &[])).await.unwrap();
    assert_eq!(answer.body.to_vec(), b"hello");
}
