//! The last frame stays back until all is proved, whatever the cut of the body.
#![allow(clippy::unwrap_used)]

use futures::{StreamExt, stream};
use http::HeaderMap;

use super::*;

fn body(
    frames: &[&'static str],
    declared: u64,
    headers: &HeaderMap,
) -> (VerifiedBody, BodyVerdict) {
    let frames: Vec<Result<Bytes, std::io::Error>> =
        frames.iter().map(|frame| Ok(Bytes::from_static(frame.as_bytes()))).collect();
    let inner = StreamingBlob::wrap(stream::iter(frames));
    let checks = BodyChecks::from_headers(declared, headers, None).unwrap();
    VerifiedBody::new(inner, declared, checks, None, FaultSlot::default())
}

async fn sent(mut body: VerifiedBody) -> (String, bool) {
    let mut sent = String::new();
    while let Some(frame) = body.next().await {
        let Ok(frame) = frame else { return (sent, false) };
        sent.push_str(std::str::from_utf8(&frame).unwrap());
    }
    (sent, true)
}

#[tokio::test]
async fn a_right_body_passes_whole() {
    for frames in [&["hello"][..], &["he", "", "llo"], &["h", "e", "l", "l", "o", ""]] {
        let (body, verdict) = body(frames, 5, &HeaderMap::new());
        assert_eq!(body.remaining_length().exact(), Some(5));
        assert_eq!(sent(body).await, ("hello".to_owned(), true));
        assert!(verdict.is_released() && verdict.take_error().is_none());
    }
}

#[tokio::test]
async fn a_wrong_body_never_gives_its_last_frame() {
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-checksum-crc32", "AAAAAA==".parse().unwrap());
    let (body, verdict) = body(&["hel", "lo"], 5, &headers);
    assert_eq!(sent(body).await, ("hel".to_owned(), false));
    assert!(!verdict.is_released());
    assert_eq!(verdict.take_error().unwrap().code().as_str(), "BadDigest");
}

#[tokio::test]
async fn short_and_long_bodies_are_cut() {
    for (frames, passed) in [(&["he", "l"][..], "he"), (&["hello", "!"], ""), (&["hello!"], "")] {
        let (body, verdict) = body(frames, 5, &HeaderMap::new());
        assert_eq!(sent(body).await, (passed.to_owned(), false));
        assert_eq!(verdict.take_error().unwrap().code().as_str(), "IncompleteBody");
    }
}

#[tokio::test]
async fn a_fault_found_below_is_the_one_that_is_told() {
    let (mut body, verdict) = body(&["hel", "lo"], 5, &HeaderMap::new());
    body.below = FaultSlot::new(Mutex::new(Some(BodyFault::Idle { idle_ms: 7 })));
    assert!(!sent(body).await.1);
    assert_eq!(verdict.take_error().unwrap().code().as_str(), "RequestTimeout");
}
