//! Owns the check whether an answer gives what was asked for.
//!
//! Pure: takes a request and an answer's status and headers. Returns which bytes the body carries,
//! or why the answer must not be used. `body` checks the body's own length.

use http::{HeaderMap, StatusCode};
use s3s::dto::{ETag, Timestamp, TimestampFormat};

use crate::answer_defect::AnswerDefect;
use crate::headers::representation_headers;
use crate::object::{ObjectHead, ReadObject};

/// Reason why an answer is refused. The caller adds the UFS's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnswerRefusal {
    Untrusted(AnswerDefect),
    Changed { wanted: String, got: String },
}

impl From<AnswerDefect> for AnswerRefusal {
    fn from(defect: AnswerDefect) -> Self {
        Self::Untrusted(defect)
    }
}

/// A plan for taking the wanted bytes from an answer's body.
#[derive(Debug)]
pub(crate) struct StoreReadPlan {
    pub head: ObjectHead,
    /// Bytes of the object that are wanted from this body.
    pub range: std::ops::Range<u64>,
    /// Bytes of the body before the wanted ones: not 0 only if the UFS ignored `Range`.
    pub skip: u64,
    /// True if the body ends with the wanted bytes. Otherwise the rest is not read.
    pub to_end: bool,
}

/// Checks that an answer to this request can be verified at all.
pub(crate) fn check_request(wanted: &ReadObject) -> Result<(), AnswerRefusal> {
    let Some(if_match) = &wanted.if_match else { return Ok(()) };
    match ETag::parse_http_header(if_match.as_bytes()) {
        Ok(ETag::Strong(_)) => Ok(()),
        Ok(ETag::Weak(_)) | Err(_) => Err(AnswerDefect::WeakEtag { etag: if_match.clone() }.into()),
    }
}

/// Checks a HEAD answer.
pub(crate) fn check_head(
    wanted: &ReadObject,
    status: StatusCode,
    headers: HeaderMap,
) -> Result<ObjectHead, AnswerRefusal> {
    if status != StatusCode::OK {
        return Err(AnswerDefect::HeadStatus(status).into());
    }
    check_version(wanted, &headers)?;
    let bytes = parse_length(&headers, "content-length")?
        .ok_or(AnswerDefect::NoLength { method: "HEAD" })?;
    build_object_head(headers, bytes, true)
}

/// Checks a GET answer. `skip_bytes_max` bounds the bytes read and thrown away when the UFS ignores
/// `Range`.
pub(crate) fn check_get(
    wanted: &ReadObject,
    status: StatusCode,
    headers: HeaderMap,
    skip_bytes_max: u64,
) -> Result<StoreReadPlan, AnswerRefusal> {
    check_version(wanted, &headers)?;
    let body_bytes = parse_length(&headers, "content-length")?;
    let content_range = single_header(&headers, "content-range")?;
    match (status, wanted.range.as_ref(), content_range) {
        (StatusCode::PARTIAL_CONTENT, Some(range), Some(sent)) => {
            let (first, last, total) = parse_content_range(sent)?;
            let last_wanted = (*range.end()).min(total - 1);
            if first != *range.start() || last != last_wanted {
                let wanted = range.clone();
                return Err(AnswerDefect::OtherRange { first, last, wanted, total }.into());
            }
            let bytes = last - first + 1;
            if let Some(content_length) = body_bytes.filter(|&sent| sent != bytes) {
                let range_bytes = bytes;
                return Err(AnswerDefect::RangeLength { content_length, range_bytes }.into());
            }
            let head = build_object_head(headers, total, bytes == total)?;
            Ok(StoreReadPlan { head, range: first..last + 1, skip: 0, to_end: true })
        }
        (StatusCode::OK, Some(range), None) => {
            let total = body_bytes.ok_or(AnswerDefect::NoLengthForRange)?;
            let (first, end) = (*range.start(), range.end().saturating_add(1).min(total));
            if first >= total {
                return Err(AnswerDefect::RangePastEnd { first, total }.into());
            }
            if first > skip_bytes_max {
                return Err(AnswerDefect::RangeIgnored { first, skip_bytes_max }.into());
            }
            let to_end = end == total;
            Ok(StoreReadPlan {
                head: build_object_head(headers, total, first == 0 && to_end)?,
                range: first..end,
                skip: first,
                to_end,
            })
        }
        (StatusCode::OK, None, None) => {
            let total = body_bytes.ok_or(AnswerDefect::NoLength { method: "GET" })?;
            Ok(StoreReadPlan {
                head: build_object_head(headers, total, true)?,
                range: 0..total,
                skip: 0,
                to_end: true,
            })
        }
        (status, range, content_range) => {
            let content_range = content_range.map(str::to_owned);
            Err(AnswerDefect::Status { status, content_range, wanted: range.cloned() }.into())
        }
    }
}

/// Checks ETag and version id, as far as the request names them.
fn check_version(wanted: &ReadObject, headers: &HeaderMap) -> Result<(), AnswerRefusal> {
    if single_header(headers, "x-amz-delete-marker")? == Some("true") {
        return Err(AnswerDefect::DeleteMarker.into());
    }
    let etag = single_header(headers, "etag")?;
    if let Some(if_match) = &wanted.if_match {
        // Compared as opaque strings: a weak ETag, or one that lost its quotes, is not the same.
        if etag != Some(if_match) {
            let got = format!("etag {}", etag.unwrap_or("(none)"));
            return Err(AnswerRefusal::Changed { wanted: format!("etag {if_match}"), got });
        }
    }
    let version = single_header(headers, "x-amz-version-id")?;
    if let Some(wanted) = &wanted.version_id {
        // Stores that never had versioning switched on know the "null" version, but don't send its
        // name.
        let unnamed_null = wanted == "null" && version.is_none();
        if version != Some(wanted) && !unnamed_null {
            let got = format!("version id {}", version.unwrap_or("(none)"));
            return Err(AnswerRefusal::Changed { wanted: format!("version id {wanted}"), got });
        }
    }
    Ok(())
}

fn build_object_head(
    headers: HeaderMap,
    bytes: u64,
    whole: bool,
) -> Result<ObjectHead, AnswerRefusal> {
    let owned = |name| single_header(&headers, name).map(|value| value.map(str::to_owned));
    let etag = owned("etag")?;
    let version_id = owned("x-amz-version-id")?;
    let last_modified = single_header(&headers, "last-modified")?.and_then(unix_seconds);
    Ok(ObjectHead {
        etag,
        bytes,
        version_id,
        last_modified,
        headers: representation_headers(headers, whole),
    })
}

fn unix_seconds(date: &str) -> Option<i64> {
    let time = Timestamp::parse(TimestampFormat::HttpDate, date).ok()?;
    Some(time::OffsetDateTime::from(time).unix_timestamp())
}

/// Returns a header that may come once. Two different values contradict each other, so neither can
/// be trusted.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, AnswerRefusal> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.any(|other| other != first) {
        return Err(AnswerDefect::HeadersDiffer(name).into());
    }
    first.to_str().map(Some).map_err(|_| AnswerDefect::HeaderNotText(name).into())
}

fn parse_length(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, AnswerRefusal> {
    let Some(text) = single_header(headers, name)? else { return Ok(None) };
    let value = parse_digits(text);
    value.map(Some).ok_or_else(|| AnswerDefect::HeaderValue { name, value: text.into() }.into())
}

/// Parses `bytes FIRST-LAST/TOTAL`, RFC 9110 §14.4. Refuses an unknown total (`*`), which leaves
/// the version's length open.
fn parse_content_range(text: &str) -> Result<(u64, u64, u64), AnswerRefusal> {
    let parts = || {
        let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        Some((parse_digits(first)?, parse_digits(last)?, parse_digits(total)?))
    };
    match parts() {
        Some((first, last, total)) if first <= last && last < total => Ok((first, last, total)),
        _ => {
            let (name, value) = ("content-range", text.to_owned());
            Err(AnswerDefect::HeaderValue { name, value }.into())
        }
    }
}

/// Parses digits alone: `parse` would take a sign.
fn parse_digits(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
