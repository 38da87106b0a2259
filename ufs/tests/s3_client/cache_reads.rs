//! Tests that the cache's own heads and reads, which go past the SDK, get what the SDK gets.

use super::*;
use http::HeaderMap;
use verbs3_settings::{ConfigSecret, TimePeriod};
use verbs3_ufs::raw_answer::{RawAnswerOnly, RemoteFailure, remote_failure};

/// Makes the cache's request from one that goes through the SDK.
fn of_cache<T>(mut request: S3Request<T>) -> S3Request<T> {
    request.extensions.insert(RawAnswerOnly);
    request
}

fn head(key: &str) -> S3Request<HeadObjectInput> {
    req(HeadObjectInput { bucket: "bkt".into(), key: key.into(), ..Default::default() })
}

/// What a caller sees of a call: status, headers, body, and which failure it was.
#[derive(Debug, PartialEq)]
struct SeenAnswer {
    raw: Option<(u16, HeaderMap, Bytes)>,
    failure: Option<(&'static str, u16)>,
}

fn seen_of<T>(result: &Result<T, s3s::S3Error>, raw: Option<RawAnswer>) -> SeenAnswer {
    let failure = result.as_ref().err().map(|error| {
        let kind = match remote_failure(error) {
            Some(RemoteFailure::Answer(_)) => "answer",
            Some(RemoteFailure::NoAnswer(_)) => "no answer",
            Some(RemoteFailure::Unintelligible(_)) => "unintelligible",
            None => "none",
        };
        (kind, error.status_code().map_or(0, |status| status.as_u16()))
    });
    SeenAnswer { raw: raw.map(|raw| (raw.status.as_u16(), raw.headers, raw.body)), failure }
}

fn odd_answers() -> Vec<String> {
    let broken =
        "HTTP/1.1 503 Slow Down\r\ncontent-length: 900\r\nconnection: close\r\n\r\n<Error>";
    vec![
        answer("200 OK", "etag: \"e\"\r\nx-vendor: v\r\nconnection: x-hop\r\nx-hop: 1\r\n", "text"),
        answer("206 Partial Content", "etag: \"e\"\r\ncontent-range: bytes 0-3/9\r\n", "text"),
        answer("200 OK", "content-encoding: aws-chunked\r\n", "text"),
        answer("200 OK", "content-encoding: gzip,aws-chunked\r\n", "text"),
        answer("200 OK", "x-amz-meta-a: 1\r\nexpires: never\r\n", ""),
        answer("301 Moved Permanently", "x-amz-bucket-region: there\r\n", &error_xml("Moved")),
        answer("307 Temporary Redirect", "location: http://127.0.0.1:9/\r\n", ""),
        answer("403 Forbidden", "x-amz-request-id: r\r\n", &error_xml("AccessDenied")),
        answer("404 Not Found", "x-amz-delete-marker: true\r\n", &error_xml("NoSuchKey")),
        answer("404 Not Found", "", ""),
        answer("412 Precondition Failed", "", &error_xml("PreconditionFailed")),
        answer("416 Range Not Satisfiable", "content-range: bytes */4\r\n", ""),
        answer("429 Too Many Requests", "retry-after: 7\r\n", "slow down"),
        answer("500 Internal Server Error", "", "<html>"),
        answer("503 Slow Down", "retry-after: 2\r\n", &error_xml("SlowDown")),
        answer("500 Internal Server Error", "", &"e".repeat(100_000)),
        broken.to_owned(),
        "HTTP/1.1 200 OK\r\nconnection: close\r\n".to_owned(),
        "HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ]
}

#[tokio::test]
async fn a_read_past_the_sdk_sees_what_the_sdk_sees() {
    for said in odd_answers() {
        let raw = Raw::saying(vec![said.clone(), said.clone()]).await;
        let client = raw.client().await;
        let (through, through_raw) = observe_answer(client.get_object(get("k"))).await;
        let (past, past_raw) = observe_answer(client.get_object(of_cache(get("k")))).await;
        let begin = said.lines().next().unwrap().to_owned();
        assert_eq!(seen_of(&past, past_raw), seen_of(&through, through_raw), "{begin}");
        if let (Ok(past), Ok(through)) = (past, through) {
            let read = async |response: s3s::S3Response<GetObjectOutput>| {
                let pieces = response.output.body.unwrap().collect::<Vec<_>>().await;
                pieces.into_iter().map(Result::unwrap).collect::<Vec<_>>().concat()
            };
            assert_eq!(read(past).await, read(through).await, "{begin}");
        }
    }
}

/// The SDK fails on typed fields that nobody reads here.
#[tokio::test]
async fn headers_that_the_sdk_can_not_take_come_as_they_are() {
    let headers = "etag: \"e\"\r\nx-amz-meta-a: 1\r\nx-amz-meta-a: 2\r\nlast-modified: never\r\n";
    let raw = Raw::saying(vec![answer("200 OK", headers, "text")]).await;
    let client = raw.client().await;
    let (past, raw) = observe_answer(client.get_object(of_cache(get("k")))).await;
    assert!(past.is_ok());
    let headers = raw.unwrap().headers;
    assert_eq!(headers.get_all("x-amz-meta-a").iter().count(), 2);
    assert_eq!(headers["last-modified"], "never");
}

#[tokio::test]
async fn a_head_past_the_sdk_sees_what_the_sdk_sees() {
    for status in ["200 OK", "403 Forbidden", "404 Not Found", "503 Slow Down", "301 Moved"] {
        let said = format!("HTTP/1.1 {status}\r\ncontent-length: 9\r\netag: \"e\"\r\n\r\n");
        let raw = Raw::saying(vec![said.clone(), said]).await;
        let client = raw.client().await;
        let (through, through_raw) = observe_answer(client.head_object(head("k"))).await;
        let (past, past_raw) = observe_answer(client.head_object(of_cache(head("k")))).await;
        assert_eq!(seen_of(&past, past_raw), seen_of(&through, through_raw), "{status}");
    }
}

#[tokio::test]
async fn odd_keys_are_signed_and_found() {
    let (_server, client, _folder) = embedded().await;
    let blank = [" ", "\t"];
    for key in ODD_KEYS.into_iter().chain(blank) {
        client.put_object(put(key, text("text"), 4)).await.unwrap();
        let ufs = Ufs::new(client.clone(), UfsSettings::with_name("main"));
        let wanted = ReadObject {
            bucket: "bkt".into(),
            key: key.into(),
            version_id: None,
            if_match: None,
            range: Some(1..=2),
            checksums: true,
        };
        let head = ufs.head_object(wanted.clone()).await;
        let etag = head.unwrap_or_else(|error| panic!("{key:?}: {error}")).etag;
        let pinned = ReadObject { if_match: etag, ..wanted };
        let read = ufs.read(pinned).await.unwrap_or_else(|error| panic!("{key:?}: {error}"));
        let pieces: Vec<Bytes> = read.body.map(Result::unwrap).collect().await;
        assert_eq!(pieces.concat(), b"ex", "{key:?}");
    }
}

#[tokio::test]
async fn a_read_past_the_sdk_sends_what_was_asked_for() {
    let mut raw = Raw::saying(vec![answer("404 Not Found", "", ""); 2]).await;
    let mut given = settings(raw.address);
    given.credentials.session_token = Some(ConfigSecret::new("a-token"));
    let client = connect_store(&given).await.unwrap();
    let mut request = of_cache(get("k"));
    request.input.version_id = Some("v/1+2".into());
    request.input.if_match = Some(ETagCondition::ETag(ETag::Strong("e".into())));
    request.input.range = Some(Range::Int { first: 2, last: Some(5) });
    request.input.checksum_mode = Some(ChecksumMode::from_static(ChecksumMode::ENABLED));
    assert!(client.get_object(request).await.is_err());
    let head = raw.heard.recv().await.unwrap().head;
    let lower = head.to_ascii_lowercase();
    assert!(head.starts_with("GET /bkt/k?versionId=v%2F1%2B2 HTTP/1.1\r\n"), "{head}");
    for line in [
        "\r\nif-match: \"e\"\r\n",
        "\r\nrange: bytes=2-5\r\n",
        "\r\nx-amz-checksum-mode: enabled\r\n",
        "\r\nx-amz-security-token: a-token\r\n",
        &format!("\r\nhost: {}\r\n", raw.address),
        "signedheaders=host;if-match;range;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date;\
         x-amz-security-token,",
    ] {
        assert!(lower.contains(line), "{line}: {head}");
    }
    assert!(lower.contains("\r\nuser-agent: verbs3/"), "{head}");

    given.credentials = Default::default();
    given.credentials.kind = verbs3_ufs::CredentialsKind::Anonymous;
    let client = connect_store(&given).await.unwrap();
    assert!(client.get_object(of_cache(get("k"))).await.is_err());
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    assert!(!head.contains("authorization") && !head.contains("x-amz-date"), "{head}");
}

#[tokio::test]
async fn an_endpoints_path_comes_before_the_bucket() {
    for path in ["/s3", "/s3/", "/deep/er"] {
        let mut raw = Raw::saying(vec![answer("404 Not Found", "", ""); 2]).await;
        let mut given = settings(raw.address);
        given.endpoint = Some(format!("http://{}{path}", raw.address));
        let client = connect_store(&given).await.unwrap();
        assert!(client.get_object(get("k")).await.is_err());
        assert!(client.get_object(of_cache(get("k"))).await.is_err());
        let wanted = format!("GET {}/bkt/k", path.trim_end_matches('/'));
        for _ in 0..2 {
            let head = raw.heard.recv().await.unwrap().head;
            assert!(head.starts_with(&wanted), "{head}");
        }
    }
}

#[tokio::test]
async fn a_request_without_a_key_or_a_bucket_is_not_sent() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", "text")]).await;
    let client = raw.client().await;
    for (bucket, key) in [("bkt", ""), ("", "k"), ("", "")] {
        let mut request = of_cache(get(key));
        request.input.bucket = bucket.into();
        assert!(client.get_object(request).await.is_err());
        let mut request = of_cache(head(key));
        request.input.bucket = bucket.into();
        assert!(client.head_object(request).await.is_err());
    }
    raw_closes(&mut raw).await;
}

#[tokio::test]
async fn both_ways_share_connections_and_their_bound() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", "text"); 3]).await;
    let mut given = settings(raw.address);
    given.limits.connections_max = 1;
    given.deadlines.connect = TimePeriod::from_millis(200);
    let client = connect_store(&given).await.unwrap();
    let unread = client.get_object(of_cache(get("k"))).await.unwrap();
    let error = client.get_object(get("k")).await.err().unwrap();
    assert_eq!(error.code().as_str(), "SlowDown");
    let error = client.get_object(of_cache(get("k"))).await.err().unwrap();
    assert_eq!(error.code().as_str(), "SlowDown");
    let body = unread.output.body.unwrap();
    assert_eq!(body.map(Result::unwrap).collect::<Vec<_>>().await.concat(), b"text");
    client.get_object(of_cache(get("k"))).await.unwrap();
    raw.heard.recv().await.unwrap();
    raw.heard.recv().await.unwrap();
}

#[tokio::test]
async fn a_body_that_breaks_off_past_the_sdk_is_an_error() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 900\r\nconnection: close\r\n\r\ntext";
    let raw = Raw::saying(vec![cut.to_owned()]).await;
    let response = raw.client().await.get_object(of_cache(get("k"))).await.unwrap();
    let pieces: Vec<_> = response.output.body.unwrap().collect().await;
    assert!(pieces.last().unwrap().is_err());
}

#[tokio::test]
async fn a_trace_goes_past_the_sdk_outside_the_signature() {
    let context = StoreTraceContext {
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap(),
        tracestate: None,
    };
    let mut raw = Raw::saying(vec![answer("404 Not Found", "", "")]).await;
    let client = raw.client().await;
    assert!(propagate_trace(context, client.get_object(of_cache(get("k")))).await.is_err());
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    assert!(head.contains("\r\ntraceparent: 00-4bf92f3577b34da6"), "{head}");
    let signed = head.split_once("signedheaders=").unwrap().1.split(',').next().unwrap();
    assert!(!signed.contains("trace"), "{signed}");
}
