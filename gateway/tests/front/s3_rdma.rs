//! Clients that ask for payloads by RDMA, at a gateway that moves none so: what they are told has
//! to be exact, since they go by it.

use crate::gateway_fixture::{Answer, GatewayFixture};
use crate::signing::Request;

/// A token of `hipobj-rc-v2` with the place of one transfer, as its clients write it.
fn token() -> String {
    format!("{}:{:016x}:{:016x}", "01".repeat(44), 0x7f00_0000_u64, 4096)
}

fn with_token(method: &'static str, path: &str, token: &str) -> Request {
    Request::new(method, path).header("x-amz-rdma-token", token)
}

fn reply(answer: &Answer) -> Option<&str> {
    answer.headers.get("x-amz-rdma-reply").map(String::as_str)
}

#[tokio::test]
async fn get_with_a_token_is_answered_with_its_body_and_501() {
    let gateway = GatewayFixture::start().await;
    assert_eq!(gateway.put("/data/k", b"0123456789").await.status, 200);
    for token in [&token(), "no token of anybody", "rc:1:2:3:4", "base:10:ofi1:tcp:00:1"] {
        let whole = gateway.send(&with_token("GET", "/data/k", token), b"").await;
        assert_eq!((whole.status, whole.text().as_str()), (200, "0123456789"), "{token}");
        assert_eq!(reply(&whole), Some("501"), "{token}");
        assert!(!whole.headers.contains_key("x-amz-rdma-bytes-transferred"));
        let part = with_token("GET", "/data/k", token).header("range", "bytes=2-4");
        let part = gateway.send(&part, b"").await;
        assert_eq!((part.status, part.text().as_str(), reply(&part)), (206, "234", Some("501")));
    }
    assert_eq!(gateway.gateway_metric("rdma_declines_total"), 8.0);
    let missing = gateway.send(&with_token("GET", "/data/none", &token()), b"").await;
    assert_eq!((missing.status, reply(&missing)), (404, Some("501")));
    let plain = gateway.get("/data/k").await;
    assert_eq!((plain.status, reply(&plain)), (200, None));
}

/// Its payload would have been read from the client's memory. Taken as it stands it would be an
/// object of no bytes, acknowledged.
#[tokio::test]
async fn put_with_a_token_is_refused_and_stores_nothing() {
    let gateway = GatewayFixture::start().await;
    let paths = [("/data/k", ""), ("/data/k", "partNumber=1&uploadId=u")];
    for (path, query) in paths {
        let put = with_token("PUT", path, &token()).query(query).header("content-length", "0");
        let refused = gateway.send(&put, b"").await;
        assert_eq!(refused.error(), (501, "NotImplemented".into()), "{query}");
        assert_eq!(reply(&refused), Some("501"));
        assert!(!refused.headers.contains_key("etag"), "an ETag means that it is stored");
    }
    assert!(!gateway.visible("data", "k").await);
    assert!(gateway.told().is_empty(), "no home was told of a write");
}

#[tokio::test]
async fn token_gives_no_right_and_has_to_be_signed() {
    let gateway = GatewayFixture::start().await;
    assert_eq!(gateway.put("/data/k", b"0123456789").await.status, 200);
    let stranger = with_token("GET", "/data/k", &token()).by("AKOWNER", "wrong");
    let refused = gateway.send(&stranger, b"").await;
    assert_eq!(refused.error(), (403, "SignatureDoesNotMatch".into()));
    let (head, _) = Request::new("GET", "/data/k").signed(&gateway.host());
    let added = head.replacen("\r\n", &format!("\r\nx-amz-rdma-token: {}\r\n", token()), 1);
    assert_eq!(gateway.exchange(&added, b"").await.error(), (403, "AccessDenied".into()));
}

/// Clients of the dialect take this marker alone as leave to go on over HTTP.
#[tokio::test]
async fn endpoints_of_the_dialect_say_that_it_is_unsupported() {
    let gateway = GatewayFixture::start().await;
    for step in ["prepare", "ready", "cancel", "more"] {
        let ask = Request::new("POST", &format!("/.hipobj-rc/{step}"))
            .header("content-length", "0")
            .header("x-amz-rdma-protocol", "hipobj-rc-v2")
            .header("x-amz-rdma-token", &token());
        let answer = gateway.send(&ask, b"").await;
        assert_eq!((answer.status, answer.body.len()), (501, 0), "{step}");
        assert_eq!(answer.headers["x-amz-rdma-protocol-status"], "unsupported");
    }
    let other = gateway.get("/.hipobj-rc/prepare").await;
    assert!(!other.headers.contains_key("x-amz-rdma-protocol-status"), "only what is posted");
}
