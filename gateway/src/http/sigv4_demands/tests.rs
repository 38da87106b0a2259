#![allow(clippy::unwrap_used)]
use super::*;

const SCOPE: &str = "AK/20260101/us-east-1/s3/aws4_request";

fn header(credential: &str, listed: &str) -> HeaderMap {
    let value =
        format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={listed}, Signature=00");
    HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
}

fn url(listed: &str, more: &str) -> Uri {
    let credential = SCOPE.replace('/', "%2F");
    format!(
        "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date=20260101T000000Z\
         &X-Amz-Expires=60&X-Amz-SignedHeaders={listed}&X-Amz-Signature=00{more}"
    )
    .parse()
    .unwrap()
}

fn with(mut headers: HeaderMap, more: &[(&'static str, &[u8])]) -> HeaderMap {
    for (name, value) in more {
        headers.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

/// The headers that a refusal names; another refusal's code; nothing.
fn verdict(uri: &Uri, headers: &HeaderMap) -> String {
    let mut headers = headers.clone();
    headers.entry(http::header::HOST).or_insert(HeaderValue::from_static("h"));
    let Err(error) = check_coverage(uri, &headers) else { return String::new() };
    let unsigned = error.source().and_then(|source| source.downcast_ref::<UnsignedHeaders>());
    unsigned.map_or_else(|| error.code().as_str().to_owned(), |unsigned| unsigned.names.clone())
}

#[test]
fn every_amz_header_and_the_host_must_be_listed() {
    let plain = Uri::from_static("/b/k");
    let copy: (&str, &[u8]) = ("x-amz-copy-source", b"b/secret");
    for (listed, more, wanted) in [
        ("host;x-amz-date", &[("x-amz-date", &b"1"[..])][..], ""),
        ("host", &[copy], "x-amz-copy-source"),
        ("x-amz-date", &[], "host"),
        ("", &[], "host"),
        ("host;x-amz-copy-source", &[copy], ""),
        ("host;X-Amz-Copy-Source", &[copy], "x-amz-copy-source"),
        ("host;x-amz-copy-source ", &[copy], "x-amz-copy-source"),
        (
            "host;x-amz-meta-b",
            &[("x-amz-meta-a", b"1"), ("x-amz-meta-b", b"2"), ("x-amz-acl", b"3")],
            "x-amz-acl, x-amz-meta-a",
        ),
        ("host;x-amz-meta-a", &[("x-amz-meta-a", b"1"), ("x-amz-meta-a", b"2")], ""),
        // s3s does not look at a value that is not UTF-8 when it verifies.
        ("host;x-amz-meta-a", &[("x-amz-meta-a", b"\xff")], "x-amz-meta-a"),
        ("host", &[("x-amz-content-sha256", b"UNSIGNED-PAYLOAD")], ""),
        // What proxies and SDKs add without signing it.
        (
            "host",
            &[
                ("x-amzn-trace-id", b"1"),
                ("amz-sdk-request", b"1"),
                ("user-agent", b"1"),
                ("x-forwarded-for", b"1"),
            ],
            "",
        ),
    ] {
        assert_eq!(
            verdict(&plain, &with(header(SCOPE, listed), more)),
            wanted,
            "header: {listed:?} {more:?}"
        );
        let uri = url(&listed.replace(' ', "+").replace(';', "%3B"), "");
        assert_eq!(
            verdict(&uri, &with(HeaderMap::new(), more)),
            wanted,
            "URL: {listed:?} {more:?}"
        );
    }
}

#[test]
fn what_is_listed_is_read_as_s3s_reads_it() {
    let uri = Uri::from_static("/b/k");
    for (value, wanted) in [
        (format!("AWS4-HMAC-SHA256 Credential={SCOPE},SignedHeaders=host,Signature=00"), ""),
        (format!("AWS4-HMAC-SHA256   Credential={SCOPE}, \tSignedHeaders=host,  Signature=00"), ""),
        // Two lists, or one inside of another part: which of them s3s takes must not matter.
        (
            format!(
                "AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host, \
                SignedHeaders=x-amz-acl, Signature=00"
            ),
            "AuthorizationHeaderMalformed",
        ),
        (
            "AWS4-HMAC-SHA256 \
            Credential=AK/20260101/SignedHeaders=host;x-amz-acl,/s3/aws4_request, \
            SignedHeaders=host, Signature=00"
                .to_owned(),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 SignedHeaders=host, Credential={SCOPE}, Signature=00"),
            "AuthorizationHeaderMalformed",
        ),
        (
            format!("AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host"),
            "AuthorizationHeaderMalformed",
        ),
        ("AWS4-HMAC-SHA256".to_owned(), "AuthorizationHeaderMalformed"),
        (
            format!("AWS4-ECDSA-P256-SHA256 Credential={SCOPE}, SignedHeaders=host, Signature=00"),
            "InvalidRequest",
        ),
        ("Basic YTpi".to_owned(), "InvalidArgument"),
        ("Bearer token".to_owned(), "InvalidArgument"),
        (String::new(), "InvalidArgument"),
    ] {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        assert_eq!(verdict(&uri, &headers), wanted, "{value}");
    }
}

#[test]
fn a_scope_of_another_service_opens_nothing() {
    for (credential, wanted) in [
        (SCOPE, ""),
        ("AK/20260101/mars-north-1/s3/aws4_request", ""),
        ("AK/20260101//s3/aws4_request", ""),
        ("AK/20260101/us-east-1/sts/aws4_request", "refused"),
        ("AK/20260101/us-east-1/sqs/aws4_request", "refused"),
        ("AK/20260101/us-east-1/s3/aws5_request", "refused"),
        ("AK/20260101/us-east-1/s3/aws4_request/more", "refused"),
        ("AK/20260101/s3/aws4_request", "refused"),
        ("", "refused"),
    ] {
        let by_header = verdict(&Uri::from_static("/b/k"), &header(credential, "host"));
        let wanted_here = if wanted.is_empty() { "" } else { "AuthorizationHeaderMalformed" };
        assert_eq!(by_header, wanted_here, "header: {credential}");
        let text = url("host", "")
            .to_string()
            .replace(&SCOPE.replace('/', "%2F"), &credential.replace('/', "%2F"));
        let wanted_here = if wanted.is_empty() { "" } else { "AuthorizationQueryParametersError" };
        assert_eq!(
            verdict(&text.parse().unwrap(), &HeaderMap::new()),
            wanted_here,
            "URL: {credential}"
        );
    }
}

#[test]
fn a_request_is_signed_once_and_in_one_way() {
    let none = HeaderMap::new();
    let twice = with(header(SCOPE, "host"), &[("authorization", b"AWS4-HMAC-SHA256 x")]);
    assert_eq!(verdict(&Uri::from_static("/b/k"), &twice), "InvalidArgument");
    assert_eq!(verdict(&url("host", ""), &header(SCOPE, "host")), "InvalidArgument");
    let half = Uri::from_static("/b/k?%58-Amz-Algorithm=a");
    assert_eq!(verdict(&half, &header(SCOPE, "host")), "AuthorizationQueryParametersError");
    assert_eq!(verdict(&url("host", "&Signature=a"), &none), "InvalidArgument");
    for more in [
        "&X-Amz-SignedHeaders=host%3Bx-amz-acl",
        "&x-amz-expires=9",
        "&%58-Amz-Credential=a",
        "&X-Amz-Signature=01",
        "&X-Amz-Date",
    ] {
        assert_eq!(
            verdict(&url("host", more), &none),
            "AuthorizationQueryParametersError",
            "{more}"
        );
    }
    for missing in [
        "X-Amz-Expires=60&",
        "X-Amz-Date=20260101T000000Z&",
        "X-Amz-SignedHeaders=host&",
        "&X-Amz-Signature=00",
    ] {
        let text = url("host", "").to_string().replace(missing, "");
        assert_eq!(
            verdict(&text.parse().unwrap(), &none),
            "AuthorizationQueryParametersError",
            "{missing}"
        );
    }
    // Names of parameters that sign nothing may come as often as they like.
    assert_eq!(
        verdict(&Uri::from_static("/b/k?Expires=1&Expires=2&a&a"), &header(SCOPE, "host")),
        ""
    );
}

#[test]
fn version_2_and_nobody_pass_to_those_who_judge_them() {
    let plain = Uri::from_static("/b/k");
    assert_eq!(verdict(&plain, &with(HeaderMap::new(), &[("x-amz-acl", b"a")])), "");
    let v2 = [("authorization", &b"AWS AK:c2ln"[..]), ("x-amz-acl", b"a")];
    assert_eq!(verdict(&plain, &with(HeaderMap::new(), &v2)), "");
    assert_eq!(
        verdict(&plain, &with(HeaderMap::new(), &[v2[0], ("x-amz-acl", b"\xff")])),
        "x-amz-acl"
    );
    let url = Uri::from_static("/b/k?AWSAccessKeyId=a&Signature=b&Expires=1");
    assert_eq!(verdict(&url, &with(HeaderMap::new(), &[v2[1]])), "");
    assert_eq!(
        verdict(&Uri::from_static("/b/k?Signature=b&%53ignature=c"), &HeaderMap::new()),
        "AuthorizationQueryParametersError"
    );
}

/// s3s makes the list anew from the headers that it finds.
#[test]
fn the_list_of_signed_headers_is_itself_signed() {
    let wrong = "SignatureDoesNotMatch";
    let (date, meta) = ("x-amz-date", "x-amz-meta-a");
    for (listed, more, wanted) in [
        ("host;x-amz-date", &[(date, &b"1"[..])][..], ""),
        ("x-amz-date;host", &[(date, b"1")], wrong),
        ("host;host;x-amz-date", &[(date, b"1")], wrong),
        ("host;x-amz-date;x-none", &[(date, b"1")], wrong),
        ("accept;host", &[], wrong),
        ("host;x-amz-meta-a", &[(meta, b"a b")], ""),
        ("host;x-amz-meta-a", &[(meta, "a\u{a0}b".as_bytes())], wrong),
        ("host;x-amz-meta-a", &[(meta, "a\u{2003}b".as_bytes())], wrong),
        ("host;x-amz-meta-a", &[(meta, b"a\tb")], ""),
        ("host;x-amz-meta-a", &[(meta, "\u{e9}t\u{e9}".as_bytes())], ""),
    ] {
        let plain = Uri::from_static("/b/k");
        assert_eq!(
            verdict(&plain, &with(header(SCOPE, listed), more)),
            wanted,
            "{listed:?} {more:?}"
        );
        let uri = url(&listed.replace(';', "%3B"), "");
        assert_eq!(verdict(&uri, &with(HeaderMap::new(), more)), wanted, "{listed:?} {more:?}");
    }
}
