//! What nobody has signed: headers that are slipped into a signed request, second signatures,
//! scopes of other services. All of it by raw sockets, and each time what was to be changed is
//! looked at afterwards.

use crate::gateway_fixture::{Answer, GatewayFixture};
use crate::signing::{ACCESS_KEY, Request, sha256};

/// The head with headers more that its signer knew nothing of.
fn slipped(head: &str, headers: &str) -> String {
    head.replace("connection: close\r\n", &format!("{headers}connection: close\r\n"))
}

fn names(answer: &Answer) -> String {
    let text = answer.text();
    let found = text.split_once("<HeadersNotSigned>").and_then(|(_, rest)| rest.split_once('<'));
    found.map_or_else(String::new, |(names, _)| names.to_owned())
}

/// Both ways to sign a request with an empty body.
fn heads(fixture: &GatewayFixture, method: &'static str, path: &str) -> [String; 2] {
    let request = Request::new(method, path);
    let by_header = if method == "PUT" {
        request.clone().header("content-length", "0")
    } else {
        request.clone()
    };
    let by_url = request.presigned(&fixture.host(), 60);
    let by_url = if method == "PUT" { slipped(&by_url, "content-length: 0\r\n") } else { by_url };
    [by_header.signed(&fixture.host()).0, by_url]
}

#[tokio::test]
async fn a_copy_source_that_was_not_signed_copies_nothing() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/secret", b"hush").await;
    let before = fixture.told().len();
    for head in heads(&fixture, "PUT", "/data/out") {
        let answer =
            fixture.exchange(&slipped(&head, "x-amz-copy-source: data/secret\r\n"), b"").await;
        assert_eq!(answer.error(), (403, "AccessDenied".to_owned()), "{head}");
        assert_eq!(names(&answer), "x-amz-copy-source", "{}", answer.text());
        assert!(
            answer
                .text()
                .contains("There were headers present in the request which were not signed")
        );
    }
    assert!(!fixture.visible("data", "out").await);
    assert_eq!(fixture.told().len(), before, "a home was told of it");
    let text = fixture.metrics_text();
    assert!(text.contains("verbs3_gateway_denied_total{reason=\"unsigned_header\"} 2"), "{text}");
    assert!(!text.contains("reason=\"expired\""), "counted twice");
}

#[tokio::test]
async fn no_amz_header_is_obeyed_unsigned_and_all_are_named() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    for (method, headers, wanted) in [
        (
            "DELETE",
            "x-amz-bypass-governance-retention: true\r\n",
            "x-amz-bypass-governance-retention",
        ),
        ("PUT", "X-Amz-Acl: public-read\r\nx-amz-tagging: a=b\r\n", "x-amz-acl, x-amz-tagging"),
        ("PUT", "x-amz-object-lock-legal-hold: ON\r\n", "x-amz-object-lock-legal-hold"),
        ("PUT", "x-amz-server-side-encryption: AES256\r\n", "x-amz-server-side-encryption"),
        ("GET", "x-amz-security-token: t\r\n", "x-amz-security-token"),
        ("GET", "range: bytes=0-1,3-4\r\nx-amz-checksum-mode: ENABLED\r\n", "x-amz-checksum-mode"),
    ] {
        for head in heads(&fixture, method, "/data/x") {
            let answer = fixture.exchange(&slipped(&head, headers), b"").await;
            assert_eq!(
                (answer.error(), names(&answer)),
                ((403, "AccessDenied".to_owned()), wanted.to_owned()),
                "{head}"
            );
        }
    }
    assert_eq!(fixture.get("/data/x").await.body, b"hello");
}

#[tokio::test]
async fn the_host_must_be_signed() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    for head in heads(&fixture, "GET", "/data/x") {
        let bare = head
            .replace("SignedHeaders=host;", "SignedHeaders=")
            .replace("SignedHeaders=host", "SignedHeaders=");
        let answer = fixture.exchange(&bare, b"").await;
        assert_eq!(
            (answer.error(), names(&answer).as_str()),
            ((403, "AccessDenied".to_owned()), "host"),
            "{bare}"
        );
    }
    let [head, _] = heads(&fixture, "GET", "/data/x");
    let answer = fixture.exchange(&slipped(&head, "host: data.s3.example.com\r\n"), b"").await;
    assert_eq!(answer.error(), (400, "InvalidRequest".to_owned()));
    let absolute = head.replacen("GET /data/x", "GET http://data.s3.example.com/data/x", 1);
    assert_eq!(fixture.exchange(&absolute, b"").await.error(), (400, "InvalidRequest".to_owned()));
}

#[tokio::test]
async fn what_sdks_and_proxies_leave_unsigned_passes() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let added = "x-amzn-trace-id: Root=1\r\nuser-agent: a\r\namz-sdk-invocation-id: 1\r\nx-forwarded-for: 10.0.0.1\r\n\
                 accept-encoding: identity\r\nif-none-match: \"a\"\r\n";
    for head in heads(&fixture, "GET", "/data/x") {
        assert_eq!(fixture.exchange(&slipped(&head, added), b"").await.body, b"hello", "{head}");
    }
    // The hash of the payload comes with URLs by some clients, and is then the body's bound.
    for (body, status) in [(&b"right"[..], 200), (b"wrong", 400)] {
        let head = Request::new("PUT", "/data/y").presigned(&fixture.host(), 60);
        let hash = format!("content-length: 5\r\nx-amz-content-sha256: {}\r\n", sha256(b"right"));
        assert_eq!(fixture.exchange(&slipped(&head, &hash), body).await.status, status);
    }
    assert_eq!(fixture.get("/data/y").await.body, b"right");
}

#[tokio::test]
async fn a_scope_of_another_service_does_not_open_s3() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    for service in ["sts", "sqs", "s3express"] {
        let request = Request { service, ..Request::new("GET", "/data/x") };
        let answer = fixture.send(&request, b"").await;
        assert_eq!(answer.error(), (400, "AuthorizationHeaderMalformed".to_owned()), "{service}");
        assert!(answer.text().contains("This endpoint belongs to"), "{}", answer.text());
        let answer = fixture.exchange(&request.presigned(&fixture.host(), 60), b"").await;
        assert_eq!(
            answer.error(),
            (400, "AuthorizationQueryParametersError".to_owned()),
            "{service}"
        );
    }
}

#[tokio::test]
async fn a_request_with_two_signatures_is_refused() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let [by_header, by_url] = heads(&fixture, "GET", "/data/x");
    let other = format!(
        "authorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/a, SignedHeaders=host, \
        Signature=00\r\n"
    );
    for (head, code) in [
        (slipped(&by_header, &other), "InvalidArgument"),
        (slipped(&by_url, &other), "InvalidArgument"),
        (
            by_url.replacen(" HTTP/1.1", "&%58-amz-signedheaders=host%3Bx-amz-acl HTTP/1.1", 1),
            "AuthorizationQueryParametersError",
        ),
        (
            by_url.replacen(" HTTP/1.1", "&X-Amz-Expires=1 HTTP/1.1", 1),
            "AuthorizationQueryParametersError",
        ),
    ] {
        assert_eq!(fixture.exchange(&head, b"").await.error(), (400, code.to_owned()), "{head}");
    }
}

#[tokio::test]
async fn version_2_does_not_hide_behind_encoded_names() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    for query in [
        "AWSAccessKey%49d=AKOWNER&Expires=4000000000&%53ignature=c2ln",
        "%41WSAccessKeyId=a&%53ignature=b",
    ] {
        let head = format!(
            "GET /data/x?{query} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            fixture.host()
        );
        let answer = fixture.exchange(&head, b"").await;
        assert_eq!(answer.error(), (400, "InvalidRequest".to_owned()), "{query}");
        assert!(
            answer.text().contains("signature_version"),
            "what to set is not said: {}",
            answer.text()
        );
    }
}
