//! Answers that contradict the request, each refused for its own reason, beside those that must
//! pass.
#![allow(clippy::unwrap_used)]
use super::*;
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

fn wanted(range: Option<(u64, u64)>) -> ReadObject {
    ReadObject {
        bucket: "b".into(),
        key: "k".into(),
        version_id: None,
        if_match: Some("\"a\"".into()),
        range: range.map(|(first, last)| first..=last),
        checksums: false,
    }
}

fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_str(v).unwrap()))
        .collect()
}

fn get(
    range: Option<(u64, u64)>,
    status: u16,
    pairs: &[(&'static str, &str)],
) -> Result<StoreReadPlan, AnswerRefusal> {
    check_get(&wanted(range), StatusCode::from_u16(status).unwrap(), map(pairs), 100)
}

#[test]
fn a_range_that_was_honoured_is_taken_whole() {
    let plan = get(
        Some((2, 5)),
        206,
        &[("etag", "\"a\""), ("content-range", "bytes 2-5/10"), ("content-length", "4")],
    );
    let plan = plan.unwrap();
    assert_eq!((plan.range, plan.skip, plan.to_end, plan.head.bytes), (2..6, 0, true, 10));
}

#[test]
fn a_range_past_the_end_is_cut_to_the_object() {
    let plan =
        get(Some((8, 99)), 206, &[("etag", "\"a\""), ("content-range", "bytes 8-9/10")]).unwrap();
    assert_eq!(plan.range, 8..10);
}

#[test]
fn a_range_that_was_ignored_is_cut_from_the_whole() {
    let plan = get(Some((2, 5)), 200, &[("etag", "\"a\""), ("content-length", "10")]).unwrap();
    assert_eq!((plan.range, plan.skip, plan.to_end, plan.head.bytes), (2..6, 2, false, 10));
    let plan = get(Some((2, 99)), 200, &[("etag", "\"a\""), ("content-length", "10")]).unwrap();
    assert_eq!((plan.range, plan.to_end), (2..10, true));
}

#[test]
fn a_range_that_was_ignored_far_into_an_object_is_refused() {
    let far = get(Some((101, 105)), 200, &[("etag", "\"a\""), ("content-length", "1000")]);
    assert!(matches!(
        far,
        Err(AnswerRefusal::Untrusted(AnswerDefect::RangeIgnored { first: 101, .. }))
    ));
}

#[test]
fn another_version_is_refused_as_changed() {
    for etag in ["\"b\"", "W/\"a\"", "a"] {
        let answer = get(None, 200, &[("etag", etag), ("content-length", "10")]);
        assert!(matches!(answer, Err(AnswerRefusal::Changed { .. })), "{etag}");
    }
    assert!(matches!(
        get(None, 200, &[("content-length", "10")]),
        Err(AnswerRefusal::Changed { .. })
    ));
}

#[test]
fn a_version_id_must_be_the_one_that_was_asked() {
    let check = |asked: &str, sent: Option<&str>| {
        let mut headers = map(&[("etag", "\"a\""), ("content-length", "1")]);
        if let Some(sent) = sent {
            headers.insert("x-amz-version-id", HeaderValue::from_str(sent).unwrap());
        }
        check_head(
            &ReadObject { version_id: Some(asked.into()), ..wanted(None) },
            StatusCode::OK,
            headers,
        )
    };
    assert!(check("v1", Some("v1")).is_ok());
    assert!(check("null", None).is_ok());
    assert!(matches!(check("v1", Some("v2")), Err(AnswerRefusal::Changed { .. })));
    assert!(matches!(check("v1", None), Err(AnswerRefusal::Changed { .. })));
    assert!(matches!(check("null", Some("v2")), Err(AnswerRefusal::Changed { .. })));
}

#[test]
fn answers_that_contradict_themselves_are_refused() {
    let etag = ("etag", "\"a\"");
    let range = Some((2, 5));
    let bad: [(&str, Result<StoreReadPlan, AnswerRefusal>); 12] = [
        ("other range", get(range, 206, &[etag, ("content-range", "bytes 3-5/10")])),
        ("shorter range", get(range, 206, &[etag, ("content-range", "bytes 2-4/10")])),
        ("longer range", get(range, 206, &[etag, ("content-range", "bytes 2-6/10")])),
        (
            "length of another",
            get(range, 206, &[etag, ("content-range", "bytes 2-5/10"), ("content-length", "5")]),
        ),
        ("unknown total", get(range, 206, &[etag, ("content-range", "bytes 2-5/*")])),
        ("past its total", get(range, 206, &[etag, ("content-range", "bytes 2-5/5")])),
        ("signs", get(range, 206, &[etag, ("content-range", "bytes +2-5/10")])),
        ("206 without range", get(range, 206, &[etag, ("content-length", "4")])),
        ("206 unasked", get(None, 206, &[etag, ("content-range", "bytes 0-9/10")])),
        ("200 with content-range", get(range, 200, &[etag, ("content-range", "bytes 2-5/10")])),
        ("no length", get(None, 200, &[etag])),
        ("204", get(None, 204, &[etag, ("content-length", "0")])),
    ];
    for (case, answer) in bad {
        assert!(matches!(answer, Err(AnswerRefusal::Untrusted(_))), "{case}: {answer:?}");
    }
}

#[test]
fn two_etags_are_none() {
    let mut headers = map(&[("etag", "\"a\""), ("content-length", "10")]);
    headers.append("etag", HeaderValue::from_static("\"b\""));
    assert!(matches!(
        check_get(&wanted(None), StatusCode::OK, headers, 0),
        Err(AnswerRefusal::Untrusted(_))
    ));
}

#[test]
fn a_weak_etag_can_not_be_asked_for() {
    let request = ReadObject { if_match: Some("W/\"a\"".into()), ..wanted(None) };
    assert!(matches!(check_request(&request), Err(AnswerRefusal::Untrusted(_))));
    assert!(check_request(&wanted(None)).is_ok());
}

#[test]
fn a_head_keeps_weak_and_missing_etags_as_they_are() {
    let any = ReadObject { if_match: None, ..wanted(None) };
    let sent = [
        ("content-length", "3"),
        ("last-modified", "Thu, 01 Jan 1970 00:01:00 GMT"),
        ("etag", "W/\"a\""),
    ];
    let weak = check_head(&any, StatusCode::OK, map(&sent)).unwrap();
    assert_eq!(
        (weak.etag.as_deref(), weak.bytes, weak.last_modified),
        (Some("W/\"a\""), 3, Some(60))
    );
    let none = check_head(&any, StatusCode::OK, map(&sent[..2])).unwrap();
    assert_eq!(none.etag, None);
}

proptest! {
    #[test]
    fn any_content_range_is_parsed_within_its_total_or_refused(text in "bytes \
        [0-9]{1,20}-[0-9]{1,20}/[0-9*]{1,20}|\\PC*") {
        if let Ok((first, last, total)) = parse_content_range(&text) {
            prop_assert!(first <= last && last < total);
        }
    }

    #[test]
    fn the_planned_range_is_inside_the_object_and_the_request(
        first in 0u64..200, more in 0u64..200, total in 1u64..300, honoured: bool,
    ) {
        let last = first + more;
        prop_assume!(first < total);
        let answer = if honoured {
            let sent = format!("bytes {first}-{}/{total}", last.min(total - 1));
            get(Some((first, last)), 206, &[("etag", "\"a\""), ("content-range", &sent)])
        } else {
            get(Some((first, last)), 200, &[("etag", "\"a\""), ("content-length", &total.to_string())])
        };
        match answer {
            Ok(plan) => {
                prop_assert_eq!(plan.range.clone(), first..(last + 1).min(total));
                prop_assert_eq!(plan.skip, if honoured { 0 } else { first });
                prop_assert_eq!(plan.to_end, honoured || plan.range.end == total);
            }
            Err(_) => prop_assert!(!honoured && first > 100),
        }
    }
}
