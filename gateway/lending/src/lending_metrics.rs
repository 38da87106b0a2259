//! Owns the metrics of lent memory, declared once.

use prometheus::{IntCounter, IntGauge};
use verbs3_lending_protocol::{LendingRefusal, LentOutcome};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable};

/// Memory that processes of this host lend, and the reads and writes through it.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_lending")]
pub struct LendingMetrics {
    /// Clients that have proven who they are.
    pub clients: IntGauge,
    /// The configured bound on them; beyond it clients are refused.
    pub clients_max: IntGauge,
    /// Connections over which no signature has held yet.
    pub strangers: IntGauge,
    /// Bytes that clients lend now.
    pub memory_bytes: IntGauge,
    /// The configured bound on them; beyond it memory is refused.
    pub memory_bytes_max: IntGauge,
    /// Threads that map memory of clients now.
    pub mappings: IntGauge,
    /// The configured bound on them; beyond it clients wait.
    pub mappings_max: IntGauge,
    /// Reads and writes under way.
    pub(crate) reads_in_flight: IntGauge,
    /// Times that a client had more requests waiting in its ring than it may have in flight.
    pub(crate) reads_saturated: IntCounter,
    /// Reads and writes that are over, by how they ended.
    #[metric(labels(outcome))]
    pub(crate) reads: MetricFamily<LandingEnd, IntCounter>,
    /// Bytes of bodies that were copied into lent memory.
    pub(crate) bytes_landed: IntCounter,
    /// Bytes of bodies that were received straight into lent memory, without a copy by the gateway.
    pub(crate) bytes_placed: IntCounter,
    /// Bytes of bodies that were left in pages of a worker, which clients read there.
    pub(crate) bytes_in_pages: IntCounter,
    /// Answers whose pages clients keep now.
    pub(crate) page_loans: IntGauge,
    /// Bytes of such pages, rounded up to KiB.
    pub page_bytes: IntGauge,
    /// The configured bound on them; beyond it bytes are copied.
    pub page_bytes_max: IntGauge,
    /// Bytes of bodies of writes that were copied out of lent memory.
    pub(crate) bytes_taken: IntCounter,
    /// Clients that were refused, by reason.
    #[metric(labels(reason))]
    pub(crate) refused: MetricFamily<RefusalLabel, IntCounter>,
    /// Connections that the gateway has cut, by reason.
    #[metric(labels(reason))]
    pub(crate) cut: MetricFamily<LendingCut, IntCounter>,
}

/// How a read ended, or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum LandingEnd {
    /// Head and body have landed, whatever the status was.
    Answered,
    /// The client had less room than the body is long.
    BodyTooLong,
    /// The client had less room than the head is long.
    HeadTooLong,
    /// The body ended before its end.
    BodyCut,
    /// The client's request could not be read.
    Malformed,
    /// The connection ended first, or the request broke down.
    Failed,
}

impl From<LentOutcome> for LandingEnd {
    fn from(outcome: LentOutcome) -> Self {
        match outcome {
            LentOutcome::Answered => Self::Answered,
            LentOutcome::BodyTooLong => Self::BodyTooLong,
            LentOutcome::HeadTooLong => Self::HeadTooLong,
            LentOutcome::BodyCut => Self::BodyCut,
            LentOutcome::Malformed => Self::Malformed,
            LentOutcome::Failed => Self::Failed,
        }
    }
}

/// Why a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum RefusalLabel {
    /// A message of the handshake could not be read.
    Malformed,
    /// There is no such access key.
    UnknownKey,
    /// The signature did not hold.
    Signature,
    /// The client's clock was off.
    Clock,
    /// As many clients as may lend memory did.
    Clients,
    /// Not exactly one descriptor was passed.
    Descriptor,
    /// What was passed is no sealed memfd.
    Seals,
    /// It could not be mapped, or had holes.
    Pages,
    /// It was larger than one client may lend.
    MemoryBytes,
    /// All clients together lent as much as they may.
    MemoryTotal,
    /// The rings did not lie in it as they must.
    Layout,
}

impl From<LendingRefusal> for RefusalLabel {
    fn from(refusal: LendingRefusal) -> Self {
        match refusal {
            LendingRefusal::Malformed => Self::Malformed,
            LendingRefusal::UnknownKey => Self::UnknownKey,
            LendingRefusal::Signature => Self::Signature,
            LendingRefusal::Clock => Self::Clock,
            LendingRefusal::Clients => Self::Clients,
            LendingRefusal::Descriptor => Self::Descriptor,
            LendingRefusal::Seals => Self::Seals,
            LendingRefusal::Pages => Self::Pages,
            LendingRefusal::MemoryBytes => Self::MemoryBytes,
            LendingRefusal::MemoryTotal => Self::MemoryTotal,
            LendingRefusal::Layout => Self::Layout,
        }
    }
}

/// Why the gateway cuts a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum LendingCut {
    /// It was not done with the handshake in time.
    Late,
    /// Others wanted its place before it had proven anything.
    Displaced,
    /// There was no place for one more stranger.
    Crowded,
    /// Its identity is gone, or has another secret.
    Revoked,
    /// Its rings said what can't be.
    Broken,
}
