//! What an answer of a UFS says of an object, before it is decided whether it may be cached.

use verbs3_protocol::{HeadAttributes, RefusalKind, WorkerRefusal};
use verbs3_ufs::{ObjectHead, RawAnswer, UfsError};

use crate::attributes::{AttributeQuery, kept_answers};
use crate::fill::{PageFillError, RunInterest, to_ufs_answer};
use crate::tenants::{AccountSet, TurnsRefused};

/// The UFS's answer, before it is decided whether it may be cached.
pub(super) enum UfsAttributeAnswer {
    Present(HeadAttributes, Option<RunInterest>),
    Absent(RawAnswer),
    /// Two answers of the UFS contradict each other: the object changes under the check.
    Changing,
    Refused(WorkerRefusal),
    /// None of these got a turn to ask.
    NoTurn(WorkerRefusal, AccountSet),
}

impl UfsAttributeAnswer {
    pub(super) fn refused(kind: RefusalKind, reason: &impl ToString) -> Self {
        Self::Refused(WorkerRefusal { kind, reason: reason.to_string() })
    }

    pub(super) fn stopping() -> Self {
        let failure = PageFillError::Stopping;
        Self::refused(failure.refusal_kind(), &failure)
    }

    pub(super) fn no_turn(refused: TurnsRefused<PageFillError>) -> Self {
        let TurnsRefused { cause, asked } = refused;
        let (kind, reason) = (cause.refusal_kind(), cause.to_string());
        Self::NoTurn(WorkerRefusal { kind, reason }, asked)
    }
}

/// Adds the checksums that a ranged answer lacks. If the UFS does not give them, the object is
/// answered without.
pub(super) fn add_checksums(
    version_id: Option<&str>,
    head: Result<ObjectHead, UfsError>,
    got: HeadAttributes,
    coming: Option<RunInterest>,
) -> UfsAttributeAnswer {
    match head {
        Ok(head) => match kept_answers::stated_version(&head).cacheable_version(version_id) {
            // A HEAD may have fewer headers than the GET, and clients of a GET need all of them.
            Ok(version) if version == got.version => match kept_answers::with_checksums(got, &head)
            {
                Some(attributes) => UfsAttributeAnswer::Present(attributes, coming),
                None => UfsAttributeAnswer::Changing,
            },
            _ => UfsAttributeAnswer::Changing,
        },
        Err(UfsError::Answer { answer, .. }) if answer.status.as_u16() == 404 => {
            UfsAttributeAnswer::Changing
        }
        Err(_) => UfsAttributeAnswer::Present(got, coming),
    }
}

/// Refuses an object whose later blocks can't be requested: its UFS ignores `Range`, and would send
/// all the bytes before them first.
pub(super) fn beyond_ranges(
    subject: &AttributeQuery,
    head: &ObjectHead,
) -> Option<UfsAttributeAnswer> {
    let start_max =
        subject.source.ufs.range_start_max().filter(|&start_max| head.bytes > start_max)?;
    let reason = format!(
        "the ufs ignores Range, and the object has more than {start_max} bytes (skip_bytes_max)"
    );
    Some(UfsAttributeAnswer::refused(RefusalKind::Uncacheable, &reason))
}

pub(super) fn answer_from_head(
    subject: &AttributeQuery,
    head: &ObjectHead,
    checksums: bool,
) -> UfsAttributeAnswer {
    if let Some(refused) = beyond_ranges(subject, head) {
        return refused;
    }
    match kept_answers::stated_version(head).cacheable_version(subject.version_id.as_deref()) {
        Ok(version) => UfsAttributeAnswer::Present(
            kept_answers::build_attributes(head, version, checksums),
            None,
        ),
        Err(error) => UfsAttributeAnswer::refused(RefusalKind::Uncacheable, &error),
    }
}

pub(super) fn refused_by_ufs(error: UfsError) -> UfsAttributeAnswer {
    let error = match error {
        UfsError::Answer { answer: raw, .. } if raw.status.as_u16() == 404 => {
            return UfsAttributeAnswer::Absent(*raw);
        }
        error => error,
    };
    let kind = match &error {
        UfsError::Answer { answer: raw, .. } => RefusalKind::Ufs(to_ufs_answer(raw)),
        // The gateway passes on whatever the store says. The cache can't rely on it.
        UfsError::Untrusted { .. } | UfsError::Changed { .. } => RefusalKind::Uncacheable,
        UfsError::Throttled { .. } => RefusalKind::Busy,
        UfsError::Unreachable { .. } | UfsError::Truncated { .. } => RefusalKind::UfsUnreachable,
    };
    UfsAttributeAnswer::refused(kind, &error)
}
