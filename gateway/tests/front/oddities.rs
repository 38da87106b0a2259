//! What S3 has and hardly anyone serves, and what S3 has not: each is refused by a document of S3's
//! with the right code, and none is a 500. What the store does not know is its own answer.

use crate::gateway_fixture::GatewayFixture;
use crate::signing::{Request, sha256};

const SELECT: &str = "<SelectObjectContentRequest><Expression>select * from s3object</Expression><ExpressionType>SQL</ExpressionType>\
<InputSerialization><CSV/></InputSerialization><OutputSerialization><CSV/></OutputSerialization></SelectObjectContentRequest>";
const RESTORE: &str = "<RestoreRequest><Days>1</Days></RestoreRequest>";
const POINT: &str = "/arn%3Aaws%3As3%3Aus-east-1%3A123456789012%3Aaccesspoint%2Fpoint/k";
const LAMBDA: &str =
    "/arn%3Aaws%3As3-object-lambda%3Aus-east-1%3A123456789012%3Aaccesspoint%2Fpoint/k";

/// Method, path, query, body, and the answer's status and code.
type Case = (&'static str, &'static str, &'static str, &'static str, u16, &'static str);

const CASES: &[Case] = &[
    // An object lambda's answer goes to an endpoint of its own.
    ("POST", "/WriteGetObjectResponse", "", "x", 501, "NotImplemented"),
    ("POST", "/data/k", "select=&select-type=2", SELECT, 501, "NotImplemented"),
    ("POST", "/data/k", "restore=", RESTORE, 501, "NotImplemented"),
    ("GET", "/data/k", "torrent=", "", 501, "NotImplemented"),
    ("GET", "/data", "session=", "", 501, "NotImplemented"),
    ("PUT", "/data/k", "renameObject=", "", 501, "NotImplemented"),
    ("PUT", "/data/k", "encryption=", "x", 501, "NotImplemented"),
    ("PUT", "/data", "abac=", "<x/>", 501, "NotImplemented"),
    ("DELETE", "/data", "abac=", "", 501, "NotImplemented"),
    ("POST", "/data/k", "unheard-of=", "", 501, "NotImplemented"),
    ("GET", POINT, "", "", 400, "InvalidBucketName"),
    ("PUT", POINT, "", "x", 400, "InvalidBucketName"),
    ("GET", LAMBDA, "", "", 400, "InvalidBucketName"),
    ("PATCH", "/data/k", "", "", 405, "MethodNotAllowed"),
    ("PROPFIND", "/data/k", "", "", 405, "MethodNotAllowed"),
    ("TRACE", "/data/k", "", "", 405, "MethodNotAllowed"),
    ("OPTIONS", "/", "", "", 405, "MethodNotAllowed"),
    ("DELETE", "/", "", "", 405, "MethodNotAllowed"),
];

#[tokio::test]
async fn oddities_are_refused_by_s3s_own_codes_and_change_nothing() {
    let fixture = GatewayFixture::start().await;
    assert_eq!(fixture.put("/data/k", b"hello").await.status, 200);
    let mut wrong = Vec::new();
    for &(method, path, query, body, status, code) in CASES {
        // What the body's hash is must not hide why the operation is refused.
        let request = Request::new(method, path).query(query).payload(&sha256(body.as_bytes()));
        let request = if body.is_empty() {
            request
        } else {
            request.header("content-length", &body.len().to_string())
        };
        let answer = fixture.send(&request, body.as_bytes()).await;
        let text = answer.text();
        if answer.error() != (status, code.to_owned()) || !text.contains("<Error>") {
            wrong.push(format!(
                "{method} {path}?{query}: wanted {status} {code}, got {} {text}",
                answer.status
            ));
        }
        if answer.headers.get("content-type").is_none_or(|kind| kind != "application/xml") {
            wrong.push(format!(
                "{method} {path}?{query}: content type {:?}",
                answer.headers.get("content-type")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(fixture.get("/data/k").await.text(), "hello");
    assert!(fixture.visible("data", "k").await);
}

#[tokio::test]
async fn the_same_of_an_arn_by_head_has_no_body() {
    let fixture = GatewayFixture::start().await;
    let answer = fixture.send(&Request::new("HEAD", POINT), b"").await;
    assert_eq!((answer.status, answer.body.len()), (400, 0));
}

#[tokio::test]
async fn a_website_redirect_is_told_and_not_followed() {
    let fixture = GatewayFixture::start().await;
    let put = Request::new("PUT", "/data/old").header("content-length", "5");
    let put = put.header("x-amz-website-redirect-location", "https://example.org/new");
    assert_eq!(fixture.send(&put, b"hello").await.status, 200);
    let got = fixture.get("/data/old").await;
    assert_eq!((got.status, got.text().as_str()), (200, "hello"));
    assert_eq!(got.headers["x-amz-website-redirect-location"], "https://example.org/new");
}
