//! Uploads as HTTP requests through s3s: aws-chunked framing and trailing checksums, which have no
//! form without it.

use http::{Request, StatusCode};
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use sha2::{Digest, Sha256};

use super::*;

const ACCESS: &str = "AKIDEXAMPLE";
const SECRET: &str = "secret";
const PAYLOAD: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// CRC-32 of "123456789" is the check value cbf43926 of its catalogue entry.
const RIGHT: &str = "x-amz-checksum-crc32:y/Q5Jg==\r\n";

fn hmac(key: &[u8], message: &str) -> Vec<u8> {
    // RFC 2104 with SHA-256's block of 64 bytes; the keys here are shorter.
    let pad = |byte: u8| -> Vec<u8> {
        (0..64).map(|i| key.get(i).copied().unwrap_or(0) ^ byte).collect()
    };
    let inner = Sha256::digest([pad(0x36), message.as_bytes().to_vec()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

/// A signed PUT of an aws-chunked body (AWS Signature Version 4, "Signature calculations: trailing
/// headers").
fn signed_put(decoded_len: usize, framed: String) -> Request<Body> {
    let now = time::OffsetDateTime::now_utc();
    let date = format!("{:04}{:02}{:02}", now.year(), u8::from(now.month()), now.day());
    let stamp = format!("{date}T{:02}{:02}{:02}Z", now.hour(), now.minute(), now.second());
    let headers = vec![
        ("content-encoding", "aws-chunked".to_owned()),
        ("host", "localhost".to_owned()),
        ("x-amz-content-sha256", PAYLOAD.to_owned()),
        ("x-amz-date", stamp.clone()),
        ("x-amz-decoded-content-length", decoded_len.to_string()),
        ("x-amz-trailer", "x-amz-checksum-crc32".to_owned()),
    ];
    let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("PUT\n/bucket/k\n\n{lines}\n{names}\n{PAYLOAD}");
    let scope = format!("{date}/us-east-1/s3/aws4_request");
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}",
        hex::encode(Sha256::digest(canonical.as_bytes()))
    );
    let key = ["us-east-1", "s3", "aws4_request"]
        .iter()
        .fold(hmac(format!("AWS4{SECRET}").as_bytes(), &date), |key, word| hmac(&key, word));
    let signature = hex::encode(hmac(&key, &to_sign));
    let mut request =
        Request::put("http://localhost/bucket/k").header("content-length", framed.len()).header(
            "authorization",
            format!(
                "AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, \
            Signature={signature}"
            ),
        );
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(Body::from(framed)).unwrap()
}

fn framed(text: &str, trailer: &str) -> String {
    format!("{:x}\r\n{text}\r\n0\r\n{trailer}\r\n", text.len())
}

async fn service(root: &Path) -> (LocalStore, S3Service) {
    let store = open_with_bucket(root).await;
    let mut builder = S3ServiceBuilder::new(store.clone());
    builder.set_auth(SimpleAuth::from_single(ACCESS, SECRET));
    (store, builder.build())
}

async fn send(service: &S3Service, request: Request<Body>) -> (StatusCode, String) {
    let response = service.call(request).await.unwrap();
    let status = response.status();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn a_trailing_checksum_is_verified_before_the_object_shows() {
    let folder = tempfile::tempdir().unwrap();
    let (store, service) = service(folder.path()).await;
    let right = framed("123456789", RIGHT);
    let wrong = framed("123456789", "x-amz-checksum-crc32:y/Q5Jw==\r\n");
    let absent = framed("123456789", "");

    let (status, body) = send(&service, signed_put(9, wrong)).await;
    assert!(
        status == StatusCode::BAD_REQUEST && body.contains("<Code>BadDigest</Code>"),
        "{status} {body}"
    );
    let (status, body) = send(&service, signed_put(9, absent)).await;
    assert!(status == StatusCode::BAD_REQUEST, "{status} {body}");
    assert_eq!(get(&store, "k").await.unwrap_err().code().as_str(), "NoSuchKey");

    let (status, body) = send(&service, signed_put(9, right)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(get(&store, "k").await.unwrap(), b"123456789");
    let head = HeadObjectInput {
        bucket: "bucket".to_owned(),
        key: "k".to_owned(),
        checksum_mode: Some(ChecksumMode::from_static(ChecksumMode::ENABLED)),
        ..Default::default()
    };
    let head = store.head_object(req(head)).await.unwrap().output;
    assert_eq!(head.checksum_crc32.as_deref(), Some("y/Q5Jg=="));
    assert_eq!(head.content_encoding, None, "aws-chunked is how it was sent, not what it is");
}

#[tokio::test]
async fn the_decoded_length_is_enforced() {
    let folder = tempfile::tempdir().unwrap();
    let (store, service) = service(folder.path()).await;
    for decoded_len in [5, 8, 10, 11_000] {
        let (status, body) =
            send(&service, signed_put(decoded_len, framed("123456789", RIGHT))).await;
        let refused =
            status == StatusCode::BAD_REQUEST && body.contains("<Code>IncompleteBody</Code>");
        assert!(refused, "{decoded_len}: {status} {body}");
        assert_eq!(
            get(&store, "k").await.unwrap_err().code().as_str(),
            "NoSuchKey",
            "{decoded_len}"
        );
    }
    let (status, body) = send(&service, signed_put(9, framed("123456789", RIGHT))).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn a_truncated_body_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, service) = service(folder.path()).await;
    let cut = "9\r\n12345".to_owned();
    let (status, body) = send(&service, signed_put(9, cut)).await;
    assert!(
        status == StatusCode::BAD_REQUEST && body.contains("<Code>IncompleteBody</Code>"),
        "{status} {body}"
    );
    assert_eq!(get(&store, "k").await.unwrap_err().code().as_str(), "NoSuchKey");
}
