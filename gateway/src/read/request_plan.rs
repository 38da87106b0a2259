//! Decides what a GET or HEAD asks for: through the tier or straight to the UFS, which bytes, under
//! which conditions. Pure.

use std::ops::Range;

use s3s::dto::{ChecksumMode, GetObjectInput, HeadObjectInput, Timestamp};
use verbs3_protocol::{ByteRange, HeadAttributes};

use super::conditions::{RequestConditions, whole_seconds};
use super::if_range::IfRange;
use crate::mount::MountedBucket;

/// The request to the tier.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReadRequestPlan {
    pub(super) key: String,
    pub(super) version_id: Option<String>,
    /// `None`: the whole object. An invalid `Range` never comes this far; S3 ignores it.
    pub(super) range: Option<ByteRange>,
    /// The version of which the range is wanted; `None`: any.
    pub(super) if_range: Option<IfRange>,
    pub(super) checksums: bool,
    pub(super) conditions: RequestConditions,
    pub(super) overrides: HeaderOverrides,
}

/// Values of `response-*` parameters: headers that the client wants instead of the object's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HeaderOverrides {
    pub(super) cache_control: Option<String>,
    pub(super) content_disposition: Option<String>,
    pub(super) content_encoding: Option<String>,
    pub(super) content_language: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) expires: Option<Timestamp>,
}

/// The bytes of an object that are the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerExtent {
    /// 200
    Whole(Range<u64>),
    /// 206
    Part(Range<u64>),
    /// 416
    Unsatisfiable,
}

impl AnswerExtent {
    pub(super) fn from_range(range: Option<ByteRange>, object_bytes: u64) -> Self {
        match range {
            None => Self::Whole(0..object_bytes),
            Some(range) => {
                range.resolve_range(object_bytes).map_or(Self::Unsatisfiable, Self::Part)
            }
        }
    }
}

macro_rules! ask {
    ($input:expr, $mount:expr) => {{
        let input = $input;
        // The UFS judges parts, client keys, owners and payers; `null` names no fixed version.
        let bypass = !$mount.cached
            || input.part_number.is_some()
            || input.sse_customer_algorithm.is_some()
            || input.sse_customer_key.is_some()
            || input.sse_customer_key_md5.is_some()
            || input.expected_bucket_owner.is_some()
            || input.request_payer.is_some()
            || input.version_id.as_deref().is_some_and(|id| id == "null" || id.is_empty());
        (!bypass).then(|| ReadRequestPlan {
            key: input.key.clone(),
            version_id: input.version_id.clone(),
            range: input.range.map(byte_range),
            if_range: None,
            checksums: input
                .checksum_mode
                .as_ref()
                .is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED),
            conditions: RequestConditions {
                if_match: input.if_match.clone(),
                if_none_match: input.if_none_match.clone(),
                if_modified_since: input.if_modified_since.as_ref().map(whole_seconds),
                if_unmodified_since: input.if_unmodified_since.as_ref().map(whole_seconds),
            },
            overrides: HeaderOverrides {
                cache_control: input.response_cache_control.clone(),
                content_disposition: input.response_content_disposition.clone(),
                content_encoding: input.response_content_encoding.clone(),
                content_language: input.response_content_language.clone(),
                content_type: input.response_content_type.clone(),
                expires: input.response_expires.clone(),
            },
        })
    }};
}

impl ReadRequestPlan {
    /// Plans a GET. `None`: send it straight to the UFS.
    pub(super) fn of_get(
        input: &GetObjectInput,
        mount: &MountedBucket,
        if_range: Option<&IfRange>,
    ) -> Option<Self> {
        ask!(input, mount).map(|ask| Self { if_range: if_range.cloned(), ..ask })
    }

    /// Plans a GET or HEAD without conditions.
    pub(crate) fn of_plain(key: &str, range: Option<s3s::dto::Range>, checksums: bool) -> Self {
        Self {
            key: key.to_owned(),
            version_id: None,
            range: range.map(byte_range),
            if_range: None,
            checksums,
            conditions: RequestConditions::default(),
            overrides: HeaderOverrides::default(),
        }
    }

    /// Plans a HEAD. `None`: send it straight to the UFS.
    pub(super) fn of_head(input: &HeadObjectInput, mount: &MountedBucket) -> Option<Self> {
        ask!(input, mount)
    }

    /// Returns the range to answer with. `None`, too, if the client has a part of another version.
    pub(super) fn range_of(&self, attributes: &HeadAttributes) -> Option<ByteRange> {
        let names = |if_range: &IfRange| {
            if_range.names_version(Some(&attributes.version.etag), attributes.last_modified)
        };
        self.range.filter(|_| self.if_range.as_ref().is_none_or(names))
    }
}

fn byte_range(range: s3s::dto::Range) -> ByteRange {
    match range {
        s3s::dto::Range::Int { first, last } => ByteRange::From { first, last },
        s3s::dto::Range::Suffix { length } => ByteRange::Suffix { bytes: length },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 9110 section 14.1.2, byte by byte.
    fn reference(range: ByteRange, bytes: u64) -> Vec<u64> {
        let wanted = |at: u64| match range {
            ByteRange::All => true,
            ByteRange::From { first, last } => at >= first && last.is_none_or(|last| at <= last),
            ByteRange::Suffix { bytes: suffix } => at + suffix >= bytes,
        };
        (0..bytes).filter(|&at| wanted(at)).collect()
    }

    fn range() -> impl Strategy<Value = ByteRange> {
        prop_oneof![
            (0u64..80, proptest::option::of(0u64..80))
                .prop_map(|(first, last)| ByteRange::From { first, last }),
            (0u64..80).prop_map(|bytes| ByteRange::Suffix { bytes }),
        ]
    }

    proptest! {
        #[test]
        fn ranges_are_what_the_reference_says(range in range(), bytes in 0u64..70) {
            let expected = reference(range, bytes);
            match AnswerExtent::from_range(Some(range), bytes) {
                AnswerExtent::Part(part) => prop_assert_eq!(part.collect::<Vec<_>>(), expected),
                AnswerExtent::Unsatisfiable => prop_assert!(expected.is_empty()),
                AnswerExtent::Whole(_) => prop_assert!(false, "a range is never answered with 200"),
            }
        }
    }

    #[test]
    fn range_past_end_is_not_satisfiable() {
        let from = |first| Some(ByteRange::From { first, last: None });
        assert_eq!(AnswerExtent::from_range(from(10), 10), AnswerExtent::Unsatisfiable);
        assert_eq!(AnswerExtent::from_range(from(0), 0), AnswerExtent::Unsatisfiable);
        assert_eq!(
            AnswerExtent::from_range(Some(ByteRange::Suffix { bytes: 0 }), 10),
            AnswerExtent::Unsatisfiable
        );
        assert_eq!(AnswerExtent::from_range(None, 0), AnswerExtent::Whole(0..0));
    }
}
