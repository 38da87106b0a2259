//! Owns the metrics of S3 over RDMA, declared once.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable};

/// Payloads that go by RDMA into memory of clients of other hosts, or out of it.
///
/// See docs/s3-over-rdma.md.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_s3_rdma")]
pub(crate) struct S3RdmaMetrics {
    /// Transfers that are prepared or under way.
    pub(super) sessions: IntGauge,
    /// The configured bound on them; beyond it 503.
    pub(super) sessions_max: IntGauge,
    /// Transfers under way.
    pub(super) transfers: IntGauge,
    /// The configured bound on them; beyond it they wait for their turn, then 503.
    pub(super) transfers_max: IntGauge,
    /// Bytes written into clients' memory by transfers that came to their end.
    pub(super) written_bytes: IntCounter,
    /// Bytes read out of clients' memory by transfers that came to their end.
    pub(super) read_bytes: IntCounter,
    /// Transfers that ended, by what became of them.
    #[metric("verbs3_s3_rdma_sessions_ended_total", labels(outcome), from_zero)]
    pub(super) ended: MetricFamily<TransferOutcome, IntCounter>,
}

/// What became of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum TransferOutcome {
    /// All bytes are in the client's memory, or were read out of it.
    Done,
    /// Its client never said where in its memory they are to be.
    Expired,
    /// Its client gave it up, or has gone.
    Cancelled,
    /// It took too long.
    Late,
    /// The object could not be read, or not to its end; or its turn did not come.
    Unread,
    /// The write of a PUT took no more.
    Unstored,
    /// The client's device refused a write or a read, or did not answer.
    Refused,
    /// This host's rail is gone, or has no memory.
    RailLost,
}
