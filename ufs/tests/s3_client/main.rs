//! Tests what the S3 client keeps of a store's answers, and how it acts when the store or the
//! client's body fails.
#![allow(clippy::unwrap_used)]

#[path = "../loopback/mod.rs"]
mod loopback;
mod losses;
mod silent;

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

// ---- errors

#[tokio::test]
async fn an_errors_status_headers_and_document_are_kept() {
    let cases = [
        (
            "304 Not Modified",
            "ETag: \"e\"\r\nCache-Control: max-age=7\r\nLast-Modified: x\r\n",
            String::new(),
        ),
        ("403 Forbidden", "x-amz-request-id: r1\r\n", error_xml("SignatureDoesNotMatch")),
        (
            "404 Not Found",
            "x-amz-id-2: i2\r\nx-amz-delete-marker: true\r\n",
            error_xml("NoSuchKey"),
        ),
        ("404 Not Found", "x-amz-request-id: r2\r\n", error_xml("NoSuchBucket")),
        ("412 Precondition Failed", "x-vendor: v\r\n", error_xml("PreconditionFailed")),
        (
            "416 Requested Range Not Satisfiable",
            "Content-Range: bytes */9\r\n",
            error_xml("InvalidRange"),
        ),
        ("503 Slow Down", "Retry-After: 17\r\n", error_xml("SlowDown")),
        ("500 Internal Server Error", "", "no xml at all".into()),
    ];
    let answers =
        cases.iter().map(|(status, headers, body)| answer(status, headers, body)).collect();
    let raw = Raw::saying(answers).await;
    let client = raw.client().await;
    for (status, headers, body) in &cases {
        let (result, seen) = observe_answer(client.get_object(get("k"))).await;
        let error = result.err().unwrap();
        let answer = answer_of(&error, seen);
        assert_eq!(answer.status.as_str(), &status[..3]);
        assert_eq!(error.status_code().unwrap().as_str(), &status[..3]);
        assert_eq!(answer.body, body.as_bytes(), "{status}");
        for line in headers.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            assert_eq!(answer.headers[name], value, "{status}");
            assert_eq!(error.headers().unwrap()[name], value, "{status}");
        }
        if let Some(code) = body.split("<Code>").nth(1) {
            assert_eq!(error.code().as_str(), code.split('<').next().unwrap());
        }
        // The same without an observer.
        assert_eq!(answer_of(&error, None).body, body.as_bytes());
    }
}

#[tokio::test]
async fn a_head_error_has_status_and_headers_and_a_code_that_fits() {
    let raw = Raw::saying(vec![
        "HTTP/1.1 404 Not Found\r\nx-amz-request-id: r\r\n\r\n".into(),
        "HTTP/1.1 412 Precondition Failed\r\nETag: \"e\"\r\n\r\n".into(),
    ])
    .await;
    let client = raw.client().await;
    let head =
        || req(HeadObjectInput { bucket: "bkt".into(), key: "k".into(), ..Default::default() });
    let error = client.head_object(head()).await.err().unwrap();
    assert_eq!(
        (error.status_code().unwrap().as_u16(), &error.headers().unwrap()["x-amz-request-id"]),
        (404, &"r".parse().unwrap())
    );
    let error = client.head_object(head()).await.err().unwrap();
    assert_eq!(
        (error.code().as_str(), &error.headers().unwrap()["etag"]),
        ("PreconditionFailed", &"\"e\"".parse().unwrap())
    );
}

#[tokio::test]
async fn an_error_in_a_200_is_an_error_and_stays_a_200() {
    let raw =
        Raw::saying(vec![answer("200 OK", "x-amz-request-id: r\r\n", &error_xml("InternalError"))])
            .await;
    let input = CompleteMultipartUploadInput {
        bucket: "bkt".into(),
        key: "k".into(),
        upload_id: "u".into(),
        multipart_upload: Some(CompletedMultipartUpload::default()),
        ..Default::default()
    };
    let error = raw.client().await.complete_multipart_upload(req(input)).await.err().unwrap();
    let answer = answer_of(&error, None);
    assert_eq!(answer.status.as_u16(), 200);
    assert!(answer.body.ends_with(b"<Extra>kept</Extra></Error>"));
}

#[tokio::test]
async fn an_error_document_without_end_is_cut() {
    let raw = Raw::saying(vec![answer("403 Forbidden", "", &"x".repeat(1_000_000))]).await;
    let error = raw.client().await.get_object(get("k")).await.err().unwrap();
    let answer = answer_of(&error, None);
    assert_eq!((answer.status.as_u16(), answer.body.len()), (403, 64 * 1024));
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
async fn a_success_that_is_not_s3_is_an_explained_error() {
    let raw = Raw::saying(vec![answer("200 OK", "", "<html>log in first</html>")]).await;
    let input = ListObjectsV2Input { bucket: "bkt".into(), ..Default::default() };
    let (result, seen) = observe_answer(raw.client().await.list_objects_v2(req(input))).await;
    let error = result.err().unwrap();
    assert!(error.message().unwrap().contains("could not be understood"), "{error:?}");
    assert_eq!(answer_of(&error, seen).status.as_u16(), 500);
}

// ---- reads

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
    for key in [
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
    ] {
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

// ---- writes

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

/// The server hangs up after half an answer; nothing more may be heard.
async fn raw_closes(raw: &mut Raw) {
    assert!(tokio::time::timeout(Duration::from_millis(200), raw.heard.recv()).await.is_err());
}

#[tokio::test]
async fn a_body_that_fails_cuts_the_connection_and_its_error_is_the_answer() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", "")]).await;
    // So long that a part is in flight before the next piece is polled.
    let long = Bytes::from(vec![7; 4 << 20]);
    let pieces = vec![Ok(long), Err(s3_error!(BadDigest, "the sum is wrong"))];
    let error = raw
        .client()
        .await
        .put_object(put("k", StreamingBlob::wrap(stream::iter(pieces)), 5 << 20))
        .await
        .err()
        .unwrap();
    assert_eq!((error.code().as_str(), error.message()), ("BadDigest", Some("the sum is wrong")));
    let heard = raw.heard.recv().await.unwrap();
    assert!(heard.cut && heard.body.len() <= 4 << 20, "{}", heard.head);
}

#[tokio::test]
async fn a_put_that_is_dropped_cuts_the_connection() {
    let mut raw = Raw::saying(vec![]).await;
    let client = raw.client().await;
    let (piece, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = stream::unfold(pieces, |mut pieces| async move {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let body = StreamingBlob::wrap(SyncStream(Box::pin(body).into()));
    let task = tokio::spawn(async move { client.put_object(put("k", body, 8)).await.map(|_| ()) });
    piece.send(Ok(Bytes::from_static(b"0123"))).await.unwrap();
    // Taken: the request is on its way.
    piece.send(Ok(Bytes::from_static(b"45"))).await.unwrap();
    task.abort();
    let heard =
        tokio::time::timeout(Duration::from_secs(60), raw.heard.recv()).await.unwrap().unwrap();
    assert!(heard.cut, "{heard:?}");
}

/// `unfold`'s stream is not `Sync`; s3s wants bodies that are.
struct SyncStream<S>(std::sync::Mutex<S>);

impl<S: futures::Stream + Unpin> futures::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.get_mut().unwrap().poll_next_unpin(cx)
    }
}

#[tokio::test]
async fn a_put_that_fails_on_the_way_stores_nothing() {
    let (server, client, _folder) = embedded().await;
    let before = server.writes.load(Ordering::SeqCst);
    let pieces =
        (0..64).map(|_| Ok(Bytes::from(vec![1; 64 * 1024]))).chain([Err(s3_error!(BadDigest))]);
    let body = StreamingBlob::wrap(stream::iter(pieces.collect::<Vec<_>>()));
    assert!(client.put_object(put("k", body, 65 * 64 * 1024)).await.is_err());
    assert_eq!(client.get_object(get("k")).await.err().unwrap().code().as_str(), "NoSuchKey");
    assert_eq!(server.writes.load(Ordering::SeqCst), before + 1);
}

#[tokio::test]
async fn a_large_put_streams() {
    const PIECE: usize = 256 * 1024;
    const PIECES: usize = 256;
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", "")]).await;
    let client = raw.client().await;
    // Every piece in memory holds one permit until it is dropped: the body ends only if it is taken
    // bit by bit.
    let room = Arc::new(tokio::sync::Semaphore::new(8));
    struct Piece(Vec<u8>, #[allow(dead_code)] tokio::sync::OwnedSemaphorePermit);
    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let pieces = stream::unfold(0..PIECES, move |mut left| {
        let room = room.clone();
        async move {
            let at = left.next()?;
            let permit = room.acquire_owned().await.unwrap();
            Some((
                Ok::<_, std::io::Error>(Bytes::from_owner(Piece(vec![at as u8; PIECE], permit))),
                left,
            ))
        }
    });
    let body = StreamingBlob::wrap(SyncStream(Box::pin(pieces).into()));
    client.put_object(put("k", body, (PIECE * PIECES) as u64)).await.unwrap();
    let heard = raw.heard.recv().await.unwrap();
    assert_eq!(heard.body.len(), PIECE * PIECES);
    assert!(
        heard
            .body
            .chunks(PIECE)
            .enumerate()
            .all(|(at, piece)| piece.iter().all(|byte| *byte == at as u8))
    );
    assert!(heard.head.to_ascii_lowercase().contains("x-amz-content-sha256: unsigned-payload"));
}

#[tokio::test]
async fn the_clients_framing_is_not_the_objects_encoding() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", ""); 2]).await;
    let client = raw.client().await;
    for (given, sent) in
        [("aws-chunked", None), ("gzip, aws-chunked", Some("content-encoding: gzip\r\n"))]
    {
        let mut request = put("k", text("text"), 4);
        request.input.content_encoding = Some(given.into());
        client.put_object(request).await.unwrap();
        let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
        assert_eq!(head.contains("content-encoding"), sent.is_some(), "{head}");
        assert!(sent.is_none_or(|line| head.contains(line)), "{head}");
        assert!(!head.contains("checksum"), "{head}");
    }
}

#[tokio::test]
async fn a_checksum_that_is_asked_for_is_sent_after_the_body_unless_switched_off() {
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

#[tokio::test]
async fn a_write_without_a_body_says_so() {
    let xml = "<CopyPartResult><ETag>\"e\"</ETag></CopyPartResult>";
    let mut raw = Raw::saying(vec![answer("200 OK", "", xml)]).await;
    let copy = UploadPartCopyInput::builder()
        .bucket("bkt".to_owned())
        .key("k".to_owned())
        .upload_id("u".to_owned())
        .part_number(1)
        .copy_source(CopySource::Bucket {
            bucket: "bkt".into(),
            key: "from".into(),
            version_id: None,
        })
        .build()
        .unwrap();
    raw.client().await.upload_part_copy(req(copy)).await.unwrap();
    // Ceph answers 411 where there is none.
    assert!(
        raw.heard.recv().await.unwrap().head.to_ascii_lowercase().contains("content-length: 0\r\n")
    );
}

// ---- trace context

#[tokio::test]
async fn trace_context_goes_to_the_store_beside_the_signature_and_stays_out_of_it() {
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
