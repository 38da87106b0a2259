//! Handles `If-Range` (RFC 9110, 13.1.5): a client that has a part of a version wants a range of
//! that version, or else the whole object. Owns the validator, and how such a GET is sent to a
//! store.
//!
//! Stores are not trusted with the header: AWS honours it without documenting it, and Ceph RGW
//! sends the range of any version. For GET alone: no bytes are joined after a HEAD.

use std::time::UNIX_EPOCH;

use http::HeaderMap;
use http::header::IF_RANGE;
use s3s::dto::{ETag, GetObjectInput, GetObjectOutput};
use s3s::{S3ErrorCode, S3Response, S3Result};

use super::conditions::whole_seconds;
use crate::request_context::RequestContext;

/// The client's validator of the version that it has a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IfRange {
    /// The ETag without its quotes.
    ETag(String),
    /// Seconds since 1970. S3 has no finer dates, so two versions of one second look alike; an ETag
    /// is the better validator.
    Modified(i64),
    /// A weak ETag, or an unreadable value: no range is ever answered.
    Nothing,
}

impl IfRange {
    /// Reads the header. `None`: it is absent. One that comes twice is unreadable.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(IF_RANGE).iter();
        match (values.next(), values.next()) {
            (None, _) => None,
            (Some(value), None) => Some(value.to_str().map_or(Self::Nothing, Self::parse)),
            (Some(_), Some(_)) => Some(Self::Nothing),
        }
    }

    fn parse(text: &str) -> Self {
        let quoted = text.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        if let Some(etag) = quoted.filter(|etag| !etag.contains('"')) {
            return Self::ETag(etag.to_owned());
        }
        let date = httpdate::parse_http_date(text.trim()).ok();
        let second =
            date.and_then(|date| date.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs());
        second.and_then(|second| i64::try_from(second).ok()).map_or(Self::Nothing, Self::Modified)
    }

    /// Returns whether a version is the one that the client has a part of. `etag`: a strong one.
    pub(super) fn names_version(&self, etag: Option<&str>, modified: Option<i64>) -> bool {
        match self {
            Self::ETag(wanted) => etag.is_some_and(|etag| etag.trim_matches('"') == wanted),
            Self::Modified(wanted) => modified == Some(*wanted),
            Self::Nothing => false,
        }
    }

    fn names_answer(&self, answer: &GetObjectOutput) -> bool {
        let strong = match &answer.e_tag {
            Some(ETag::Strong(etag)) => Some(etag.as_str()),
            Some(ETag::Weak(_)) | None => None,
        };
        self.names_version(strong, answer.last_modified.as_ref().map(whole_seconds))
    }
}

/// Sends a GET to a store by `ask`. If the range is of another version than the client's, the
/// answer is dropped, and the store is asked for the whole object.
pub(crate) async fn ask_store<F: Future<Output = S3Result<S3Response<GetObjectOutput>>>>(
    cx: &RequestContext,
    if_range: Option<&IfRange>,
    input: GetObjectInput,
    ask: impl Fn(GetObjectInput) -> F,
) -> F::Output {
    let Some(if_range) = if_range.filter(|_| input.range.is_some()) else {
        return ask(input).await;
    };
    let whole = GetObjectInput { range: None, ..input.clone() };
    match ask(input).await {
        // Some stores send the whole object for ranges that they don't like.
        Ok(first)
            if first.output.content_range.is_none() || if_range.names_answer(&first.output) =>
        {
            Ok(first)
        }
        Ok(first) => {
            // Drop it first: its body holds one of the places for reads past the tier.
            drop(first);
            ask(whole).await
        }
        // The answer does not say which version ends before the range.
        Err(refusal) if *refusal.code() == S3ErrorCode::InvalidRange => {
            // The store's own answer is sent in place of the error, or not at all.
            let kept = cx.take_answer();
            match ask(whole).await {
                Ok(second) if if_range.names_answer(&second.output) => {
                    kept.into_iter().for_each(|answer| cx.put_answer(answer));
                    Err(refusal)
                }
                second => second,
            }
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(values: &[&str]) -> Option<IfRange> {
        let values = values.iter().map(|value| (IF_RANGE, value.parse().unwrap()));
        IfRange::from_headers(&values.collect())
    }

    #[test]
    fn only_strong_etags_and_dates_say_anything() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["\"abc-2\""]), Some(IfRange::ETag("abc-2".to_owned())));
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(of(&[date]), Some(IfRange::Modified(784_111_777)), "{date}");
        }
        for nothing in
            ["W/\"abc\"", "w/\"abc\"", "abc", "*", "", "\"", "\"a\", \"b\"", "\"abc", "yesterday"]
        {
            assert_eq!(of(&[nothing]), Some(IfRange::Nothing), "{nothing}");
        }
        assert_eq!(of(&["\"abc\"", "\"abc\""]), Some(IfRange::Nothing));
    }

    #[test]
    fn a_version_is_named_by_exactly_what_it_has() {
        let etag = IfRange::ETag("abc".to_owned());
        assert!(
            etag.names_version(Some("\"abc\""), None) && etag.names_version(Some("abc"), Some(5))
        );
        assert!(
            !etag.names_version(Some("\"abcd\""), Some(5)) && !etag.names_version(None, Some(5))
        );
        let date = IfRange::Modified(5);
        assert!(date.names_version(None, Some(5)));
        assert!(
            !date.names_version(Some("abc"), Some(4))
                && !date.names_version(None, Some(6))
                && !date.names_version(None, None)
        );
        assert!(!IfRange::Nothing.names_version(Some("abc"), Some(5)));
    }

    #[test]
    fn a_stores_weak_etag_names_nothing() {
        let answer = |e_tag| GetObjectOutput { e_tag: Some(e_tag), ..GetObjectOutput::default() };
        let wanted = IfRange::ETag("abc".to_owned());
        assert!(wanted.names_answer(&answer(ETag::Strong("abc".to_owned()))));
        assert!(!wanted.names_answer(&answer(ETag::Weak("abc".to_owned()))));
    }
}
