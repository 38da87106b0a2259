//! Says why the gateway has to ask the UFS itself.

use crate::metrics::TierMetrics;

/// Reason why the gateway has to ask the UFS itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BypassReason {
    /// No memory for a landing.
    Arena,
    /// No worker of the block can be reached, or all of them failed.
    Workers,
    /// The workers have no memory, or too many fills.
    Busy,
    /// A write is under way, or its end is unknown.
    Uncertain,
    /// The object has no strong ETag, or is encrypted with a client's key.
    Uncacheable,
    /// The object changes faster than it can be opened.
    Changing,
    /// The worker could not reach the UFS. Perhaps the gateway can; if not, the client gets the
    /// gateway's error.
    UfsUnreachable,
    /// The worker got an error from the UFS in the middle of a body. The gateway asks again for the
    /// UFS's own answer.
    UfsError,
    /// Gateway and worker are configured differently.
    Misconfigured,
    /// Gateway and worker have different placement maps.
    Epoch,
}

impl BypassReason {
    /// Returns the value of the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::Workers => "workers",
            Self::Busy => "busy",
            Self::Uncertain => "uncertain",
            Self::Uncacheable => "uncacheable",
            Self::Changing => "changing",
            Self::UfsUnreachable => "ufs_unreachable",
            Self::UfsError => "ufs_error",
            Self::Misconfigured => "misconfigured",
            Self::Epoch => "epoch",
        }
    }

    /// Counts one more bypass for this reason, and returns the reason.
    pub(crate) fn count_in(self, metrics: &TierMetrics) -> Self {
        metrics.bypasses.with_label_values(&[self.as_str()]).inc();
        self
    }
}
