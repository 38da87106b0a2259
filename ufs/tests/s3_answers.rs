//! Tests the S3 client with answers of stores that are not quite S3's, and with additions of the
//! SDK.
#![allow(clippy::unwrap_used)]

mod loopback;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use loopback::{Raw, Server};
use s3s::dto::*;
use s3s::{S3, S3Request};
use verbs3_ufs::local::{LocalOptions, LocalStore};
use verbs3_ufs::raw_answer::{RemoteFailure, observe_answer, remote_failure};

fn req<T>(input: T) -> S3Request<T> {
    verbs3_ufs::s3_request(Method::GET, input)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn head() -> S3Request<HeadObjectInput> {
    req(HeadObjectInput { bucket: "bkt".into(), key: "k".into(), ..Default::default() })
}

fn get() -> S3Request<GetObjectInput> {
    req(GetObjectInput { bucket: "bkt".into(), key: "k".into(), ..Default::default() })
}

/// A PUT whose checksum is asked for after its body.
fn put_with_trailer(encoding: Option<&str>) -> S3Request<PutObjectInput> {
    req(PutObjectInput {
        bucket: "bkt".into(),
        key: "k".into(),
        body: Some(StreamingBlob::from(s3s::Body::from(Bytes::from_static(b"text")))),
        content_length: Some(4),
        content_encoding: encoding.map(str::to_owned),
        checksum_algorithm: Some(ChecksumAlgorithm::from_static(ChecksumAlgorithm::CRC32)),
        ..Default::default()
    })
}

/// The store answers like Ceph RGW 18.2 to the second completion of an upload.
#[tokio::test]
async fn a_completion_without_an_etag_is_a_completion() {
    let xml = "<CompleteMultipartUploadResult><Location>/bkt/k</Location><Bucket>bkt</Bucket><Key>k</Key><ETag></ETag>\
               </CompleteMultipartUploadResult>";
    let mut raw =
        Raw::saying(vec![answer("200 OK", "content-type: application/xml\r\n", xml)]).await;
    let part = CompletedPart {
        e_tag: Some(ETag::Strong("e1".into())),
        part_number: Some(1),
        ..Default::default()
    };
    let input = CompleteMultipartUploadInput {
        bucket: "bkt".into(),
        key: "k".into(),
        upload_id: "u".into(),
        multipart_upload: Some(CompletedMultipartUpload { parts: Some(vec![part]) }),
        if_none_match: Some(ETagCondition::Any),
        mpu_object_size: Some(7),
        ..Default::default()
    };
    let output = raw.client().await.complete_multipart_upload(req(input)).await.unwrap().output;
    assert_eq!((output.key.as_deref(), output.e_tag), (Some("k"), None));
    let heard = raw.heard.recv().await.unwrap();
    let sent = String::from_utf8(heard.body).unwrap();
    assert!(sent.contains("<PartNumber>1</PartNumber>") && sent.contains("e1"), "{sent}");
    let head = heard.head.to_ascii_lowercase();
    assert!(
        head.contains("if-none-match: *") && head.contains("x-amz-mp-object-size: 7"),
        "{head}"
    );
    assert!(head.starts_with("post /bkt/k?uploadid=u"), "{head}");
}

/// The store answers like Ceph RGW 18.2 to sub-resources that it does not know.
#[tokio::test]
async fn a_document_of_another_kind_counts_as_unintelligible() {
    let listing = "<ListBucketResult><Name>bkt</Name><Contents><Key>Error</Key></Contents></ListBucketResult>";
    let raw = Raw::saying(vec![
        answer("200 OK", "", listing),
        answer("200 OK", "", "some <Error> of an object"),
    ])
    .await;
    let client = raw.client().await;
    let input =
        GetBucketAccelerateConfigurationInput { bucket: "bkt".into(), ..Default::default() };
    let error = client.get_bucket_accelerate_configuration(req(input)).await.err().unwrap();
    assert!(matches!(remote_failure(&error), Some(RemoteFailure::Unintelligible(_))), "{error:?}");
    let input = GetBucketOwnershipControlsInput { bucket: "bkt".into(), ..Default::default() };
    let error = client.get_bucket_ownership_controls(req(input)).await.err().unwrap();
    assert!(matches!(remote_failure(&error), Some(RemoteFailure::Unintelligible(_))), "{error:?}");
}

#[tokio::test]
async fn a_document_that_breaks_off_is_no_answer() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 900\r\nconnection: \
        close\r\n\r\n<ListBucketResult><Name>bkt</Name>";
    let raw = Raw::saying(vec![cut.to_owned()]).await;
    let input = ListObjectsV2Input { bucket: "bkt".into(), ..Default::default() };
    let (result, seen) = observe_answer(raw.client().await.list_objects_v2(req(input))).await;
    let error = result.err().unwrap();
    assert!(matches!(remote_failure(&error), Some(RemoteFailure::NoAnswer(_))), "{error:?}");
    assert!(seen.is_none(), "{seen:?}");
}

#[tokio::test]
async fn expires_comes_as_it_was_sent_and_brings_nothing_along() {
    for expires in ["Sun, 06 Nov 1994 08:49:37 GMT", "never"] {
        let headers = format!("etag: \"e\"\r\nexpires: {expires}\r\n");
        let raw = Raw::saying(vec![answer("200 OK", &headers, ""); 2]).await;
        let client = raw.client().await;
        let (_, of_head) = observe_answer(client.head_object(head())).await;
        let (_, of_get) = observe_answer(client.get_object(get())).await;
        for seen in [of_head.unwrap().headers, of_get.unwrap().headers] {
            assert_eq!(seen["expires"], expires);
            assert!(!seen.contains_key("expiresstring"), "{seen:?}");
        }
    }
}

#[tokio::test]
async fn an_object_is_never_encoded_in_the_framing_of_its_upload() {
    for (stored, told) in
        [("aws-chunked", None), ("aws-chunked,gzip", Some("gzip")), ("gzip, br", Some("gzip, br"))]
    {
        let raw =
            Raw::saying(vec![answer("200 OK", &format!("content-encoding: {stored}\r\n"), ""); 2])
                .await;
        let client = raw.client().await;
        let (response, seen) = observe_answer(client.head_object(head())).await;
        assert_eq!(response.unwrap().output.content_encoding.as_deref(), told);
        assert_eq!(
            seen.unwrap().headers.get("content-encoding").map(|value| value.to_str().unwrap()),
            told
        );
        let (response, seen) = observe_answer(client.get_object(get())).await;
        assert_eq!(response.unwrap().output.content_encoding.as_deref(), told);
        assert_eq!(
            seen.unwrap().headers.get("content-encoding").map(|value| value.to_str().unwrap()),
            told
        );
    }
}

#[tokio::test]
async fn framing_and_encoding_go_out_in_one_header() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", ""); 2]).await;
    let client = raw.client().await;
    for (encoding, sent) in [(None, "aws-chunked"), (Some("gzip"), "gzip,aws-chunked")] {
        client.put_object(put_with_trailer(encoding)).await.unwrap();
        let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
        let lines: Vec<&str> =
            head.lines().filter_map(|line| line.strip_prefix("content-encoding: ")).collect();
        assert_eq!(lines, [sent], "{head}");
        assert!(head.contains("x-amz-trailer: x-amz-checksum-crc32"), "{head}");
    }
}

#[tokio::test]
async fn the_names_of_attributes_go_out_in_one_header() {
    let xml =
        "<GetObjectAttributesResponse><ObjectSize>5</ObjectSize></GetObjectAttributesResponse>";
    let mut raw = Raw::saying(vec![answer("200 OK", "", xml)]).await;
    let names = [ObjectAttributes::ETAG, ObjectAttributes::OBJECT_SIZE, ObjectAttributes::CHECKSUM];
    let input = GetObjectAttributesInput {
        bucket: "bkt".into(),
        key: "k".into(),
        object_attributes: names.map(ObjectAttributes::from_static).to_vec(),
        expected_bucket_owner: None,
        max_parts: None,
        part_number_marker: None,
        request_payer: None,
        sse_customer_algorithm: None,
        sse_customer_key: None,
        sse_customer_key_md5: None,
        version_id: None,
    };
    let output = raw.client().await.get_object_attributes(req(input)).await.unwrap().output;
    assert_eq!(output.object_size, Some(5));
    let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
    let lines: Vec<&str> =
        head.lines().filter_map(|line| line.strip_prefix("x-amz-object-attributes: ")).collect();
    assert_eq!(lines, ["etag,objectsize,checksum"], "{head}");
}

/// Checks the signature over the headers on the wire. Like Ceph RGW, this store reads only the
/// first of several headers.
#[tokio::test]
async fn an_encoded_upload_with_a_trailer_is_signed_as_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalOptions { sync: false, ..LocalOptions::new(folder.path()) };
    let server = Server::over(LocalStore::open_store(local).unwrap()).await;
    let client: Arc<dyn S3> = server.client().await;
    client
        .create_bucket(req(CreateBucketInput { bucket: "bkt".into(), ..Default::default() }))
        .await
        .unwrap();
    client.put_object(put_with_trailer(Some("gzip"))).await.unwrap();
    let output = client.head_object(head()).await.unwrap().output;
    assert_eq!(
        (output.content_encoding.as_deref(), output.content_length),
        (Some("gzip"), Some(4))
    );
}
