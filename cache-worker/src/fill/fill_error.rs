//! The errors of fills, and the refusals that waiters get for them.

use std::sync::Arc;

use verbs3_protocol::{AnswerHeaders, RefusalKind, UfsAnswer};
use verbs3_ufs::{RawAnswer, UfsError};

/// The reason why a page was not filled. Cheap to clone: every waiter gets one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageFillError {
    /// A bound of this worker is met.
    #[error("{0}")]
    Busy(&'static str),
    /// The UFS has another version, or none.
    #[error("{0}")]
    VersionGone(Arc<str>),
    /// The UFS's own answer.
    #[error("the ufs answered {}", .0.status)]
    Ufs(Arc<UfsAnswer>),
    /// There was no answer, or it broke off.
    #[error("{0}")]
    Unreachable(Arc<str>),
    /// Nobody wanted the page any more when its turn came. A reader that comes at that moment asks
    /// again.
    #[error("the fill was given up")]
    Abandoned,
    /// Only the owner was asked, and it does not hold the page.
    #[error("neither this worker nor the owner holds it")]
    NotHeld,
    /// Only the owner was asked, and it has not said whether it holds the page.
    #[error("the owner does not give it now")]
    OwnerSilent,
    /// The worker shuts down.
    #[error("the worker shuts down")]
    Stopping,
}

impl PageFillError {
    /// Returns what a caller should do instead.
    pub(crate) fn refusal_kind(&self) -> RefusalKind {
        match self {
            Self::Busy(_) | Self::Abandoned | Self::Stopping => RefusalKind::Busy,
            Self::VersionGone(_) => RefusalKind::VersionGone,
            Self::Ufs(answer) => RefusalKind::Ufs(UfsAnswer::clone(answer)),
            Self::Unreachable(_) => RefusalKind::UfsUnreachable,
            // To a reader of a replica both mean the same: ask the owner.
            Self::NotHeld | Self::OwnerSilent => RefusalKind::NotHeld,
        }
    }
}

/// Converts the UFS's answer to its message form.
pub(crate) fn to_ufs_answer(raw: &RawAnswer) -> UfsAnswer {
    let fields = raw.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let headers = AnswerHeaders::copy_fields(fields);
    UfsAnswer { status: raw.status.as_u16(), headers, body: raw.body.to_vec() }
}

/// Converts an error for pages of a known version. The version existed when its attributes were
/// requested, so "not found" now means that it is gone.
pub(crate) fn outcome_of(error: &UfsError) -> PageFillError {
    if error.version_changed() {
        return PageFillError::VersionGone(error.to_string().into());
    }
    match error {
        UfsError::Answer { answer: raw, .. } if matches!(raw.status.as_u16(), 404 | 416) => {
            PageFillError::VersionGone(error.to_string().into())
        }
        UfsError::Answer { answer: raw, .. } => PageFillError::Ufs(Arc::new(to_ufs_answer(raw))),
        UfsError::Changed { .. } | UfsError::Untrusted { .. } => {
            PageFillError::VersionGone(error.to_string().into())
        }
        UfsError::Throttled { .. } => {
            PageFillError::Busy("the ufs has its configured requests under way")
        }
        UfsError::Unreachable { .. } | UfsError::Truncated { .. } => {
            PageFillError::Unreachable(error.to_string().into())
        }
    }
}
