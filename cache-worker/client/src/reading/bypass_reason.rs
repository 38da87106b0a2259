//! Says why the gateway has to ask the UFS itself.

use verbs3_doors::RareWarning;
use verbs3_metrics::MetricLabel;

/// A cluster whose processes differ refuses every read; one warning of it a second is enough. The
/// metric of the bypasses counts them all.
pub(crate) static MISCONFIGURED: RareWarning = RareWarning::new();

/// Reason why the gateway has to ask the UFS itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, MetricLabel)]
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
    /// Returns the value as logs and metrics show it.
    pub fn as_str(self) -> &'static str {
        self.label_text()
    }
}
