//! Decides whether a conditional GET or HEAD is answered with the object, 304 or 412: RFC 9110
//! section 13.2.2, as S3 applies it. Pure.

use s3s::dto::{ETag, ETagCondition, Timestamp};
use time::OffsetDateTime;
use verbs3_protocol::HeadAttributes;

/// The conditions of one request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RequestConditions {
    pub(super) if_match: Option<ETagCondition>,
    pub(super) if_none_match: Option<ETagCondition>,
    /// Seconds since 1970.
    pub(super) if_modified_since: Option<i64>,
    pub(super) if_unmodified_since: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionVerdict {
    Proceed,
    /// 304
    NotModified,
    /// 412
    Failed,
}

/// Returns a time in whole seconds, like HTTP dates.
pub(super) fn whole_seconds(timestamp: &Timestamp) -> i64 {
    OffsetDateTime::from(timestamp.clone()).unix_timestamp()
}

impl RequestConditions {
    pub(super) fn judge_attributes(&self, attributes: &HeadAttributes) -> ConditionVerdict {
        let etag = attributes.version.etag.as_str();
        let modified = attributes.last_modified;
        // If-Match overrides If-Unmodified-Since, as S3 documents for GetObject. Likewise
        // If-None-Match overrides If-Modified-Since.
        let holds = match (&self.if_match, self.if_unmodified_since, modified) {
            (Some(condition), ..) => matches_etag(condition, etag, ETagComparison::Strong),
            (None, Some(since), Some(modified)) => modified <= since,
            (None, ..) => true,
        };
        if !holds {
            return ConditionVerdict::Failed;
        }
        let unchanged = match (&self.if_none_match, self.if_modified_since, modified) {
            (Some(condition), ..) => matches_etag(condition, etag, ETagComparison::Weak),
            (None, Some(since), Some(modified)) => modified <= since,
            (None, ..) => false,
        };
        if unchanged { ConditionVerdict::NotModified } else { ConditionVerdict::Proceed }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum ETagComparison {
    Strong,
    Weak,
}

/// Returns whether a condition matches `etag`, which is strong and quoted: nothing else is cached.
fn matches_etag(condition: &ETagCondition, etag: &str, comparison: ETagComparison) -> bool {
    let value = etag.trim_matches('"');
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(ETag::Weak(weak)) => {
            comparison == ETagComparison::Weak && split_etags(weak).any(|one| one == value)
        }
        ETagCondition::ETag(ETag::Strong(strong)) => split_etags(strong).any(|one| one == value),
    }
}

/// Splits a list of quoted ETags, which s3s reads as one: `a", "b`.
fn split_etags(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(|one| one.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs3_protocol::{AnswerHeaders, ContentVersion};

    fn attributes() -> HeadAttributes {
        HeadAttributes {
            version: ContentVersion { etag: "\"abc\"".into(), bytes: 1, version_id: None },
            last_modified: Some(1000),
            headers: AnswerHeaders::default(),
            checksums_known: false,
        }
    }

    fn strong(value: &str) -> Option<ETagCondition> {
        Some(ETagCondition::ETag(ETag::Strong(value.into())))
    }

    fn weak(value: &str) -> Option<ETagCondition> {
        Some(ETagCondition::ETag(ETag::Weak(value.into())))
    }

    #[test]
    fn the_table_of_rfc_9110_holds() {
        use ConditionVerdict::{Failed, NotModified, Proceed};
        let any = || Some(ETagCondition::Any);
        // If-Match, If-Unmodified-Since, If-None-Match, If-Modified-Since
        let table = [
            ((None, None, None, None), Proceed),
            ((strong("abc"), None, None, None), Proceed),
            ((strong("abd"), None, None, None), Failed),
            ((weak("abc"), None, None, None), Failed),
            ((any(), None, None, None), Proceed),
            ((strong("x\", \"abc"), None, None, None), Proceed),
            ((None, Some(1000), None, None), Proceed),
            ((None, Some(999), None, None), Failed),
            ((strong("abc"), Some(999), None, None), Proceed),
            ((strong("abd"), Some(1000), None, None), Failed),
            ((None, None, strong("abc"), None), NotModified),
            ((None, None, weak("abc"), None), NotModified),
            ((None, None, any(), None), NotModified),
            ((None, None, strong("abd"), None), Proceed),
            ((None, None, strong("x\", \"y"), None), Proceed),
            ((None, None, strong("x\", \"abc"), None), NotModified),
            ((None, None, None, Some(1000)), NotModified),
            ((None, None, None, Some(999)), Proceed),
            ((None, None, strong("abd"), Some(1000)), Proceed),
            ((None, None, strong("abc"), Some(999)), NotModified),
            ((strong("abd"), None, strong("abc"), None), Failed),
            ((strong("abc"), None, strong("abc"), None), NotModified),
            ((None, Some(999), None, Some(1000)), Failed),
        ];
        for ((if_match, if_unmodified_since, if_none_match, if_modified_since), expected) in table {
            let conditions = RequestConditions {
                if_match,
                if_none_match,
                if_modified_since,
                if_unmodified_since,
            };
            assert_eq!(conditions.judge_attributes(&attributes()), expected, "{conditions:?}");
        }
    }

    #[test]
    fn dates_say_nothing_about_an_object_without_one() {
        let conditions = RequestConditions {
            if_unmodified_since: Some(0),
            if_modified_since: Some(i64::MAX),
            ..RequestConditions::default()
        };
        let undated = HeadAttributes { last_modified: None, ..attributes() };
        assert_eq!(conditions.judge_attributes(&undated), ConditionVerdict::Proceed);
    }
}
