//! aws-chunked bodies over raw sockets: the three streaming forms, and each way in which they lie.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::gateway_fixture::{Answer, GatewayFixture};
use crate::signing::{Request, Seed};
use verbs3_settings::ByteSize;

const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// CRC-32 of "hello world, in chunks".
pub fn crc32(bytes: &[u8]) -> String {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    BASE64.encode((!crc).to_be_bytes())
}

fn request(form: &str, declared: usize) -> Request {
    let request =
        Request::new("PUT", "/data/key").payload(form).header("content-encoding", "aws-chunked");
    let request = request.header("x-amz-decoded-content-length", &declared.to_string());
    if form == SIGNED { request } else { request.header("x-amz-trailer", "x-amz-checksum-crc32") }
}

fn signed_chunks(seed: &mut Seed, chunks: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in chunks {
        body.extend(
            format!("{:x};chunk-signature={}\r\n", chunk.len(), seed.chunk(chunk)).into_bytes(),
        );
        body.extend_from_slice(chunk);
        if !chunk.is_empty() {
            body.extend(b"\r\n");
        }
    }
    body
}

async fn send(
    fixture: &GatewayFixture,
    request: Request,
    body: impl FnOnce(&mut Seed) -> Vec<u8>,
) -> Answer {
    // Chunk signatures start from the request's own, so that the length must be known before: it is
    // not signed.
    let (head, mut seed) = request.signed(&fixture.host());
    let body = body(&mut seed);
    let head = head.replace(
        "connection: close",
        &format!("content-length: {}\r\nconnection: close", body.len()),
    );
    fixture.exchange(&head, &body).await
}

fn unsigned(data: &[u8], trailers: &str) -> Vec<u8> {
    let mut body = format!("{:x}\r\n", data.len()).into_bytes();
    body.extend_from_slice(data);
    body.extend(format!("\r\n0\r\n{trailers}\r\n").into_bytes());
    body
}

async fn stored(fixture: &GatewayFixture) -> Vec<u8> {
    let answer = fixture.get("/data/key").await;
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.contains_key("content-encoding"), "{:?}", answer.headers);
    answer.body
}

#[tokio::test]
async fn signed_chunks_are_stored_without_their_framing() {
    let fixture = GatewayFixture::start().await;
    let answer = send(&fixture, request(SIGNED, 11), |seed| {
        let mut body = signed_chunks(seed, &[b"hello ", b"world", b""]);
        body.extend(b"\r\n");
        body
    })
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(stored(&fixture).await, b"hello world");
}

#[tokio::test]
async fn signed_chunks_with_a_signed_trailer_are_stored() {
    let fixture = GatewayFixture::start().await;
    let answer = send(&fixture, request(SIGNED_TRAILER, 11), |seed| {
        let mut body = signed_chunks(seed, &[b"hello ", b"world", b""]);
        let trailer = format!("x-amz-checksum-crc32:{}", crc32(b"hello world"));
        let signature = seed.trailer(&format!("{trailer}\n"));
        body.extend(
            format!("{trailer}\r\nx-amz-trailer-signature:{signature}\r\n\r\n").into_bytes(),
        );
        body
    })
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(stored(&fixture).await, b"hello world");
}

#[tokio::test]
async fn unsigned_chunks_with_a_trailer_are_stored() {
    let fixture = GatewayFixture::start().await;
    let body =
        unsigned(b"hello world", &format!("x-amz-checksum-crc32:{}\r\n", crc32(b"hello world")));
    let answer = send(&fixture, request(UNSIGNED_TRAILER, 11), |_| body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(stored(&fixture).await, b"hello world");
}

/// The token `aws-chunked`, which s3s leaves in the header, must not reach the store. The object's
/// own encoding must.
#[tokio::test]
async fn the_objects_own_encoding_is_kept() {
    let fixture = GatewayFixture::start().await;
    let mut request = request(SIGNED, 2);
    request.headers[0].1 = "gzip,aws-chunked".to_owned();
    let answer = send(&fixture, request, |seed| {
        let mut body = signed_chunks(seed, &[b"ab", b""]);
        body.extend(b"\r\n");
        body
    })
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(fixture.get("/data/key").await.headers["content-encoding"], "gzip");
}

/// s3s does not verify it.
#[tokio::test]
async fn a_wrong_trailing_checksum_is_a_bad_digest_and_stores_nothing() {
    let fixture = GatewayFixture::start().await;
    let body = unsigned(b"hello world", "x-amz-checksum-crc32:AAAAAA==\r\n");
    let answer = send(&fixture, request(UNSIGNED_TRAILER, 11), |_| body).await;
    assert_eq!(answer.error(), (400, "BadDigest".to_owned()));
    assert!(!fixture.visible("data", "key").await);
    assert!(fixture.told().is_empty(), "{:?}", fixture.told());
}

#[tokio::test]
async fn an_announced_trailer_must_come() {
    let fixture = GatewayFixture::start().await;
    let body = unsigned(b"hello world", "");
    let answer = send(&fixture, request(UNSIGNED_TRAILER, 11), |_| body).await;
    assert_eq!(answer.error(), (400, "MalformedTrailerError".to_owned()));
    assert!(!fixture.visible("data", "key").await);
}

/// 11,000 bytes announced, 5 sent, the framing ending between two chunks: s3s accepts that.
#[tokio::test]
async fn five_bytes_of_eleven_thousand_are_not_stored() {
    for end in [&b""[..], b"final"] {
        let fixture = GatewayFixture::start().await;
        let answer = send(&fixture, request(SIGNED, 11_000), |seed| {
            let mut body = signed_chunks(seed, &[b"hello"]);
            if !end.is_empty() {
                body.extend(signed_chunks(seed, &[b""]));
                body.extend(b"\r\n");
            }
            body
        })
        .await;
        assert_eq!(answer.error(), (400, "IncompleteBody".to_owned()));
        assert!(!fixture.visible("data", "key").await);
        assert!(fixture.told().is_empty());
    }
}

#[tokio::test]
async fn more_than_announced_is_not_stored() {
    let fixture = GatewayFixture::start().await;
    let answer = send(&fixture, request(SIGNED, 5), |seed| {
        let mut body = signed_chunks(seed, &[b"hello", b"!", b""]);
        body.extend(b"\r\n");
        body
    })
    .await;
    assert_eq!(answer.error(), (400, "IncompleteBody".to_owned()));
    assert!(!fixture.visible("data", "key").await);
}

#[tokio::test]
async fn a_wrong_chunk_signature_does_not_match() {
    let fixture = GatewayFixture::start().await;
    let answer = send(&fixture, request(SIGNED, 11), |seed| {
        let mut body = signed_chunks(seed, &[b"hello ", b"world", b""]);
        body.extend(b"\r\n");
        let at = body.windows(5).position(|window| window == b"world").unwrap();
        body[at] = b'W';
        body
    })
    .await;
    assert_eq!(answer.error(), (403, "SignatureDoesNotMatch".to_owned()));
    assert!(!fixture.visible("data", "key").await);
}

#[tokio::test]
async fn garbage_after_the_end_is_refused() {
    let fixture = GatewayFixture::start().await;
    let right = format!("x-amz-checksum-crc32:{}\r\n", crc32(b"hello world"));
    let mut garbage = unsigned(b"hello world", &right);
    garbage.extend(b"more");
    let answer = send(&fixture, request(UNSIGNED_TRAILER, 11), |_| garbage).await;
    assert_eq!(answer.error(), (400, "InvalidRequest".to_owned()));
    assert!(!fixture.visible("data", "key").await);
}

/// minio-go ends a trailer by LF, and writes an empty line before the trailers' signature.
#[tokio::test]
async fn the_trailer_framing_of_minio_go_is_accepted() {
    let fixture = GatewayFixture::start().await;
    let trailer = format!("x-amz-checksum-crc32:{}\n", crc32(b"hello world"));
    for end in ["", "\r\n"] {
        let body = unsigned(b"hello world", &format!("{trailer}{end}"));
        let answer = send(&fixture, request(UNSIGNED_TRAILER, 11), |_| body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let answer = send(&fixture, request(SIGNED_TRAILER, 11), |seed| {
        let mut body = signed_chunks(seed, &[b"hello world", b""]);
        body.extend(
            format!("{trailer}\r\nx-amz-trailer-signature:{}\r\n\r\n", seed.trailer(&trailer))
                .into_bytes(),
        );
        body
    })
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(stored(&fixture).await, b"hello world");
}

/// s3s reads documents, and holds a chunk of one whole.
#[tokio::test]
async fn a_document_in_chunks_is_bounded_and_must_end() {
    let fixture =
        GatewayFixture::start_with(|setup| setup.settings.limits.xml_max = ByteSize(4096)).await;
    assert_eq!(fixture.put("/data/key", b"hello").await.status, 200);
    let delete = |form: &str, declared: usize| {
        let request = Request::new("POST", "/data").query("delete=").payload(form);
        request.header("x-amz-decoded-content-length", &declared.to_string())
    };
    let document = &b"<Delete><Object><Key>key</Key></Object></Delete>"[..];
    let cut =
        send(&fixture, delete(SIGNED, document.len()), |seed| signed_chunks(seed, &[document]))
            .await;
    assert_eq!(cut.error(), (400, "IncompleteBody".to_owned()));
    let large = vec![b' '; 5000];
    let huge =
        send(&fixture, delete(SIGNED, 5000), |seed| signed_chunks(seed, &[&large, b""])).await;
    assert_eq!(huge.error(), (400, "InvalidRequest".to_owned()));
    assert!(fixture.visible("data", "key").await);
}

/// s3s would read `5x` as 5.
#[tokio::test]
async fn chunks_are_guarded_whatever_their_length_header_says() {
    let fixture = GatewayFixture::start().await;
    for (length, status) in [("65x", 400), ("+65", 400), ("", 400), ("99999999999999999999", 400)] {
        let mut request = request(SIGNED, 65);
        request.headers[1].1 = length.to_owned();
        let answer = send(&fixture, request, |seed| signed_chunks(seed, &[&[7; 65], b""])).await;
        assert_eq!(answer.error(), (status, "InvalidRequest".to_owned()), "{length}");
    }
    let mut request = request(SIGNED, 65);
    request.headers.remove(1);
    let answer = send(&fixture, request, |seed| signed_chunks(seed, &[&[7; 65], b""])).await;
    assert_eq!(answer.error(), (411, "MissingContentLength".to_owned()));
    assert!(!fixture.visible("data", "key").await);
}
