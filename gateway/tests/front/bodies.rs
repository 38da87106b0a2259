//! What a client promises of its body, in headers, and what becomes of a body that breaks the
//! promise.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::gateway_fixture::{GatewayFixture, until};
use crate::signing::{Request, sha256};
use verbs3_settings::TimePeriod;

fn put(body: &[u8]) -> Request {
    Request::new("PUT", "/data/key").header("content-length", &body.len().to_string())
}

#[tokio::test]
async fn right_promises_are_kept() {
    let fixture = GatewayFixture::start().await;
    let request = put(b"hello")
        .header("content-md5", "XUFAKrxLKna5cZ2REBfFkg==")
        .header("x-amz-checksum-crc32", "NhCmhg==")
        .payload(&sha256(b"hello"));
    let answer = fixture.send(&request, b"hello").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["etag"], "\"5d41402abc4b2a76b9719d911017c592\"");
    assert_eq!(fixture.get("/data/key").await.body, b"hello");
}

#[tokio::test]
async fn a_broken_promise_stores_nothing_and_says_which() {
    let fixture = GatewayFixture::start().await;
    for (name, value, code) in [
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==", "BadDigest"),
        ("content-md5", "short", "InvalidDigest"),
        ("x-amz-checksum-crc32", "AAAAAA==", "BadDigest"),
        ("x-amz-checksum-sha1", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "BadDigest"),
        ("x-amz-checksum-crc64nvme", "nonsense", "InvalidRequest"),
    ] {
        let answer = fixture.send(&put(b"hello").header(name, value), b"hello").await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{name}");
    }
    let answer = fixture.send(&put(b"hello").payload(&sha256(b"other")), b"hello").await;
    assert_eq!(answer.error(), (400, "XAmzContentSHA256Mismatch".to_owned()));
    assert!(!fixture.visible("data", "key").await);
    assert!(fixture.told().is_empty(), "{:?}", fixture.told());
}

#[tokio::test]
async fn a_body_of_no_bytes_is_verified_and_stored() {
    let fixture = GatewayFixture::start().await;
    let answer = fixture.send(&put(b"").header("x-amz-checksum-crc32", "AAAAAQ=="), b"").await;
    assert_eq!(answer.error(), (400, "BadDigest".to_owned()));
    assert!(!fixture.visible("data", "key").await);
    assert_eq!(fixture.put("/data/key", b"").await.status, 200);
    let answer = fixture.get("/data/key").await;
    assert_eq!((answer.status, answer.headers["content-length"].as_str()), (200, "0"));
    assert_eq!(fixture.told(), ["announce key visible=false", "report key Done"]);
}

#[tokio::test]
async fn a_body_of_unknown_length_is_refused() {
    let fixture = GatewayFixture::start().await;
    let request = Request::new("PUT", "/data/key").header("transfer-encoding", "chunked");
    let answer = fixture.send(&request, b"5\r\nhello\r\n0\r\n\r\n").await;
    assert_eq!(answer.error(), (411, "MissingContentLength".to_owned()));
}

#[tokio::test]
async fn a_client_that_leaves_midway_stores_and_announces_nothing() {
    let fixture = GatewayFixture::start().await;
    let (head, _) = put(&[7; 1_000_000]).signed(&fixture.host());
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&[7; 500_000]).await.unwrap();
    drop(socket);
    until(|| fixture.gateway_metric("requests_in_flight") == 0.0).await;
    assert!(!fixture.visible("data", "key").await);
    assert!(fixture.told().is_empty(), "{:?}", fixture.told());
}

#[tokio::test]
async fn a_body_that_stalls_is_given_up() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.timeouts.body_idle = TimePeriod(std::time::Duration::from_millis(200))
    })
    .await;
    let (head, _) = put(b"hello").signed(&fixture.host());
    let answer = fixture.exchange(&head, b"hel").await;
    assert_eq!(answer.error(), (400, "RequestTimeout".to_owned()));
    assert!(!fixture.visible("data", "key").await);
}

#[tokio::test]
async fn a_document_whose_hash_is_wrong_is_refused() {
    let fixture = GatewayFixture::start().await;
    assert_eq!(fixture.put("/data/key", b"hello").await.status, 200);
    let document = b"<Delete><Object><Key>key</Key></Object></Delete>";
    let request = Request::new("POST", "/data")
        .query("delete=")
        .header("content-length", &document.len().to_string());
    let answer = fixture.send(&request.payload(&sha256(b"other")), document).await;
    assert_eq!(answer.error(), (400, "XAmzContentSHA256Mismatch".to_owned()));
    assert!(fixture.visible("data", "key").await);
}

#[tokio::test]
async fn a_document_whose_digest_is_wrong_is_refused() {
    let fixture = GatewayFixture::start().await;
    assert_eq!(fixture.put("/data/key", b"hello").await.status, 200);
    let document = b"<Delete><Object><Key>key</Key></Object></Delete>";
    let request = Request::new("POST", "/data")
        .query("delete=")
        .header("content-length", &document.len().to_string());
    for (name, value) in
        [("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="), ("x-amz-checksum-crc32", "AAAAAA==")]
    {
        let answer = fixture.send(&request.clone().header(name, value), document).await;
        assert_eq!(answer.error(), (400, "BadDigest".to_owned()), "{name}");
    }
    assert!(fixture.visible("data", "key").await);
    let right = request.header("content-md5", "VUxjCEXWiErKatrg6+J0xA==");
    assert_eq!(fixture.send(&right, document).await.status, 200);
    assert!(!fixture.visible("data", "key").await);
}

#[tokio::test]
async fn a_part_is_verified_and_not_announced() {
    let fixture = GatewayFixture::start().await;
    let created = fixture
        .send(
            &Request::new("POST", "/data/key").query("uploads=").header("content-length", "0"),
            b"",
        )
        .await;
    let text = created.text();
    let upload = text.split_once("<UploadId>").unwrap().1.split_once("</UploadId>").unwrap().0;
    let query = format!("partNumber=1&uploadId={upload}");
    let part = put(b"hello").query(&query);
    let refused =
        fixture.send(&part.clone().header("x-amz-checksum-crc32", "AAAAAA=="), b"hello").await;
    assert_eq!(refused.error(), (400, "BadDigest".to_owned()));
    assert_eq!(fixture.send(&part, b"hello").await.status, 200);
    assert!(fixture.told().is_empty(), "{:?}", fixture.told());
    let document = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"5d41402abc4b2a76b9719d911017c592\"</ETag></Part></CompleteMultipartUpload>";
    let complete = Request::new("POST", "/data/key").query(&format!("uploadId={upload}"));
    let answer = fixture
        .send(&complete.header("content-length", &document.len().to_string()), document)
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(fixture.told(), ["announce key visible=false", "report key Done"]);
    assert_eq!(fixture.get("/data/key").await.body, b"hello");
}

/// s3s knows neither algorithm; what nobody can verify is not acknowledged.
#[tokio::test]
async fn checksums_of_newer_algorithms_are_verified_or_refused() {
    let fixture = GatewayFixture::start().await;
    let sha512 =
        "m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDEZjR1wuXDre9G9zvN7AQw==";
    for (name, value) in
        [("x-amz-checksum-sha512", sha512), ("x-amz-checksum-md5", "XUFAKrxLKna5cZ2REBfFkg==")]
    {
        let wrong = fixture.send(&put(b"hellO").header(name, value), b"hellO").await;
        assert_eq!(wrong.error(), (400, "BadDigest".to_owned()), "{name}");
        assert!(!fixture.visible("data", "key").await);
        let right = fixture.send(&put(b"hello").header(name, value), b"hello").await;
        assert_eq!(right.status, 200, "{name}: {}", right.text());
        assert_eq!(fixture.send(&Request::new("DELETE", "/data/key"), b"").await.status, 204);
    }
    let unknown = fixture
        .send(&put(b"hello").header("x-amz-checksum-xxhash64", "AAAAAAAAAAA="), b"hello")
        .await;
    assert_eq!(unknown.error(), (501, "NotImplemented".to_owned()));
    assert!(!fixture.visible("data", "key").await);
}
