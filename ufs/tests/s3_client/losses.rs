//! Tests what the typed interface would lose on its way to a store or back: checksums' algorithms,
//! metadata outside ASCII, documents, events.

use crc_fast::{CrcAlgorithm, checksum};
use futures::TryStreamExt;
use s3s::dto::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use verbs3_ufs::raw_answer::observe_answer;
use verbs3_ufs::s3::connect_store;

use crate::loopback::{Raw, settings};
use crate::{answer, put, req, text};

#[tokio::test]
async fn checksums_go_with_their_algorithm_and_metadata_as_written() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", ""); 3]).await;
    let client = raw.client().await;
    let mut known = put("k", text("hello"), 5);
    known.input.checksum_crc32 = Some("NhCmhg==".into());
    known.input.metadata = Some(Metadata::from_iter([("note".to_owned(), "é".to_owned())]));
    known.headers.insert("x-amz-sdk-checksum-algorithm", "CRC32".parse().unwrap());
    known.headers.insert("x-amz-meta-note", "=?UTF-8?B?w6k=?=".parse().unwrap());
    client.put_object(known).await.unwrap();
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    assert!(head.contains("x-amz-sdk-checksum-algorithm: crc32\r\n"), "{head}");
    assert!(
        head.contains("x-amz-checksum-crc32: nhcmhg==\r\n") && !head.contains("x-amz-trailer"),
        "{head}"
    );
    assert_eq!(head.matches("x-amz-meta-note").count(), 2, "once sent and once signed: {head}");
    assert!(head.contains("x-amz-meta-note: =?utf-8?b?w6k=?=\r\n"), "{head}");

    let mut other = put("k", text("hello"), 5);
    other.headers.insert("x-amz-checksum-xxhash64", "AAAAAAAAAAA=".parse().unwrap());
    client.put_object(other).await.unwrap();
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    assert!(head.contains("x-amz-checksum-xxhash64: aaaaaaaaaaa=\r\n"), "{head}");

    client.put_object(put("k", text("hello"), 5)).await.unwrap();
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    assert!(!head.contains("checksum"), "none is added: {head}");
}

#[tokio::test]
async fn a_part_has_the_type_that_its_client_gave_it_or_none() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", ""); 2]).await;
    let client = raw.client().await;
    for kind in [None, Some("text/plain")] {
        let mut part = req(UploadPartInput {
            bucket: "bkt".into(),
            key: "k".into(),
            part_number: 1,
            upload_id: "u".into(),
            body: Some(text("hello")),
            content_length: Some(5),
            ..Default::default()
        });
        if let Some(kind) = kind {
            part.headers.insert("content-type", kind.parse().unwrap());
        }
        client.upload_part(part).await.unwrap();
        let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
        let line = head.lines().find_map(|line| line.strip_prefix("content-type: "));
        assert_eq!(line, kind, "{head}");
    }
}

#[tokio::test]
async fn attributes_keep_their_document() {
    let document =
        "<GetObjectAttributesResponse><ETag>abc</ETag><Odd>1</Odd></GetObjectAttributesResponse>";
    let raw =
        Raw::saying(vec![answer("200 OK", "content-type: application/xml\r\n", document)]).await;
    let input =
        GetObjectAttributesInput { bucket: "bkt".into(), key: "k".into(), ..Default::default() };
    let (result, seen) = observe_answer(raw.client().await.get_object_attributes(req(input))).await;
    assert!(result.is_ok());
    assert_eq!(seen.unwrap().body, document.as_bytes());
}

/// A message of an event stream, with headers that are texts.
fn message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (name, value) in headers {
        encoded.push(name.len() as u8);
        encoded.extend(name.bytes());
        encoded.push(7);
        encoded.extend((value.len() as u16).to_be_bytes());
        encoded.extend(value.bytes());
    }
    let crc = |bytes: &[u8]| (checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32).to_be_bytes();
    let mut message = ((16 + encoded.len() + payload.len()) as u32).to_be_bytes().to_vec();
    message.extend((encoded.len() as u32).to_be_bytes());
    message.extend(crc(&message));
    message.extend(encoded);
    message.extend(payload);
    message.extend(crc(&message));
    message
}

#[tokio::test]
async fn an_error_among_the_events_of_a_select_keeps_code_and_message() {
    let event = [
        (":message-type", "event"),
        (":event-type", "Records"),
        (":content-type", "application/octet-stream"),
    ];
    let error = [
        (":message-type", "error"),
        (":error-code", "OverMaxRecordSize"),
        (":error-message", "too long"),
    ];
    let body = [message(&event, b"1,2\n"), message(&error, b"")].concat();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = connect_store(&settings(listener.local_addr().unwrap())).await.unwrap();
    let store = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut question = Vec::new();
        while !question.ends_with(b"</SelectObjectContentRequest>") {
            assert!(socket.read_buf(&mut question).await.unwrap() > 0);
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await.unwrap();
        socket.write_all(&body).await.unwrap();
    });
    let request = SelectObjectContentRequest {
        expression: "select * from s3object".into(),
        expression_type: ExpressionType::from_static(ExpressionType::SQL),
        input_serialization: InputSerialization {
            csv: Some(CSVInput::default()),
            ..Default::default()
        },
        output_serialization: OutputSerialization {
            csv: Some(CSVOutput::default()),
            ..Default::default()
        },
        request_progress: None,
        scan_range: None,
    };
    let input = SelectObjectContentInput {
        bucket: "bkt".into(),
        key: "k".into(),
        expected_bucket_owner: None,
        sse_customer_algorithm: None,
        sse_customer_key: None,
        sse_customer_key_md5: None,
        request,
    };
    let answered = client.select_object_content(req(input)).await.unwrap();
    let mut events = answered.output.payload.unwrap();
    let first = events.try_next().await.unwrap();
    assert!(matches!(first, Some(SelectObjectContentEvent::Records(_))), "{first:?}");
    let error = events.try_next().await.unwrap_err();
    assert_eq!((error.code().as_str(), error.message()), ("OverMaxRecordSize", Some("too long")));
    assert!(events.try_next().await.unwrap().is_none());
    store.await.unwrap();
}
