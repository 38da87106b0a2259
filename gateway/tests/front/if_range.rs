//! `If-Range` over a socket, where nothing is cached: the store is asked, and is not trusted with
//! it.

use crate::gateway_fixture::{Answer, GatewayFixture};
use crate::signing::Request;

const OTHER: &str = "\"0123456789abcdef0123456789abcdef\"";

async fn resume(fixture: &GatewayFixture, range: &str, validator: &str) -> Answer {
    fixture
        .send(
            &Request::new("GET", "/sets/x").header("range", range).header("if-range", validator),
            b"",
        )
        .await
}

#[tokio::test]
async fn a_download_is_resumed_only_with_the_version_it_began_with() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/sets/x", b"first version").await;
    let first = fixture.get("/sets/x").await;
    let (etag, date) = (first.headers["etag"].clone(), first.headers["last-modified"].clone());
    for validator in [&etag, &date] {
        let rest = resume(&fixture, "bytes=6-", validator).await;
        assert_eq!((rest.status, rest.text().as_str()), (206, "version"), "{validator}");
        assert_eq!(rest.headers["content-range"], "bytes 6-12/13");
    }
    fixture.put("/sets/x", b"another, and longer").await;
    for validator in
        [etag.as_str(), OTHER, &format!("W/{etag}"), "Sun, 06 Nov 1994 08:49:37 GMT", "nonsense"]
    {
        for range in ["bytes=6-", "bytes=-3", "bytes=0-0", "bytes=100-"] {
            let whole = resume(&fixture, range, validator).await;
            assert_eq!(
                (whole.status, whole.text().as_str()),
                (200, "another, and longer"),
                "{range} {validator}"
            );
            assert!(!whole.headers.contains_key("content-range"), "{range} {validator}");
        }
    }
    let etag = fixture.get("/sets/x").await.headers["etag"].clone();
    assert_eq!(resume(&fixture, "bytes=-6", &etag).await.text(), "longer");
    assert_eq!(
        resume(&fixture, "bytes=100-", &etag).await.error(),
        (416, "InvalidRange".to_owned())
    );
    // Several ranges are none (S3), whatever the validator says.
    for validator in [etag.as_str(), OTHER] {
        assert_eq!(resume(&fixture, "bytes=0-1,4-5", validator).await.status, 200, "{validator}");
    }
}

#[tokio::test]
async fn other_conditions_come_before_if_range() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/sets/x", b"hello").await;
    let etag = fixture.get("/sets/x").await.headers["etag"].clone();
    let ask = |name: &'static str, value: &str| {
        Request::new("GET", "/sets/x")
            .header("range", "bytes=0-1")
            .header("if-range", OTHER)
            .header(name, value)
    };
    assert_eq!(fixture.send(&ask("if-match", OTHER), b"").await.status, 412);
    assert_eq!(fixture.send(&ask("if-none-match", &etag), b"").await.status, 304);
    let met = fixture.send(&ask("if-match", &etag), b"").await;
    assert_eq!((met.status, met.text().as_str()), (200, "hello"));
}

#[tokio::test]
async fn head_does_not_know_it() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/sets/x", b"hello").await;
    let head = |request: Request| request.header("range", "bytes=0-1");
    let plain = fixture.send(&head(Request::new("HEAD", "/sets/x")), b"").await;
    let with =
        fixture.send(&head(Request::new("HEAD", "/sets/x")).header("if-range", OTHER), b"").await;
    assert_eq!(
        (with.status, with.headers["content-length"].as_str()),
        (plain.status, plain.headers["content-length"].as_str())
    );
}
