//! Bodies signed by an independent implementation (the AWS SDK's), however they are cut into chunks
//! and frames, and what becomes of them when a byte is changed.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::sign::v4::{SigningParams, sign_chunk, sign_trailer};
use aws_smithy_runtime_api::client::identity::Identity;
use aws_smithy_runtime_api::http::Headers;
use futures::StreamExt as _;
use futures::executor::block_on;
use http_body::Frame;
use proptest::prelude::*;

use super::*;

const SECRET: &str = "a-secret";
/// 2013-05-24T00:00:00Z
const MOMENT: Duration = Duration::from_secs(1_369_353_600);
const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";

/// Frames as they come from a socket.
struct Frames(VecDeque<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Signed,
    SignedTrailer,
    Unsigned,
}

impl Form {
    fn header(self) -> &'static str {
        match self {
            Form::Signed => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            Form::SignedTrailer => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            Form::Unsigned => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        }
    }
}

/// The body as a client of the SDK frames it. `chunk`: the length of each but the last.
fn framed(form: Form, data: &[u8], chunk: usize) -> Vec<u8> {
    let identity = Identity::from(Credentials::new("AK", SECRET, None, None, "test"));
    let params = SigningParams::builder().identity(&identity).region("eu-north-1").name("s3");
    let params = params.time(UNIX_EPOCH + MOMENT).settings(()).build().unwrap();
    let mut signature = SEED.to_owned();
    let mut body = Vec::new();
    for chunk in data.chunks(chunk).chain([&[][..]]) {
        body.extend(format!("{:x}", chunk.len()).bytes());
        if form != Form::Unsigned {
            let signed = sign_chunk(&Bytes::copy_from_slice(chunk), &signature, &params).unwrap();
            signature = signed.signature().to_owned();
            body.extend(format!(";chunk-signature={signature}").bytes());
        }
        body.extend(b"\r\n");
        body.extend(chunk);
        body.extend(if chunk.is_empty() { &b""[..] } else { b"\r\n" });
    }
    if form != Form::Signed {
        let mut trailers = Headers::new();
        trailers.insert("x-amz-checksum-crc32", "NhCmhg==");
        body.extend(b"x-amz-checksum-crc32:NhCmhg==\r\n");
        if form == Form::SignedTrailer {
            let signed = sign_trailer(&trailers, &signature, &params).unwrap();
            body.extend(format!("x-amz-trailer-signature:{}\r\n", signed.signature()).bytes());
        }
    }
    body.extend(b"\r\n");
    body
}

fn request(form: Form) -> S3Request<()> {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential=AK/20130524/eu-north-1/s3/aws4_request, SignedHeaders=host, \
        Signature={SEED}"
    );
    let headers = [
        ("authorization", authorization.as_str()),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-content-sha256", form.header()),
    ];
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    S3Request {
        input: (),
        method: http::Method::PUT,
        uri: http::Uri::from_static("/b/k"),
        headers: HeaderMap::from_iter(headers),
        extensions: http::Extensions::new(),
        credentials: Some(s3s::auth::Credentials {
            access_key: "AK".to_owned(),
            secret_key: SECRET.into(),
        }),
        region: None,
        service: None,
        trailing_headers: None,
    }
}

/// The data and the trailers, or why not. No piece is longer than its frame.
fn unwrapped(
    form: Form,
    body: &[u8],
    frame: usize,
    declared: u64,
) -> Result<(Vec<u8>, HeaderMap), BodyFault> {
    let frames = Frames(body.chunks(frame).map(Bytes::copy_from_slice).collect());
    let (mut chunked, proven) = ChunkedBody::new(Some(frames), &request(form), declared).unwrap();
    let mut data = Vec::new();
    block_on(async {
        while let Some(piece) = chunked.next().await {
            let piece =
                piece.map_err(|error| error.downcast_ref::<BodyFault>().unwrap().clone())?;
            assert!(
                piece.len() <= frame && chunked.scanner.held_bytes() <= 1024,
                "nothing is collected"
            );
            data.extend_from_slice(&piece);
        }
        Ok::<_, BodyFault>(())
    })?;
    assert!(block_on(chunked.next()).is_none());
    let trailers = proven.lock().take().expect("trailers are proven at the end");
    Ok((data, trailers))
}

fn any_form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Signed), Just(Form::SignedTrailer), Just(Form::Unsigned)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_the_sdk_signs_is_unwrapped(
        form in any_form(),
        data in prop::collection::vec(any::<u8>(), 0..2000),
        chunk in 1..700_usize,
        frame in 1..900_usize,
    ) {
        let body = framed(form, &data, chunk);
        let (got, trailers) = unwrapped(form, &body, frame, data.len() as u64).unwrap();
        prop_assert_eq!(got, data);
        prop_assert_eq!(trailers.contains_key("x-amz-checksum-crc32"), form != Form::Signed);
    }

    /// Some bytes of the framing have no meaning of their own; none changes the data or the
    /// trailers.
    #[test]
    fn a_changed_byte_of_a_signed_body_is_found_or_changes_nothing(
        trailer in any::<bool>(),
        data in prop::collection::vec(any::<u8>(), 0..300),
        chunk in 1..100_usize,
        frame in 1..200_usize,
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let form = if trailer { Form::SignedTrailer } else { Form::Signed };
        let right = framed(form, &data, chunk);
        let mut body = right.clone();
        let at = at.index(body.len());
        body[at] = to;
        let wanted = unwrapped(form, &right, frame, data.len() as u64).unwrap();
        if let Ok(got) = unwrapped(form, &body, frame, data.len() as u64) {
            prop_assert_eq!(got, wanted, "byte {} became {}", at, to);
        }
    }

    #[test]
    fn a_body_that_is_cut_anywhere_is_not_whole(
        form in any_form(),
        data in prop::collection::vec(any::<u8>(), 1..300),
        chunk in 1..100_usize,
        at in any::<prop::sample::Index>(),
    ) {
        let body = framed(form, &data, chunk);
        // The last empty line may be missing.
        let at = at.index(body.len() - 2);
        // A body that lost its trailers alone is whole; that they were announced is for the checks
        // to know.
        if let Ok((got, trailers)) = unwrapped(form, &body[..at], 64, data.len() as u64) {
            prop_assert!(got == data && trailers.is_empty() && form != Form::Signed);
        }
    }
}

#[test]
fn chunks_out_of_order_and_unsigned_ones_are_refused() {
    let body = framed(Form::Signed, b"hello world!", 6);
    let (one, two) = (b"hello ", b"world!");
    let at = |text: &[u8]| body.windows(text.len()).position(|window| window == text).unwrap();
    let header = at(one);
    let (first, second) = (&body[..at(one) + 8], &body[at(one) + 8..at(two) + 8]);
    let swapped = [second, first, &body[at(two) + 8..]].concat();
    assert_eq!(unwrapped(Form::Signed, &swapped, 16, 12), Err(BodyFault::ChunkSignature));
    assert!(header > 64);
    let plain = b"5\r\nhello\r\n0\r\n\r\n";
    assert!(matches!(unwrapped(Form::Signed, plain, 16, 5), Err(BodyFault::Chunks(_))));
    assert!(unwrapped(Form::Unsigned, plain, 16, 5).is_ok());
}

#[test]
fn signed_bodies_take_no_trailer_that_is_not_signed() {
    let body = framed(Form::SignedTrailer, b"hello", 5);
    let at = body.windows(24).position(|window| window == b"x-amz-trailer-signature:").unwrap();
    let stripped = [&body[..at], b"\r\n"].concat();
    assert_eq!(unwrapped(Form::SignedTrailer, &stripped, 16, 5), Err(BodyFault::ChunkSignature));
}

/// As minio-go frames it: LF after the trailer, an empty line, then its signature.
#[test]
fn a_signed_trailer_of_minio_go_is_accepted() {
    let body = framed(Form::SignedTrailer, b"hello", 5);
    let text = b"NhCmhg==\r\nx-amz-trailer";
    let at = body.windows(text.len()).position(|window| window == text).unwrap() + 8;
    let go = [&body[..at], b"\n", &body[at..]].concat();
    let (data, trailers) = unwrapped(Form::SignedTrailer, &go, 16, 5).unwrap();
    assert_eq!(
        (&data[..], &trailers["x-amz-checksum-crc32"]),
        (&b"hello"[..], &HeaderValue::from_static("NhCmhg=="))
    );
}
