//! Tests what the S3 client keeps of a store's answers, and how it acts when the store or the
//! client's body fails.
#![allow(clippy::unwrap_used)]

mod cache_reads;
mod errors;
#[path = "../loopback/mod.rs"]
mod loopback;
mod losses;
mod silent;
mod writes;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Method;
use loopback::{Raw, Server, settings};
use s3s::dto::*;
use s3s::{S3, S3Request, s3_error};
use verbs3_ufs::local::{LocalOptions, LocalStore};
use verbs3_ufs::raw_answer::{answer_of, observe_answer};
use verbs3_ufs::s3::connect_store;
use verbs3_ufs::trace_propagation::{StoreTraceContext, propagate_trace};
use verbs3_ufs::{RawAnswer, ReadObject, Ufs, UfsError, UfsSettings};

fn req<T>(input: T) -> S3Request<T> {
    verbs3_ufs::s3_request(Method::GET, input)
}

fn get(key: &str) -> S3Request<GetObjectInput> {
    req(GetObjectInput { bucket: "bkt".into(), key: key.into(), ..Default::default() })
}

fn put(key: &str, body: StreamingBlob, length: u64) -> S3Request<PutObjectInput> {
    req(PutObjectInput {
        bucket: "bkt".into(),
        key: key.into(),
        body: Some(body),
        content_length: Some(length as i64),
        ..Default::default()
    })
}

fn text(text: &'static str) -> StreamingBlob {
    StreamingBlob::from(s3s::Body::from(Bytes::from_static(text.as_bytes())))
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn error_xml(code: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m &amp; \
        n</Message><Extra>kept</Extra></Error>"
    )
}

/// Keys that a path has to escape, or must not tidy up.
const ODD_KEYS: [&str; 14] = [
    "a+b",
    "a%2Fb",
    "a%20b",
    "//",
    "a//b",
    "/a",
    "a b",
    "ü/日本",
    "dir/",
    "a?b#c&d=e",
    "a/../b",
    "./a",
    "~*'()!",
    "a;b:c@d,$",
];

async fn raw_closes(raw: &mut Raw) {
    assert!(tokio::time::timeout(Duration::from_millis(200), raw.heard.recv()).await.is_err());
}

async fn embedded() -> (Server, Arc<dyn S3>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalOptions { sync: false, ..LocalOptions::new(folder.path()) };
    let server = Server::over(LocalStore::open_store(local).unwrap()).await;
    let client = server.client().await;
    client
        .create_bucket(req(CreateBucketInput { bucket: "bkt".into(), ..Default::default() }))
        .await
        .unwrap();
    (server, client, folder)
}

#[tokio::test]
async fn success_carries_the_raw_headers() {
    let headers =
        "ETag: \"e\"\r\nx-vendor: v\r\nx-amz-meta-A: 1\r\nConnection: x-hop\r\nx-hop: 1\r\n";
    let raw = Raw::saying(vec![answer("200 OK", headers, "text")]).await;
    let response = raw.client().await.get_object(get("k")).await.unwrap();
    let seen = response.extensions.get::<RawAnswer>().unwrap();
    assert_eq!((seen.status.as_u16(), &seen.headers["x-vendor"]), (200, &"v".parse().unwrap()));
    assert!(!seen.headers.contains_key("x-hop") && !seen.headers.contains_key("connection"));
}

#[tokio::test]
async fn a_read_through_the_client_checks_the_raw_answer() {
    let headers = "ETag: \"e\"\r\nContent-Range: bytes 2-5/9\r\nx-amz-request-id: r\r\nx-vendor: \
        v\r\nx-amz-checksum-crc32: AAAA\r\n";
    let mut raw = Raw::saying(vec![answer("206 Partial Content", headers, "2345")]).await;
    let ufs = Ufs::new(raw.client().await, UfsSettings::with_name("main"));
    let (bucket, key, if_match) = ("bkt".into(), "k".into(), Some("\"e\"".into()));
    let wanted = ReadObject {
        bucket,
        key,
        version_id: Some("v1".into()),
        if_match,
        range: Some(2..=5),
        checksums: true,
    };
    let unversioned = ufs.read(wanted).await.err().unwrap();
    assert!(matches!(unversioned, UfsError::Changed { .. }));
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    for line in ["if-match: \"e\"", "range: bytes=2-5", "x-amz-checksum-mode: enabled"] {
        assert!(head.contains(line), "{head}");
    }
    assert!(head.contains("versionid=v1"));
}

#[tokio::test]
async fn a_weak_condition_stays_weak() {
    let mut raw = Raw::saying(vec![answer("412 Precondition Failed", "", "")]).await;
    let mut request = get("k");
    request.input.if_match = Some(ETagCondition::ETag(ETag::Weak("e".into())));
    assert!(raw.client().await.get_object(request).await.is_err());
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    assert!(head.contains("if-match: w/\"e\"\r\n"), "{head}");
}

#[tokio::test]
async fn keys_of_any_characters_and_metadata_come_back() {
    let (_server, client, _folder) = embedded().await;
    for key in ODD_KEYS {
        let mut request = put(key, text("text"), 4);
        request.input.metadata =
            Some(Metadata::from_iter([("note".to_owned(), "two words".to_owned())]));
        client.put_object(request).await.unwrap_or_else(|error| panic!("{key}: {error:?}"));
        let got = client
            .get_object(get(key))
            .await
            .unwrap_or_else(|error| panic!("{key}: {error:?}"))
            .output;
        assert_eq!(got.metadata.unwrap()["note"], "two words", "{key}");
        let listed = ListObjectsV2Input {
            bucket: "bkt".into(),
            prefix: Some(key.into()),
            ..Default::default()
        };
        let listed = client.list_objects_v2(req(listed)).await.unwrap().output.contents.unwrap();
        assert_eq!(listed[0].key.as_deref(), Some(key));
    }
}

#[tokio::test]
async fn a_write_is_sent_once_whatever_happens() {
    let mut raw = Raw::saying(vec![
        answer("503 Slow Down", "", &error_xml("SlowDown")),
        "HTTP/1.1 200".into(),
    ])
    .await;
    let client = raw.client().await;
    let error = client.put_object(put("k", text("text"), 4)).await.err().unwrap();
    assert_eq!(error.code().as_str(), "SlowDown");
    let delete = DeleteObjectInput { bucket: "bkt".into(), key: "k".into(), ..Default::default() };
    let task = tokio::spawn(async move { client.delete_object(req(delete)).await.is_err() });
    assert!(raw.heard.recv().await.unwrap().head.starts_with("PUT"));
    assert!(raw.heard.recv().await.unwrap().head.starts_with("DELETE"));
    raw_closes(&mut raw).await;
    assert!(task.await.unwrap());
}

#[tokio::test]
async fn a_wanted_checksum_is_sent_after_the_body_unless_switched_off() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", ""); 3]).await;
    let with_checksum = |value: Option<&str>| {
        let mut request = put("k", text("text"), 4);
        request.input.checksum_algorithm =
            Some(ChecksumAlgorithm::from_static(ChecksumAlgorithm::CRC32));
        request.input.checksum_crc32 = value.map(str::to_owned);
        request
    };
    let client = raw.client().await;
    client.put_object(with_checksum(None)).await.unwrap();
    let heard = raw.heard.recv().await.unwrap();
    let head = heard.head.to_ascii_lowercase();
    for line in [
        "x-amz-content-sha256: streaming-aws4-hmac-sha256-payload-trailer",
        "x-amz-trailer: x-amz-checksum-crc32",
        "x-amz-decoded-content-length: 4",
    ] {
        assert!(head.contains(line), "{head}");
    }
    // CRC32 of "text".
    assert!(
        String::from_utf8(heard.body).unwrap().contains("x-amz-checksum-crc32:O4unxw=="),
        "trailer"
    );

    client.put_object(with_checksum(Some("O4unxw=="))).await.unwrap();
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    assert!(head.contains("x-amz-checksum-crc32: o4unxw==") && !head.contains("trailer"), "{head}");

    let client = connect_store(&UfsSettings { trailing_checksums: false, ..settings(raw.address) })
        .await
        .unwrap();
    client.put_object(with_checksum(None)).await.unwrap();
    let heard = raw.heard.recv().await.unwrap();
    assert!(
        heard.body == b"text" && !heard.head.to_ascii_lowercase().contains("checksum"),
        "{}",
        heard.head
    );
}

#[tokio::test]
async fn part_markers_that_are_no_numbers_are_left_out() {
    let xml = "<ListPartsResult><Bucket>b</Bucket><Key>k</Key><UploadId>u</UploadId><PartNumberMarker></PartNumberMarker>\
               <NextPartNumberMarker/><IsTruncated>false</IsTruncated><Part><PartNumber>1</PartNumber><ETag>\"e\"</ETag>\
               </Part></ListPartsResult>";
    let raw = Raw::saying(vec![answer("200 OK", "content-type: application/xml\r\n", xml)]).await;
    let input = ListPartsInput {
        bucket: "bkt".into(),
        key: "k".into(),
        upload_id: "u".into(),
        ..Default::default()
    };
    let output = raw.client().await.list_parts(req(input)).await.unwrap().output;
    assert_eq!((output.part_number_marker, output.parts.unwrap().len()), (None, 1));
}

// ---- trace context

#[tokio::test]
async fn trace_context_goes_to_the_store_outside_the_signature() {
    let context = StoreTraceContext {
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap(),
        tracestate: Some("vendor=1".parse().unwrap()),
    };
    let no_key = answer("404 Not Found", "", &error_xml("NoSuchKey"));
    let mut raw = Raw::saying(vec![no_key.clone(), no_key]).await;
    let client = raw.client().await;
    assert!(propagate_trace(context.clone(), client.get_object(get("k"))).await.is_err());
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    assert!(
        head.contains(
            "\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
        ),
        "{head}"
    );
    assert!(head.contains("\r\ntracestate: vendor=1\r\n"), "{head}");
    let signed = head.split_once("signedheaders=").unwrap().1.split(',').next().unwrap();
    assert!(!signed.contains("trace"), "{signed}");
    assert!(client.get_object(get("k")).await.is_err());
    assert!(
        !raw.heard.recv().await.unwrap().head.to_ascii_lowercase().contains("trace"),
        "nobody traces"
    );

    // And a store that checks signatures takes it, with a body too.
    let (_server, client, _folder) = embedded().await;
    propagate_trace(context.clone(), client.put_object(put("k", text("hello"), 5))).await.unwrap();
    propagate_trace(context, client.get_object(get("k"))).await.unwrap();
}
