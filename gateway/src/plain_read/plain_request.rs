//! Recognises plain reads. Takes the one form that SDKs and presigned URLs have: path style, a key
//! that needs no encoding, no parameter and no header that changes what is asked for, but a range
//! and the wish for checksums. Takes less than s3s, never more. Verifies nothing.

use http::header::{HOST, RANGE};
use http::{HeaderMap, Method, Request, Version};
use http_body::Body;
use s3s::dto::Range;
use s3s::host::S3Host as _;

use super::plain_proof::PlainProof;
use crate::http::{HostDomains, plain_range};
use crate::mount::KEY_BYTES_MAX;

/// What a GET or HEAD of the plain form asks for.
#[derive(Debug, PartialEq)]
pub(crate) struct PlainTarget<'a> {
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    pub(crate) is_head: bool,
    pub(crate) range: Option<Range>,
    /// `x-amz-checksum-mode: ENABLED`
    pub(crate) checksums: bool,
}

/// A GET or HEAD of one object, as its sender claims it.
#[derive(Debug, PartialEq)]
pub(super) struct PlainRequest<'a> {
    pub(super) target: PlainTarget<'a>,
    pub(super) proof: PlainProof<'a>,
}

impl<'a> PlainRequest<'a> {
    /// Recognises a plain read. `None`: s3s has to look at it.
    pub(super) fn recognise_request<B: Body>(
        request: &'a Request<B>,
        domains: &HostDomains,
    ) -> Option<Self> {
        let target = PlainTarget::recognise_target(request, domains)?;
        let proof = PlainProof::read_proof(request)?;
        Some(Self { target, proof })
    }
}

impl<'a> PlainTarget<'a> {
    /// Recognises what is asked for, whoever asks. `None`: s3s has to look at it.
    pub(super) fn recognise_target<B: Body>(
        request: &'a Request<B>,
        domains: &HostDomains,
    ) -> Option<Self> {
        let is_head = *request.method() == Method::HEAD;
        let (uri, headers) = (request.uri(), request.headers());
        if !(is_head || *request.method() == Method::GET)
            || request.version() != Version::HTTP_11
            || uri.authority().is_some()
            || !request.body().is_end_stream()
            || !has_plain_headers(headers)
        {
            return None;
        }
        let host = headers.get(HOST)?.to_str().ok()?;
        if domains.parse_host_header(host).ok()?.bucket().is_some() {
            return None;
        }
        let (bucket, key) = split_plain_path(uri.path())?;
        let range = match headers.get(RANGE) {
            None => None,
            Some(range) => Some(plain_range(range)?),
        };
        let checksums = match headers.get("x-amz-checksum-mode") {
            None => false,
            Some(mode) if mode == "ENABLED" => true,
            Some(_) => return None,
        };
        Some(Self { bucket, key, is_head, range, checksums })
    }
}

/// Returns whether each header is a known one that comes once.
fn has_plain_headers(headers: &HeaderMap) -> bool {
    headers.len() == headers.keys_len() && headers.keys().all(|name| is_plain_header(name.as_str()))
}

/// Returns whether a plain read may have a header. All others change the answer, or might.
fn is_plain_header(name: &str) -> bool {
    matches!(
        name,
        "accept"
            | "accept-encoding"
            | "accept-language"
            | "amz-sdk-invocation-id"
            | "amz-sdk-request"
            | "authorization"
            | "cache-control"
            | "connection"
            | "host"
            | "pragma"
            | "range"
            | "traceparent"
            | "tracestate"
            | "user-agent"
            | "x-amz-checksum-mode"
            | "x-amz-content-sha256"
            | "x-amz-date"
            | "x-amz-user-agent"
    )
}

/// Splits `/bucket/key`. `None`: the names are not plain.
fn split_plain_path(path: &str) -> Option<(&str, &str)> {
    let (bucket, key) = path.strip_prefix('/')?.split_once('/')?;
    are_plain_names(bucket, key).then_some((bucket, key))
}

/// Returns whether a bucket and a key stand in a path as they are: no character has to be decoded or
/// encoded, no segment is empty or made of dots, and both have a valid length.
pub(super) fn are_plain_names(bucket: &str, key: &str) -> bool {
    let in_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let in_bucket =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let whole = |part: &str| !part.is_empty() && part.bytes().any(|byte| byte != b'.');
    (3..=63).contains(&bucket.len())
        && bucket.bytes().all(in_bucket)
        && key.len() <= KEY_BYTES_MAX
        && key.bytes().all(in_key)
        && whole(bucket)
        && key.split('/').all(whole)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_instruction_counter::count_instructions;

    #[test]
    fn instruction_counts_of_a_plan() {
        let domains = HostDomains::new(&[]);
        let request = Request::get("/train/set/shard-000123.tar")
            .header("host", "gateway:9000")
            .header("range", "bytes=0-1048575")
            .header("user-agent", "Boto3/1.44.5 md/Botocore#1.44.5 ua/2.1 lang/python#3.11.7")
            .header("x-amz-checksum-mode", "ENABLED")
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        count_instructions("request-plan", || {
            let target = PlainTarget::recognise_target(&request, &domains).unwrap();
            assert_eq!((target.bucket, target.checksums), ("train", true));
        });
    }

    #[test]
    fn paths_that_need_thought_are_not_plain() {
        assert_eq!(split_plain_path("/train/a/b.tar"), Some(("train", "a/b.tar")));
        let long = format!("/train/{}", "k".repeat(KEY_BYTES_MAX + 1));
        for path in [
            "/",
            "/train",
            "/train/",
            "/tr/k",
            "//k",
            "/train//k",
            "/train/k/",
            "/train/../k",
            "/Train/k",
            "/tra_in/k",
            "/train/./k",
            "/train/a%20b",
            "/train/a+b",
            "/train/a*b",
            "/train/a:b",
            "/train/a\u{e9}",
            &long,
        ] {
            assert_eq!(split_plain_path(path), None, "{path}");
        }
    }
}
