//! Says why the gateway has to ask the UFS itself.

use verbs3_doors::RareWarning;
use verbs3_metrics::MetricLabel;
use verbs3_protocol::{ObjectKey, RefusalKind, WorkerId, WorkerRefusal};

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

    /// Returns what a worker's refusal to read a span means. Warns of what an operator has to mend.
    pub(crate) fn of_read_refusal(
        refusal: &WorkerRefusal,
        worker: &WorkerId,
        object: &ObjectKey,
        is_replica: bool,
    ) -> Self {
        let misconfigured = |what| {
            if MISCONFIGURED.may_warn(std::time::Instant::now()) {
                tracing::warn!(%worker, %object, reason = %refusal.reason, "{what}");
            }
            Self::Misconfigured
        };
        match &refusal.kind {
            RefusalKind::Busy | RefusalKind::NotHeld | RefusalKind::VersionGone => Self::Busy,
            RefusalKind::UfsUnreachable => Self::UfsUnreachable,
            RefusalKind::Ufs(_) => Self::UfsError,
            RefusalKind::Uncertain => Self::Uncertain,
            RefusalKind::Uncacheable => Self::Uncacheable,
            RefusalKind::UnknownVolume => misconfigured(
                "a worker does not know this volume; give it the same ufs table as the gateway",
            ),
            RefusalKind::GeometryMismatch(_) => misconfigured(
                "a worker has another block or page size; configure the same everywhere",
            ),
            // Workers say this of opens and writes alone: a read names a version, and any worker
            // may serve it.
            RefusalKind::WrongEpoch(_) | RefusalKind::NoLease => Self::Epoch,
            // The owner is asked next, and may be able to read it.
            RefusalKind::Malformed if is_replica => Self::Busy,
            RefusalKind::Malformed => {
                misconfigured("a worker could not read a request; do both run the same version?")
            }
            RefusalKind::Denied => {
                misconfigured("a worker takes this process for one of another role")
            }
        }
    }
}
