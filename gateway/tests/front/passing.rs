//! The UFS's own answers: status, headers and documents reach the client as they are, unless they
//! show names behind a mount.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use s3s::dto::{
    GetObjectAclInput, GetObjectAclOutput, GetObjectLegalHoldInput, GetObjectLegalHoldOutput,
    GetObjectTaggingInput, GetObjectTaggingOutput,
};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use verbs3_ufs::raw_answer::RemoteFailure;
use verbs3_ufs::{RawAnswer, Ufs, UfsSettings};

use crate::gateway_fixture::{GatewayFixture, mount};
use crate::remote::start_fixtures;
use crate::signing::Request;

const DOCUMENT: &str = "<?xml version=\"1.0\"?><Error><Code>OddCode</Code><Message>so it \
    is</Message><Resource>/b/k</Resource><Extra>kept</Extra></Error>";

/// A store that answers as a remote one does: with an error of its own, or not at all.
struct OddStore;

#[async_trait]
impl S3 for OddStore {
    async fn get_object_acl(
        &self,
        _: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", HeaderValue::from_static("7"));
        headers.insert("x-amz-request-id", HeaderValue::from_static("UFS1"));
        headers.insert("x-odd", HeaderValue::from_static("yes"));
        headers.insert("connection", HeaderValue::from_static("close"));
        headers.insert("content-type", HeaderValue::from_static("application/xml"));
        let answer = RawAnswer {
            status: StatusCode::IM_A_TEAPOT,
            headers,
            body: Bytes::from_static(DOCUMENT.as_bytes()),
        };
        let code = S3ErrorCode::Custom("OddCode".into());
        let mut error = S3Error::with_source(code, Box::new(RemoteFailure::Answer(answer)));
        error.set_message("so it is");
        Err(error)
    }

    async fn get_object_tagging(
        &self,
        _: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let silence = RemoteFailure::NoAnswer("connect timed out to 10.0.0.1".to_owned());
        Err(S3Error::with_source(S3ErrorCode::InternalError, Box::new(silence)))
    }

    async fn get_object_legal_hold(
        &self,
        _: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        let nonsense =
            RemoteFailure::Unintelligible("200 with a body that is not S3: /hidden/p/k".to_owned());
        Err(S3Error::with_source(S3ErrorCode::InternalError, Box::new(nonsense)))
    }
}

async fn start_fixture() -> GatewayFixture {
    GatewayFixture::start_with(|setup| {
        let ufs = Ufs::new(Arc::new(OddStore), UfsSettings::with_name("odd"));
        setup.mounts =
            vec![mount("same", ufs.clone(), "same", ""), mount("other", ufs, "hidden", "p/")];
    })
    .await
}

#[tokio::test]
async fn an_error_of_the_ufs_is_passed_on_byte_for_byte() {
    let fixture = start_fixture().await;
    let answer = fixture.send(&Request::new("GET", "/same/k").query("acl="), b"").await;
    assert_eq!((answer.status, answer.text().as_str()), (418, DOCUMENT));
    assert_eq!(answer.headers["retry-after"], "7");
    assert_eq!(answer.headers["x-odd"], "yes");
    assert_eq!(answer.headers["x-verbs3-ufs-request-id"], "UFS1");
    assert_eq!(answer.headers["x-amz-request-id"].len(), 16);
}

#[tokio::test]
async fn a_renamed_mount_passes_on_an_error_without_its_names() {
    let fixture = start_fixture().await;
    let answer = fixture.send(&Request::new("GET", "/other/k").query("acl="), b"").await;
    assert_eq!(answer.error(), (418, "OddCode".to_owned()));
    assert!(
        answer.text().contains("so it is") && !answer.text().contains("/b/k"),
        "{}",
        answer.text()
    );
    assert_eq!(
        (answer.headers["retry-after"].as_str(), answer.headers["x-odd"].as_str()),
        ("7", "yes")
    );
}

#[tokio::test]
async fn a_silent_ufs_is_a_503_that_shows_no_address() {
    let fixture = start_fixture().await;
    let answer = fixture.send(&Request::new("GET", "/same/k").query("tagging="), b"").await;
    assert_eq!(answer.error(), (503, "ServiceUnavailable".to_owned()));
    assert!(!answer.text().contains("10.0.0.1"));
    assert_eq!(answer.headers["retry-after"], "1");
}

/// Clients try 500, 502, 503 and 504 again, by themselves.
#[tokio::test]
async fn an_answer_that_is_not_of_s3_is_a_501_that_nobody_retries() {
    let fixture = start_fixture().await;
    for mount in ["same", "other"] {
        let answer = fixture
            .send(&Request::new("GET", &format!("/{mount}/k")).query("legal-hold="), b"")
            .await;
        assert_eq!(answer.error(), (501, "NotImplemented".to_owned()));
        assert!(!answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
        assert!(
            answer.text().contains("<Message>") && !answer.text().contains("hidden"),
            "{}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn conditions_and_ranges_answer_as_the_store_does() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let etag = "\"5d41402abc4b2a76b9719d911017c592\"";
    let get = || Request::new("GET", "/data/x");
    let unchanged = fixture.send(&get().header("if-none-match", etag), b"").await;
    assert_eq!(
        (unchanged.status, unchanged.headers["etag"].as_str(), unchanged.body.len()),
        (304, etag, 0)
    );
    let failed = fixture.send(&get().header("if-match", "\"other\""), b"").await;
    assert_eq!(failed.error(), (412, "PreconditionFailed".to_owned()));
    let past = fixture.send(&get().header("range", "bytes=9-"), b"").await;
    assert_eq!(past.error(), (416, "InvalidRange".to_owned()));
    let part = fixture.send(&get().header("range", "bytes=1-2"), b"").await;
    assert_eq!(
        (part.status, part.text().as_str(), part.headers["content-range"].as_str()),
        (206, "el", "bytes 1-2/5")
    );
    let head = fixture.send(&Request::new("HEAD", "/data/absent"), b"").await;
    assert_eq!((head.status, head.body.len()), (404, 0));
}

#[tokio::test]
async fn operations_without_a_bucket_of_ours_are_refused() {
    let fixture = GatewayFixture::start().await;
    let refused =
        fixture.send(&Request::new("GET", "/").query("x-id=ListDirectoryBuckets"), b"").await;
    assert_eq!(refused.error(), (501, "NotImplemented".to_owned()));
}

/// s3s takes them for PutObject, DeleteObject and DeleteBucket.
#[tokio::test]
async fn writes_to_unknown_subresources_change_nothing() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/k", b"hello").await;
    for (method, path, query) in [
        ("PUT", "/data/k", "encryption="),
        ("PUT", "/data/k", "append=&position=0"),
        ("PUT", "/data/k", "partNumber=1"),
        ("DELETE", "/data/k", "acl="),
        ("DELETE", "/data/k", "retention="),
        ("DELETE", "/loose", "abac="),
        ("DELETE", "/loose", "acl="),
    ] {
        let request = Request::new(method, path).query(query).header("content-length", "0");
        let refused = fixture.send(&request, b"").await;
        assert_eq!(refused.error(), (501, "NotImplemented".to_owned()), "{method} {path}?{query}");
    }
    assert_eq!(fixture.get("/data/k").await.body, b"hello");
    assert_eq!(fixture.put("/loose/k", b"there").await.status, 200);
    let named = Request::new("DELETE", "/data/k").query("x-id=DeleteObject");
    assert_eq!(fixture.send(&named, b"").await.status, 204);
}

/// S3 writes the ETag of this document without its quotes, and s3s with them.
#[tokio::test]
async fn attributes_are_the_stores_own_document() {
    let (front, behind) = start_fixtures().await;
    assert_eq!(behind.put("/data/x", b"hello").await.status, 200);
    for path in ["/data/x", "/far/x"] {
        if path == "/data/x" {
            assert_eq!(front.put(path, b"hello").await.status, 200);
        }
        let request = Request::new("GET", path).query("attributes=");
        let answer = front
            .send(&request.header("x-amz-object-attributes", "ETag,ObjectSize,Checksum"), b"")
            .await;
        let text = answer.text();
        assert_eq!(
            (answer.status, answer.headers["content-type"].as_str()),
            (200, "application/xml"),
            "{text}"
        );
        assert!(text.contains("<ETag>5d41402abc4b2a76b9719d911017c592</ETag>"), "{text}");
        assert!(
            text.contains("<ObjectSize>5</ObjectSize>") && text.contains("<ChecksumCRC64NVME>"),
            "{text}"
        );
        assert!(answer.headers.contains_key("last-modified"), "{:?}", answer.headers);
    }
}

#[tokio::test]
async fn keys_of_spaces_alone_are_keys() {
    let (front, behind) = start_fixtures().await;
    for (mount, fixture) in [("data", &front), ("far", &behind)] {
        let path = format!("/{mount}/%20%20");
        let put = front.put(&path, b"hello").await;
        assert_eq!(put.status, 200, "{mount}: {}", put.text());
        assert_eq!(front.get(&path).await.text(), "hello", "{mount}");
        let listed = front.send(&Request::new("GET", &format!("/{mount}")), b"").await.text();
        assert!(listed.contains("<Key>  </Key>"), "{mount}: {listed}");
        let document = b"<Delete><Object><Key>  </Key></Object></Delete>";
        let delete = Request::new("POST", &format!("/{mount}")).query("delete=");
        let delete = delete.header("content-length", &document.len().to_string());
        let deleted = front.send(&delete, document).await;
        assert_eq!(deleted.status, 200, "{mount}: {}", deleted.text());
        assert!(deleted.text().contains("<Key>  </Key>"), "{mount}: {}", deleted.text());
        assert!(!fixture.visible("data", "  ").await, "{mount}");
    }
}

/// By raw UTF-8 and by encoded words (RFC 2047), which s3s would decode.
#[tokio::test]
async fn metadata_outside_ascii_reaches_the_store_as_it_was_written() {
    let (front, behind) = start_fixtures().await;
    let put = Request::new("PUT", "/far/x").header("content-length", "5");
    let put =
        put.header("x-amz-meta-raw", "grün").header("x-amz-meta-word", "=?UTF-8?B?Z3LDvG4=?=");
    let answer = front.send(&put, b"hello").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(behind.visible("data", "x").await);
    let words = behind.get("/data/x").await.headers;
    let through = front.get("/far/x").await.headers;
    assert_eq!(words["x-amz-meta-word"], "=?UTF-8?B?Z3LDvG4=?=");
    assert_eq!(
        words["x-amz-meta-raw"], "=?UTF-8?B?Z3LDvG4=?=",
        "S3 answers metadata outside ASCII in words"
    );
    assert_eq!(
        (&through["x-amz-meta-raw"], &through["x-amz-meta-word"]),
        (&words["x-amz-meta-raw"], &words["x-amz-meta-word"])
    );
}
