//! What clients send and s3s does not take as S3 does: headers that S3 ignores when they make no
//! sense, HEAD with a range, lists in one header, a presigned URL's time. And that mending a
//! request is no way round its signature.

use crate::gateway_fixture::{Answer, GatewayFixture};
use crate::signing::{ACCESS_KEY, Request};

async fn start_fixture() -> GatewayFixture {
    let fixture = GatewayFixture::start().await;
    assert_eq!(fixture.put("/sets/x", b"hello").await.status, 200);
    fixture
}

async fn with(fixture: &GatewayFixture, method: &'static str, headers: &[(&str, &str)]) -> Answer {
    let request = headers.iter().fold(Request::new(method, "/sets/x"), |request, (name, value)| {
        request.header(name, value)
    });
    fixture.send(&request, b"").await
}

#[tokio::test]
async fn an_invalid_range_or_several_ranges_get_the_whole_object() {
    let fixture = start_fixture().await;
    for range in [
        "bytes=3-1",
        "bytes=a-b",
        "bytes=",
        "bytes=-",
        "octets=0-1",
        "0-1",
        "bytes=0-1,3-4",
        "bytes=0-0, -1",
    ] {
        let answer = with(&fixture, "GET", &[("range", range)]).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"), "{range}");
        assert!(!answer.headers.contains_key("content-range"), "{range}");
        let head = with(&fixture, "HEAD", &[("range", range)]).await;
        assert_eq!((head.status, head.headers["content-length"].as_str()), (200, "5"), "{range}");
    }
    let past = with(&fixture, "GET", &[("range", "bytes=99999999999999999999-")]).await;
    assert_eq!(past.error(), (416, "InvalidRange".to_owned()));
    let part = with(&fixture, "GET", &[("range", "bytes=3-99999999999999999999")]).await;
    assert_eq!((part.status, part.text().as_str()), (206, "lo"));
}

#[tokio::test]
async fn a_head_of_a_range_is_206_with_its_length() {
    let fixture = start_fixture().await;
    let head = with(&fixture, "HEAD", &[("range", "bytes=1-2")]).await;
    assert_eq!(head.status, 206);
    assert_eq!(
        (head.headers["content-length"].as_str(), head.headers["content-range"].as_str()),
        ("2", "bytes 1-2/5")
    );
    assert_eq!(with(&fixture, "HEAD", &[]).await.status, 200);
    assert_eq!(with(&fixture, "HEAD", &[("range", "bytes=5-")]).await.status, 416);
}

#[tokio::test]
async fn an_invalid_date_is_ignored_and_an_old_form_is_read() {
    let fixture = start_fixture().await;
    for (name, value, status) in [
        ("if-modified-since", "yesterday", 200),
        ("if-unmodified-since", "yesterday", 200),
        ("if-unmodified-since", "Sunday, 06-Nov-94 08:49:37 GMT", 412),
        ("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT", 412),
    ] {
        assert_eq!(with(&fixture, "GET", &[(name, value)]).await.status, status, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_mended_request_is_one_of_who_signed_it() {
    let fixture = start_fixture().await;
    let odd = || Request::new("GET", "/sets/x").header("range", "bytes=3-1");
    let forged = fixture.send(&odd().by(ACCESS_KEY, "wrong"), b"").await;
    assert_eq!(forged.error(), (403, "SignatureDoesNotMatch".to_owned()));
    let unknown = fixture.send(&odd().by("NOBODY", "wrong"), b"").await;
    assert_eq!(unknown.error(), (403, "InvalidAccessKeyId".to_owned()));
    let host = fixture.host();
    let anonymous = format!(
        "GET /sets/x HTTP/1.1\r\nhost: {host}\r\nrange: bytes=3-1\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(fixture.exchange(&anonymous, b"").await.error(), (403, "AccessDenied".to_owned()));
    // What is presigned binds no header but the host.
    let url = Request::new("GET", "/sets/x")
        .presigned(&host, 60)
        .replace("connection:", "range: bytes=3-1\r\nconnection:");
    let answer = fixture.exchange(&url, b"").await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    let forged = url.replace("X-Amz-Signature=", "X-Amz-Signature=0");
    assert_eq!(fixture.exchange(&forged, b"").await.status, 400);
}

#[tokio::test]
async fn a_mended_listing_keeps_its_query() {
    let fixture = start_fixture().await;
    fixture.put("/sets/y/z", b"hello").await;
    let listing =
        Request::new("GET", "/sets").query("list-type=2&prefix=y%2F").header("range", "bytes=3-1");
    let listed = fixture.send(&listing, b"").await;
    assert_eq!(listed.status, 200);
    assert!(
        listed.text().contains("<Key>y/z</Key>") && !listed.text().contains("<Key>x</Key>"),
        "{}",
        listed.text()
    );
}

#[tokio::test]
async fn a_url_signed_for_more_than_a_week_is_refused() {
    let fixture = start_fixture().await;
    let get = Request::new("GET", "/sets/x");
    let week = fixture.exchange(&get.presigned(&fixture.host(), 604_800), b"").await;
    assert_eq!(week.status, 200);
    let more = fixture.exchange(&get.presigned(&fixture.host(), 604_801), b"").await;
    assert_eq!(more.error(), (400, "AuthorizationQueryParametersError".to_owned()));
}

#[tokio::test]
async fn attributes_are_asked_for_in_one_header() {
    let fixture = start_fixture().await;
    for names in ["ETag,ObjectSize", "ETag , ObjectSize,"] {
        let request = Request::new("GET", "/sets/x")
            .query("attributes=")
            .header("x-amz-object-attributes", names);
        let answer = fixture.send(&request, b"").await;
        let text = answer.text();
        assert_eq!(answer.status, 200, "{names}: {text}");
        assert!(
            text.contains("<ObjectSize>5</ObjectSize>") && text.contains("<ETag>"),
            "{names}: {text}"
        );
        assert!(!text.contains("<StorageClass>"), "{names}: {text}");
    }
}
