//! Writes from lent memory at a real gateway: what is stored, refused and told is as over HTTP.

use std::path::Path;
use std::sync::Arc;

use verbs3_gateway::auth::IdentityStore;
use verbs3_lending_client::{
    ClientLendingError, LendingClient, LentPart, LentWriteRequest, WriteWait,
};

use crate::gateway_fixture::GatewayFixture;
use crate::identities::rules;
use crate::lending::{comparable_http, comparable_lent, connect_lender, start_lending};
use crate::signing::{ACCESS_KEY, Request, SECRET_KEY};

const BODY: &[u8] = b"what is written";
const CRC32: &str = "ZDewnA==";
const MD5: &str = "SjCjzCqnwdLrLY1p4Q5Gkg==";

/// Path, headers, body, and the status of its answer.
type WriteCase<'a> = (&'a str, Vec<(&'a str, &'a str)>, &'a [u8], u16);

fn put(path: &str, headers: &[(&str, &str)]) -> LentWriteRequest {
    let (bucket, key) = path[1..].split_once('/').unwrap();
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    let headers = headers.iter().map(own).collect();
    LentWriteRequest { bucket: bucket.to_owned(), key: key.to_owned(), part: None, headers }
}

/// Writes, and returns the status and what can be compared of the answer.
async fn write(
    client: &Arc<LendingClient>,
    request: LentWriteRequest,
    body: &[u8],
) -> (u16, String) {
    let (client, body) = (client.clone(), body.to_vec());
    let writing = move || {
        let mut writer = client
            .begin_write(body.len() as u64, WriteWait::Long, || Ok::<_, ClientLendingError>(()))?;
        writer.append_bytes(&body)?;
        writer.finish_write(&request, || Ok::<_, ClientLendingError>(()))
    };
    let answer = tokio::task::spawn_blocking(writing).await.unwrap().unwrap();
    (answer.head.status, comparable_lent(&answer))
}

/// Writes over HTTP, and returns the same.
async fn write_by_http(
    fixture: &GatewayFixture,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (u16, String) {
    let length = body.len().to_string();
    let begun = Request::new("PUT", path).header("content-length", &length);
    let request = headers.iter().fold(begun, |request, (name, value)| request.header(name, value));
    let answer = fixture.send(&request, body).await;
    (answer.status, comparable_http(&answer))
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_answered_and_stored_as_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, socket) = start_lending(folder.path(), None).await;
    let client = connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.unwrap();
    let long: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    fixture.put("/data/there", b"before").await;
    let cases: Vec<WriteCase<'_>> = vec![
        ("/data/plain", vec![], BODY, 200),
        ("/data/empty", vec![], b"", 200),
        ("/data/long", vec![], &long, 200),
        ("/data/typed", vec![("content-type", "a/b"), ("x-amz-meta-run", "7")], BODY, 200),
        ("/data/summed", vec![("x-amz-checksum-crc32", CRC32)], BODY, 200),
        ("/data/digested", vec![("content-md5", MD5)], BODY, 200),
        ("/data/wrong-sum", vec![("x-amz-checksum-crc32", CRC32)], b"something else", 400),
        ("/data/wrong-md5", vec![("content-md5", MD5)], b"something else", 400),
        ("/data/no-sum", vec![("x-amz-checksum-crc32", "short")], BODY, 400),
        ("/data/there", vec![("if-none-match", "*")], BODY, 412),
        ("/data/there", vec![("if-match", "\"another\"")], BODY, 412),
        ("/nowhere/key", vec![], BODY, 404),
        ("/sets/of-a-prefix", vec![], BODY, 200),
        ("/raw/uncached", vec![], BODY, 200),
    ];
    for (path, headers, body, status) in cases {
        let lent = write(&client, put(path, &headers), body).await;
        let stored = fixture.get(path).await;
        let by_http = write_by_http(&fixture, path, &headers, body).await;
        assert_eq!(lent, by_http, "{path} {headers:?}");
        assert_eq!(lent.0, status, "{path} {headers:?}");
        match status {
            200 => assert_eq!((stored.status, &*stored.body), (200, body), "{path}"),
            412 => assert_eq!(&*stored.body, b"before", "{path}"),
            _ => assert_eq!(stored.status, 404, "{path}: nothing was stored"),
        }
    }
    // Names stay names.
    let odd = "/data/a b/\u{e9}?acl&";
    assert_eq!(write(&client, put(odd, &[]), BODY).await.0, 200);
    assert_eq!(&*fixture.get("/data/a%20b/%C3%A9%3Facl%26").await.body, BODY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_seen_by_the_next_read_and_told_to_the_homes() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, socket) = start_lending(folder.path(), None).await;
    let client = connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.unwrap();
    for round in 0..20 {
        let body = format!("round {round}");
        assert_eq!(write(&client, put("/data/key", &[]), body.as_bytes()).await.0, 200);
        assert_eq!(fixture.get("/data/key").await.text(), body);
    }
    let by_lent = fixture.told();
    for round in 0..20 {
        fixture.put("/data/key", format!("round {round}").as_bytes()).await;
        fixture.get("/data/key").await;
    }
    let all = fixture.told();
    assert!(!by_lent.is_empty(), "homes are told");
    assert_eq!(all.len(), 2 * by_lent.len(), "as often as over HTTP");
    let bytes_in = fixture.gateway_metric("body_bytes_received_total");
    assert_eq!(bytes_in, 2.0 * (10.0 * 7.0 + 10.0 * 8.0));
    assert_eq!(fixture.metrics().sum_shown("verbs3_lending_bytes_taken_total", &[]), Some(150.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_an_upload_become_its_object() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, socket) = start_lending(folder.path(), None).await;
    let client = connect_lender(&socket, ACCESS_KEY, SECRET_KEY).await.unwrap();
    let begin = Request::new("POST", "/data/big").query("uploads=").header("content-length", "0");
    let begun = fixture.send(&begin, b"").await.text();
    let upload_id = begun.split("<UploadId>").nth(1).unwrap().split("</UploadId>").next().unwrap();
    let parts = [vec![1_u8; 5 << 20], vec![2; 1000]];
    let mut document = String::from("<CompleteMultipartUpload>");
    for (number, part) in (1..).zip(&parts) {
        let named = LentPart { upload_id: upload_id.to_owned(), number };
        let request = LentWriteRequest { part: Some(named), ..put("/data/big", &[]) };
        let (status, answer) = write(&client, request, part).await;
        assert_eq!(status, 200, "{answer}");
        let etag = answer.split("\"etag\": \"").nth(1).unwrap().split("\", ").next().unwrap();
        let etag = etag.trim_matches(['\\', '"', '}']);
        let listed = format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
        document += &listed;
    }
    document += "</CompleteMultipartUpload>";
    let complete = Request::new("POST", "/data/big")
        .query(&format!("uploadId={upload_id}"))
        .header("content-length", &document.len().to_string());
    let completed = fixture.send(&complete, document.as_bytes()).await;
    assert_eq!(completed.status, 200, "{}", completed.text());
    assert_eq!(&*fixture.get("/data/big").await.body, parts.concat());
    // An upload's name is nothing but a name.
    let named = LentPart { upload_id: "x&acl&versionId=1".to_owned(), number: 1 };
    let request = LentWriteRequest { part: Some(named), ..put("/data/big", &[]) };
    let (status, answer) = write(&client, request, BODY).await;
    assert_eq!(status, 404, "{answer}");
    assert!(answer.contains("NoSuchUpload"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_that_http_would_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identities.toml");
    rules(&file, &rule("read"));
    let identities = IdentityStore::load_file(&file).unwrap();
    let (fixture, socket) = start_lending(folder.path(), Some(identities)).await;
    fixture.put("/data/mine/x", b"before").await;
    let client = connect_lender(&socket, "AKOTHER", "other-secret").await.unwrap();
    for path in ["/data/mine/x", "/data/mine/new", "/data/other", "/sets/mine/x"] {
        let (status, answer) = write(&client, put(path, &[]), BODY).await;
        assert_eq!(status, 403, "{answer}");
        assert!(answer.contains("AccessDenied"), "{answer}");
    }
    assert_eq!(fixture.get("/data/mine/x").await.text(), "before");
    assert_eq!(fixture.get("/data/mine/new").await.status, 404);
    // It gets the right while it is connected, for its prefix alone.
    allow_writes(&file, &client).await;
    assert_eq!(write(&client, put("/data/other", &[]), BODY).await.0, 403);
    assert_eq!(fixture.get("/data/mine/new").await.body, BODY);
}

fn rule(right: &str) -> String {
    format!("[[identity.allow]]\nmount = \"data\"\nprefix = \"mine/\"\nrights = [\"{right}\"]\n")
}

async fn allow_writes(file: &Path, client: &Arc<LendingClient>) {
    rules(file, &rule("write"));
    for _ in 0..6000 {
        if write(client, put("/data/mine/new", &[]), BODY).await.0 == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("its rule has not come within 60 s");
}
