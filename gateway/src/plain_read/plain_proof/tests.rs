#![allow(clippy::unwrap_used)]

use http::Request;
use time::OffsetDateTime;
use time::macros::datetime;
use verbs3_instruction_counter::count_instructions;

use super::*;
use crate::auth::IdentityStore;

/// The examples of "Signature Calculations for the Authorization Header" and of "Authenticating
/// Requests: Using Query Parameters", S3 reference.
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const HEADER: &str = "AWS4-HMAC-SHA256 \
    Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
    SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
    Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
const URL: &str = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
    &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
    &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
    &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
const SIGNED_AT: OffsetDateTime = datetime!(2013-05-24 00:00:00 UTC);

fn by_header(change: impl FnOnce(&mut Request<()>)) -> Request<()> {
    let mut request = Request::get("/test.txt")
        .header("host", "examplebucket.s3.amazonaws.com")
        .header("range", "bytes=0-9")
        .header("x-amz-content-sha256", EMPTY_SHA256)
        .header("x-amz-date", "20130524T000000Z")
        .header("authorization", HEADER)
        .body(())
        .unwrap();
    change(&mut request);
    request
}

fn by_url(url: &str) -> Request<()> {
    Request::get(url).header("host", "examplebucket.s3.amazonaws.com").body(()).unwrap()
}

fn holds(request: &Request<()>, now: OffsetDateTime) -> bool {
    let identity = IdentityStore::with_single(KEY, SECRET).get(KEY).unwrap();
    let clock = ProofClock { now, skew_max: Duration::from_secs(900) };
    PlainProof::read_proof(request).is_some_and(|proof| {
        assert!(proof.access_key == KEY || !proof.signature_claim().has_plain_scope());
        proof.is_signed_by(&identity, request, clock)
    })
}

#[test]
fn the_examples_of_the_reference_hold() {
    assert!(holds(&by_header(|_| ()), SIGNED_AT));
    assert!(holds(&by_url(URL), SIGNED_AT));
}

#[test]
fn instruction_counts_of_a_signature() {
    let identity = IdentityStore::with_single(KEY, SECRET).get(KEY).unwrap();
    let clock = ProofClock { now: SIGNED_AT, skew_max: Duration::from_secs(900) };
    for (name, request) in
        [("signature-in-a-header", by_header(|_| ())), ("signature-in-a-url", by_url(URL))]
    {
        count_instructions(name, || {
            let proof = PlainProof::read_proof(&request).unwrap();
            assert!(proof.is_signed_by(&identity, &request, clock));
        });
    }
}

#[test]
fn a_changed_header_request_does_not_hold() {
    let set = |name: &'static str, value: &'static str| {
        by_header(|request| drop(request.headers_mut().insert(name, value.parse().unwrap())))
    };
    for (name, value) in [
        ("range", "bytes=0-8"),
        ("range", "bytes=0-9 "),
        ("host", "examplebucket.s3.amazonaws.co"),
        ("x-amz-date", "20130524T000001Z"),
        ("x-amz-date", "20130524t000000Z"),
        ("x-amz-content-sha256", UNSIGNED),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
    ] {
        assert!(!holds(&set(name, value), SIGNED_AT), "{name}: {value}");
    }
    for (old, new) in [
        ("us-east-1", "us-east-2"),
        ("/s3/", "/sts/"),
        ("/20130524/", "/20130525/"),
        ("aws4_request", "aws4_request/x"),
        ("host;range", "range;host"),
        ("host;range;", "range;"),
        ("host;range", "host;host;range"),
        ("host;range", "host;range;x-amz-acl"),
        ("f0e8", "f0e9"),
        ("f0e8", "F0E8"),
        ("db41", "db4"),
        ("Credential=", "credential="),
        ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256"),
        ("db41", "db41,x=y"),
    ] {
        assert!(HEADER.contains(old));
        let changed = HEADER.replace(old, new);
        let request = by_header(|request| {
            drop(request.headers_mut().insert(AUTHORIZATION, changed.parse().unwrap()));
        });
        assert!(!holds(&request, SIGNED_AT), "{changed}");
    }
    let other = |method: &str, uri: &str| {
        by_header(|request| {
            *request.method_mut() = method.parse().unwrap();
            *request.uri_mut() = uri.parse().unwrap();
        })
    };
    for (method, uri) in [
        ("HEAD", "/test.txt"),
        ("GET", "/test.txt2"),
        ("GET", "/test.txt?x-id=GetObject"),
        ("GET", "/test.txt?acl"),
        ("GET", "/test.txt?versionId=1"),
    ] {
        assert!(!holds(&other(method, uri), SIGNED_AT), "{method} {uri}");
    }
}

#[test]
fn a_changed_url_does_not_hold() {
    for (old, new) in [
        ("test.txt", "test.txu"),
        ("86400", "86401"),
        ("86400", "+86400"),
        ("86400", "086400"),
        ("%2Fus-east-1", "%2fus-east-1"),
        ("%2Fus-east-1", "/us-east-1"),
        ("us-east-1", "us%2Deast-1"),
        ("us-east-1", "RegionOne"),
        ("SignedHeaders=host", "SignedHeaders=host%3Brange"),
        ("SignedHeaders=host", "SignedHeaders="),
        ("X-Amz-Expires", "X-Amz-expires"),
        ("HMAC-SHA256", "HMAC-SHA512"),
        ("d404", "d405"),
        ("&X-Amz-Date=", "&X-Amz-Date=20130524T000000Z&X-Amz-Date="),
        ("&X-Amz-Date=", "&versionId=1&X-Amz-Date="),
        ("&X-Amz-Date=", "&x-id=GetObject&X-Amz-Date="),
        ("&X-Amz-Date=", "&X-Amz-Security-Token=t&X-Amz-Date="),
    ] {
        assert!(URL.contains(old));
        assert!(!holds(&by_url(&URL.replacen(old, new, 1)), SIGNED_AT), "{old} -> {new}");
    }
    let mut hashed = by_url(URL);
    hashed.headers_mut().insert("x-amz-content-sha256", UNSIGNED.parse().unwrap());
    assert!(!holds(&hashed, SIGNED_AT), "a header that narrows the body");
}

#[test]
fn a_header_holds_as_long_as_clocks_may_differ() {
    for (seconds, held) in [(899, true), (-899, true), (901, false), (-901, false)] {
        let now = SIGNED_AT + time::Duration::seconds(seconds);
        assert_eq!(holds(&by_header(|_| ()), now), held, "{seconds}");
    }
}

/// A URL ends when it says so, however far clocks may differ.
#[test]
fn a_url_holds_until_it_expires() {
    for (seconds, held) in [(86_400, true), (86_401, false), (-899, true), (-901, false)] {
        let now = SIGNED_AT + time::Duration::seconds(seconds);
        assert_eq!(holds(&by_url(URL), now), held, "{seconds}");
    }
    let short = by_url(&URL.replace("86400", "5"));
    let proof = PlainProof::read_proof(&short).unwrap();
    let clock = |seconds| ProofClock {
        now: SIGNED_AT + time::Duration::seconds(seconds),
        skew_max: Duration::from_secs(900),
    };
    let is_in_time = |seconds| proof.signature_claim().is_in_time(clock(seconds), proof.expires);
    assert!(is_in_time(5) && !is_in_time(6));
}

/// Returns the signature of a request for `/test.txt` that lists these headers.
fn sign_listed(request: &Request<()>, query: &str, listed: &str, payload: &str) -> String {
    let line = |name: &str| format!("{name}:{}\n", request.headers()[name].to_str().unwrap());
    let lines: String = listed.split(';').map(line).collect();
    let canonical = format!("GET\n/test.txt\n{query}\n{lines}\n{listed}\n{payload}");
    let scope = "20130524/us-east-1/s3/aws4_request";
    let digest = hex::encode(Sha256::digest(canonical));
    let text = ["AWS4-HMAC-SHA256\n20130524T000000Z\n", scope, "\n", &digest];
    let identity = IdentityStore::with_single(KEY, SECRET).get(KEY).unwrap();
    hex::encode(&*identity.sign_text(scope, &text).unwrap())
}

/// S3 obeys `x-amz-*` headers, so nobody may add one to what another one has signed.
#[test]
fn a_header_that_has_to_be_signed_is_listed() {
    for (listed, held) in [
        ("host;range;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date", true),
        ("host;x-amz-checksum-mode;x-amz-date", true),
        ("host;range;x-amz-content-sha256;x-amz-date", false),
        ("host;range;x-amz-checksum-mode;x-amz-content-sha256", false),
        ("range;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date", false),
        ("HOST;range;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date", false),
        ("host;range;x-amz-checksum-mode;x-amz-content-sha256;X-Amz-Date", false),
    ] {
        let request = by_header(|request| {
            request.headers_mut().insert("x-amz-checksum-mode", "ENABLED".parse().unwrap());
            let signature = sign_listed(request, "", listed, EMPTY_SHA256);
            let claim = HEADER.split_once("SignedHeaders=").unwrap().0;
            let claim = format!("{claim}SignedHeaders={listed},Signature={signature}");
            request.headers_mut().insert(AUTHORIZATION, claim.parse().unwrap());
        });
        assert_eq!(holds(&request, SIGNED_AT), held, "{listed}");
    }
}

/// Whoever is given a URL may add headers to its request.
#[test]
fn no_header_that_has_to_be_signed_is_added_to_a_url() {
    let url = sign_url(URL.split_once("&X-Amz-Signature=").unwrap().0);
    for (name, held) in
        [("user-agent", true), ("x-amz-checksum-mode", false), ("x-amz-date", false)]
    {
        let mut request = by_url(&url);
        request.headers_mut().insert(name, "ENABLED".parse().unwrap());
        assert_eq!(holds(&request, SIGNED_AT), held, "{name}");
    }
}

/// Signs a URL for the header `host`.
fn sign_url(url: &str) -> String {
    let query = url.split_once('?').unwrap().1;
    let signature = sign_listed(&by_url(url), query, "host", UNSIGNED);
    format!("{url}&X-Amz-Signature={signature}")
}

/// "Authenticating Requests: Using Query Parameters", S3 reference: a week.
#[test]
fn no_url_holds_for_longer_than_a_week() {
    let unsigned = URL.split_once("&X-Amz-Signature=").unwrap().0;
    for (expires, held) in [("604800", true), ("604801", false)] {
        let url = sign_url(&unsigned.replace("86400", expires));
        assert_eq!(holds(&by_url(&url), SIGNED_AT), held, "{expires}");
    }
}
