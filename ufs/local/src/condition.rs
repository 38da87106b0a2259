//! Owns conditional requests and ranges, as pure functions. Follows RFC 9110 sections 13.2.2 and
//! 14.1.2, with S3's answers.

use std::ops::Range as ByteRange;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use s3s::dto::{ETag, ETagCondition, Range, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use time::OffsetDateTime;

/// The four conditions of a read, or of the source of a copy.
#[derive(Debug, Default)]
pub struct ReadConditions {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

/// The verdict on a conditional read. `Failed` names the header whose condition did not hold.
#[derive(Debug, PartialEq, Eq)]
pub enum LocalConditionVerdict {
    Proceed,
    NotModified,
    Failed(&'static str),
}

impl ReadConditions {
    /// Judges a read. `If-Match` outranks `If-Unmodified-Since`, and `If-None-Match` outranks
    /// `If-Modified-Since`.
    pub fn judge_read(&self, etag: &str, modified_s: i64) -> LocalConditionVerdict {
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(wanted), _) if !etag_matches(wanted, etag, EtagStrength::Strong) => {
                return LocalConditionVerdict::Failed("If-Match");
            }
            (None, Some(since)) if modified_s > unix_seconds(since) => {
                return LocalConditionVerdict::Failed("If-Unmodified-Since");
            }
            _ => {}
        }
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(unwanted), _) if etag_matches(unwanted, etag, EtagStrength::Weak) => {
                LocalConditionVerdict::NotModified
            }
            (None, Some(since)) if modified_s <= unix_seconds(since) => {
                LocalConditionVerdict::NotModified
            }
            _ => LocalConditionVerdict::Proceed,
        }
    }

    /// Judges a copy's source. Answers 412 where a read would answer 304.
    pub fn judge_copy(&self, etag: &str, modified_s: i64) -> S3Result<()> {
        match self.judge_read(etag, modified_s) {
            LocalConditionVerdict::Proceed => Ok(()),
            LocalConditionVerdict::NotModified => {
                Err(precondition_failed("x-amz-copy-source-If-None-Match"))
            }
            LocalConditionVerdict::Failed(which) => Err(precondition_failed(which)),
        }
    }
}

/// Makes S3's 412 answer. `which` names the header whose condition did not hold.
pub fn precondition_failed(which: &str) -> S3Error {
    s3_error!(
        PreconditionFailed,
        "At least one of the pre-conditions you specified did not hold: {which}"
    )
}

/// Makes a 304 answer. It has no body, and the headers that a cache needs to renew what it has (RFC
/// 9110 section 15.4.5).
pub fn not_modified(etag: &str, modified: &Timestamp) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::NotModified, "Not Modified");
    error.set_status_code(StatusCode::NOT_MODIFIED);
    let mut headers = HeaderMap::new();
    if let Ok(value) = ETag::Strong(etag.to_owned()).to_http_header() {
        headers.insert(header::ETAG, value);
    }
    let mut date = Vec::new();
    if modified.format(s3s::dto::TimestampFormat::HttpDate, &mut date).is_ok()
        && let Ok(value) = HeaderValue::from_bytes(&date)
    {
        headers.insert(header::LAST_MODIFIED, value);
    }
    error.set_headers(headers);
    error
}

/// Cuts a range to an object's size. Fails with 416 and the size.
pub fn resolve_range(range: &Range, size: u64) -> S3Result<ByteRange<u64>> {
    // A suffix of an empty object would be an empty range. S3 refuses it, like any other range of
    // such an object.
    match range.check(size) {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes),
        _ => {
            let mut error = s3_error!(InvalidRange, "The requested range is not satisfiable");
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}")) {
                headers.insert(header::CONTENT_RANGE, value);
            }
            error.set_headers(headers);
            Err(error)
        }
    }
}

/// The conditions of a write, judged against the object that exists at the commit.
#[derive(Debug, Default, Clone)]
pub struct WriteConditions {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
}

impl WriteConditions {
    /// Refuses conditions that S3 does not know, before any byte is read.
    pub fn check_supported(&self) -> S3Result<()> {
        match &self.if_none_match {
            Some(ETagCondition::ETag(_)) => {
                Err(s3_error!(NotImplemented, "If-None-Match of a write only takes the value *"))
            }
            _ => Ok(()),
        }
    }

    /// Judges the conditions against the current object. `None` means that there is none.
    pub fn judge_write(&self, current_etag: Option<&str>) -> S3Result<()> {
        if self.if_none_match.is_some() && current_etag.is_some() {
            return Err(precondition_failed("If-None-Match"));
        }
        match (&self.if_match, current_etag) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(s3_error!(NoSuchKey, "The specified key does not exist.")),
            (Some(wanted), Some(etag)) if etag_matches(wanted, etag, EtagStrength::Strong) => {
                Ok(())
            }
            (Some(_), Some(_)) => Err(precondition_failed("If-Match")),
        }
    }
}

enum EtagStrength {
    Strong,
    Weak,
}

/// Compares by RFC 9110's strong comparison: a weak tag never matches. `*` matches any tag.
pub fn matches_strongly(condition: &ETagCondition, etag: &str) -> bool {
    etag_matches(condition, etag, EtagStrength::Strong)
}

fn etag_matches(condition: &ETagCondition, etag: &str, strength: EtagStrength) -> bool {
    let wanted = match condition {
        ETagCondition::Any => return true,
        ETagCondition::ETag(wanted) => wanted,
    };
    if matches!((&strength, wanted), (EtagStrength::Strong, ETag::Weak(_))) {
        return false;
    }
    // s3s reads a list such as `"a", "b"` as one tag with quotes inside. This store's tags never
    // hold a quote.
    let each =
        wanted.value().split(',').map(|one| one.trim().trim_start_matches("W/").trim_matches('"'));
    each.into_iter().any(|one| one == etag)
}

fn unix_seconds(t: &Timestamp) -> i64 {
    OffsetDateTime::from(t.clone()).unix_timestamp()
}
