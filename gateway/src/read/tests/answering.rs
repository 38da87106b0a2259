//! Statuses and headers: as the UFS's own.

use super::*;
use http::header;

fn strong(value: &str) -> Option<ETagCondition> {
    Some(ETagCondition::ETag(ETag::Strong(value.trim_matches('"').into())))
}

async fn etag(fixture: &ReadFixture, key: &str) -> String {
    fixture.get(of(key)).await.headers[header::ETAG].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn head_says_what_get_says() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", &content(1, 100_000)).await;
    let got = fixture.get(of("k")).await;
    let input = HeadObjectInput { bucket: "train".into(), key: "k".into(), ..Default::default() };
    let head = fixture.head(input.clone()).await.unwrap();
    assert_eq!(head.headers, got.headers);
    assert_eq!(head.headers["x-amz-meta-colour"], "blue");
    assert_eq!(head.headers[header::CONTENT_TYPE], "text/x-test");
    assert!(head.headers.contains_key(header::LAST_MODIFIED));
    assert_eq!(head.output.content_length, Some(100_000));
    assert_eq!(head.output.accept_ranges.as_deref(), Some("bytes"));
    let range = Some(s3s::dto::Range::Int { first: 10, last: Some(19) });
    let part = fixture.head(HeadObjectInput { range, ..input }).await.unwrap();
    assert_eq!(part.output.content_range.as_deref(), Some("bytes 10-19/100000"));
    assert_eq!(part.output.content_length, Some(10));
}

#[tokio::test]
async fn conditions_are_answered_from_the_cache() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", b"hello").await;
    let etag = etag(&fixture, "k").await;
    let (cx, result) =
        fixture.try_get(GetObjectInput { if_none_match: strong(&etag), ..of("k") }).await;
    assert_eq!(result.err().unwrap().status_code().unwrap().as_u16(), 304);
    let answer = cx.take_answer().unwrap();
    assert_eq!((answer.status.as_u16(), answer.body.len()), (304, 0));
    assert_eq!(answer.headers[header::ETAG], etag);
    assert!(answer.headers.contains_key(header::LAST_MODIFIED));
    let (_, result) =
        fixture.try_get(GetObjectInput { if_match: strong("other"), ..of("k") }).await;
    assert_eq!(result.err().unwrap().code().as_str(), "PreconditionFailed");
    let (_, result) = fixture.try_get(GetObjectInput { if_match: strong(&etag), ..of("k") }).await;
    assert!(result.is_ok());
}

#[tokio::test]
async fn range_past_end_returns_416_with_the_length() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", b"hello").await;
    for _ in 0..2 {
        let error = fixture.try_get(ranged("k", 5, 9)).await.1.err().unwrap();
        assert_eq!(
            (error.code().as_str(), error.status_code().unwrap().as_u16()),
            ("InvalidRange", 416)
        );
        assert_eq!(error.headers().unwrap()[header::CONTENT_RANGE], "bytes */5");
    }
}

#[tokio::test]
async fn an_absent_object_is_the_stores_own_404_cold_and_hot() {
    let fixture = ReadSetup::default().start_fixture().await;
    for _ in 0..2 {
        let (cx, result) = fixture.try_get(of("nothing")).await;
        let error = result.err().unwrap();
        assert_eq!(
            (error.code().as_str(), error.status_code().unwrap().as_u16()),
            ("NoSuchKey", 404)
        );
        let answer = cx.take_answer().unwrap();
        assert_eq!(answer.status.as_u16(), 404);
        assert!(String::from_utf8_lossy(&answer.body).contains("NoSuchKey"));
    }
}

#[tokio::test]
async fn an_absent_object_of_a_renamed_bucket_shows_no_store_names() {
    let mut fixture = ReadSetup::default().start_fixture().await;
    fixture.mount = Arc::new(MountedBucket {
        name: "clients".into(),
        prefix: "secret/".into(),
        ..MountedBucket::clone(&fixture.mount)
    });
    let (cx, result) = fixture.try_get(of("nothing")).await;
    let error = result.err().unwrap();
    assert_eq!((error.code().as_str(), error.status_code().unwrap().as_u16()), ("NoSuchKey", 404));
    assert!(cx.take_answer().is_none());
}

#[tokio::test]
async fn response_parameters_replace_the_objects_headers() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", b"hello").await;
    let input = GetObjectInput {
        response_content_type: Some("image/png".into()),
        response_cache_control: Some("no-store".into()),
        ..of("k")
    };
    let got = fixture.get(input).await;
    assert_eq!(got.headers[header::CONTENT_TYPE], "image/png");
    assert_eq!(got.headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(fixture.get(of("k")).await.headers[header::CONTENT_TYPE], "text/x-test");
}

#[tokio::test]
async fn checksums_are_sent_for_whole_objects_on_request() {
    let fixture = ReadSetup::default().start_fixture().await;
    let input = PutObjectInput {
        bucket: "train".into(),
        key: "k".into(),
        body: Some(StreamingBlob::from(s3s::Body::from(b"hello".to_vec()))),
        content_length: Some(5),
        checksum_crc32: Some("NhCmhg==".into()),
        ..Default::default()
    };
    fixture.store.store.put_object(plain(input)).await.unwrap();
    let asked = |input| GetObjectInput {
        checksum_mode: Some(ChecksumMode::from_static(ChecksumMode::ENABLED)),
        ..input
    };
    for _ in 0..2 {
        assert!(!fixture.get(of("k")).await.headers.contains_key("x-amz-checksum-crc32"));
        assert_eq!(fixture.get(asked(of("k"))).await.headers["x-amz-checksum-crc32"], "NhCmhg==");
        assert!(
            !fixture
                .get(asked(ranged("k", 0, 2)))
                .await
                .headers
                .contains_key("x-amz-checksum-crc32")
        );
    }
}

#[tokio::test]
async fn what_is_never_cached_goes_to_the_store() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", b"hello").await;
    for input in [
        GetObjectInput { expected_bucket_owner: Some("someone".into()), ..of("k") },
        GetObjectInput { version_id: Some("null".into()), ..of("k") },
        GetObjectInput { part_number: Some(1), ..of("k") },
    ] {
        let mut got = fixture.get(input).await;
        assert_eq!(got.verdict(), ("bypass", "ufs"));
        assert_eq!(got.body().await.0, b"hello");
        assert_eq!(got.cx.ufs_bytes(), 5);
    }
}

#[tokio::test]
async fn a_mount_without_cache_asks_no_worker() {
    let mut fixture = ReadSetup::default().start_fixture().await;
    fixture.mount =
        Arc::new(MountedBucket { cached: false, ..MountedBucket::clone(&fixture.mount) });
    fixture.put("k", b"hello").await;
    for _ in 0..2 {
        let gets = fixture.store.gets();
        assert_eq!(fixture.read("k").await, b"hello");
        assert_eq!(fixture.store.gets(), gets + 1);
    }
}
