//! Tests how the questions of clients are read.
#![allow(clippy::unwrap_used)]

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        let name = HeaderName::try_from(format!("x-amz-rdma-{name}")).unwrap();
        (name, HeaderValue::try_from(*value).unwrap())
    };
    fields.iter().map(field).collect()
}

fn token() -> String {
    format!("01{}{}", "00".repeat(18), "ab".repeat(25))
}

fn prepare_with(changed: &[(&str, &str)]) -> Result<PrepareQuestion, QuestionFault> {
    let token = token();
    let mut fields = headers(&[
        ("protocol", PROTOCOL),
        ("token", &token),
        ("psn", "0a1b2c"),
        ("cookie", "1A2b3c4d"),
        ("op", "GET"),
        ("target", "/bucket/a/key"),
        ("size", "4096"),
    ]);
    fields.extend(headers(changed));
    read_prepare(&fields)
}

fn ready_with(changed: &[(&str, &str)]) -> Result<ReadyQuestion, QuestionFault> {
    let mut fields = headers(&[
        ("protocol", PROTOCOL),
        ("session", &"5a".repeat(16)),
        ("cookie", "00000000"),
        ("qpn", "11"),
        ("mr-addr", "7f0000001000"),
        ("mr-rkey", "ffffffff"),
    ]);
    fields.extend(headers(changed));
    read_ready(&fields)
}

#[test]
fn questions_are_read_as_clients_write_them() {
    let question = prepare_with(&[]).unwrap();
    assert_eq!((question.first_packet, question.cookie), (0x0a_1b2c, 0x1a2b_3c4d));
    assert_eq!((question.offset, question.bytes), (0, 4096));
    assert_eq!(question.path, "/bucket/a/key");
    assert_eq!(prepare_with(&[("offset", "12")]).unwrap().offset, 12);
    assert_eq!(prepare_with(&[("size", "2147483647")]).unwrap().bytes, BYTES_MAX);
    let ready = ready_with(&[]).unwrap();
    assert_eq!((ready.session, ready.cookie), (RdmaSessionId([0x5a; 16]), 0));
    assert_eq!(ready.session.hex_digits(), "5a".repeat(16));
    let place = ClientPlace { address: 0x7f00_0000_1000, key: u32::MAX };
    assert_eq!((ready.pair_number, ready.place), (0x11, place));
}

#[test]
fn put_is_read_with_leave_to_read_its_memory() {
    let pull = |reads| prepare_with(&[("op", "PUT"), ("pull", reads)]);
    for (text, reads_max) in [("1", 1), ("16", 16), ("04", 4)] {
        assert_eq!(pull(text).unwrap().operation, TransferOperation::Put { reads_max });
    }
    for text in ["", "0", "17", "256", "0x1", "-1", "+1"] {
        assert_eq!(pull(text), Err(QuestionFault::Malformed(PULL)), "{text}");
    }
    let shifted = prepare_with(&[("op", "PUT"), ("pull", "1"), ("offset", "1")]);
    assert_eq!(shifted, Err(QuestionFault::Malformed("x-amz-rdma-offset")));
    // HTTP stores an object of no bytes.
    let empty = prepare_with(&[("op", "PUT"), ("pull", "1"), ("size", "0")]);
    assert_eq!(empty, Err(QuestionFault::Unsupported));
    // It says nothing of a GET.
    assert_eq!(prepare_with(&[("pull", "x")]).unwrap().operation, TransferOperation::Get);
}

#[test]
fn what_is_not_served_sends_clients_to_http() {
    for changed in [
        ("protocol", "hipobj-rc-v3"),
        ("protocol", ""),
        ("op", "PUT"),
        ("target", "/bucket/key?versionId=1"),
        ("token", &format!("00{}", &token()[2..])),
    ] {
        assert_eq!(prepare_with(&[changed]), Err(QuestionFault::Unsupported), "{changed:?}");
    }
    assert_eq!(read_cancel(&HeaderMap::new()), Err(QuestionFault::Unsupported));
    assert_eq!(ready_with(&[("protocol", "x")]), Err(QuestionFault::Unsupported));
}

#[test]
fn malformed_fields_are_named() {
    for (field, values) in [
        ("token", &["", "01", "zz"][..]),
        ("psn", &["", "000000", "a1b2c", "0a1b2cd", "+a1b2c", "0x1b2c"]),
        ("cookie", &["", "1a2b3c4", "1a2b3c4d5", "+a2b3c4d"]),
        ("op", &["get", "HEAD", ""]),
        (
            "target",
            &[
                "",
                "bucket/key",
                "/bucket",
                "/bucket/",
                "//key",
                "/",
                "/b/k#",
                "/b/k#x",
                "/b#x/k",
                "/b/k x",
            ],
        ),
        ("size", &["", "0", "-1", "+1", "0x10", "1 ", "99999999999999999999999"]),
        ("offset", &["", "-1", "+1", "18446744073709551615"]),
    ] {
        let name = format!("x-amz-rdma-{field}");
        for value in values {
            let fault = prepare_with(&[(field, value)]).unwrap_err();
            assert!(matches!(fault, QuestionFault::Malformed(at) if at == name), "{field}={value}");
            assert_eq!(fault.status_code(), StatusCode::BAD_REQUEST);
        }
    }
    let large = prepare_with(&[("size", "2147483648")]).unwrap_err();
    assert_eq!(large.status_code(), StatusCode::PAYLOAD_TOO_LARGE);
    for (field, values) in [
        ("session", &["", "5a", "zz"][..]),
        ("qpn", &["", "0", "1000000", "100000000", "+1"]),
        ("mr-addr", &["", "0", "10000000000000000"]),
        ("mr-rkey", &["", "0", "100000000"]),
    ] {
        let name = format!("x-amz-rdma-{field}");
        for value in values {
            let fault = ready_with(&[(field, value)]);
            assert!(
                matches!(fault, Err(QuestionFault::Malformed(at)) if at == name),
                "{field}={value}"
            );
        }
    }
}

/// Rights are judged of what is asked for, so no parser may cut or change it.
#[test]
fn target_is_all_of_a_path() {
    for path in ["/b/k%23x", "/b//k", "/b/../k", "/b/./k", "/b/k%3Fx", "/b/%2e%2e/k", "/b/k;~'"] {
        assert_eq!(prepare_with(&[("target", path)]).unwrap().path, path);
    }
    let with_query = prepare_with(&[("target", "/b/k#?x")]);
    assert_eq!(with_query, Err(QuestionFault::Unsupported));
}

#[test]
fn field_that_comes_twice_is_refused() {
    let mut fields = headers(&[("protocol", PROTOCOL), ("session", &"5a".repeat(16))]);
    assert_eq!(read_cancel(&fields), Ok(RdmaSessionId([0x5a; 16])));
    fields.append("x-amz-rdma-session", HeaderValue::from_static("00"));
    assert_eq!(read_cancel(&fields), Err(QuestionFault::Malformed("x-amz-rdma-session")));
}

proptest! {
    #[test]
    fn any_fields_are_read_without_harm(values in prop::collection::vec("[ -~]{0,100}", 11)) {
        let names = [
            "token", "psn", "cookie", "op", "target", "size", "offset", "session", "qpn", "mr-addr",
            "mr-rkey",
        ];
        let mut fields = headers(&[("protocol", PROTOCOL)]);
        for (name, value) in names.iter().zip(&values) {
            let name = HeaderName::try_from(format!("x-amz-rdma-{name}")).unwrap();
            fields.insert(name, HeaderValue::try_from(value.as_str()).unwrap());
        }
        let _ = (read_prepare(&fields), read_ready(&fields), read_cancel(&fields));
    }

    #[test]
    fn whatever_is_taken_is_within_its_bounds(size in "[0-9]{1,20}", offset in "[0-9]{1,20}") {
        if let Ok(question) = prepare_with(&[("size", &size), ("offset", &offset)]) {
            prop_assert!((1..=BYTES_MAX).contains(&question.bytes));
            prop_assert!(question.offset.checked_add(question.bytes).is_some());
        }
    }
}

#[test]
fn a_token_names_a_host() {
    let with_gid = |gid: &str| format!("01{}{gid}{}", "00".repeat(4), "ab".repeat(23));
    let mapped = |last: &str| format!("{}ffff{last}", "00".repeat(10));
    for gid in [
        "00".repeat(16),
        format!("{}01", "00".repeat(15)),
        format!("ff02{}01", "00".repeat(13)),
        mapped("00000000"),
        mapped("7f000001"),
        mapped("e0000001"),
    ] {
        let fault = prepare_with(&[("token", &with_gid(&gid))]).unwrap_err();
        assert!(matches!(fault, QuestionFault::Malformed("x-amz-rdma-token")), "{gid}");
    }
    for gid in [mapped("0a000001"), format!("fe80{}01", "00".repeat(13))] {
        assert!(prepare_with(&[("token", &with_gid(&gid))]).is_ok(), "{gid}");
    }
}
