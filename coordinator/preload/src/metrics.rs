//! Owns every metric of preload jobs, declared once.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription};

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![PreloadMetrics::describe_table()]
}

/// Preload jobs.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_preload")]
pub struct PreloadMetrics {
    /// Preload jobs that run.
    #[metric("verbs3_preload_jobs_running")]
    pub(crate) running: IntGauge,
    /// Preload jobs that wait for their turn.
    #[metric("verbs3_preload_jobs_waiting")]
    pub(crate) waiting: IntGauge,
    /// Preload jobs that ended, by how.
    #[metric("verbs3_preload_jobs_ended_total", labels(state), from_zero)]
    pub(crate) ended: MetricFamily<EndedState, IntCounter>,
    /// Notifications whose objects were not loaded, because coordinator.preload.notified_jobs_max
    /// jobs of others wait or run.
    pub(crate) notified_refused: IntCounter,
    /// Running jobs of guests that gave their places back to tenants with fewer, and wait again.
    pub(crate) places_given_back: IntCounter,
    /// Objects that jobs went through, by what became of them.
    #[metric(labels(outcome))]
    pub(crate) objects: MetricFamily<ObjectOutcome, IntCounter>,
    /// Bytes that jobs asked for: loaded from a UFS, or held already.
    #[metric(labels(found))]
    pub(crate) bytes: MetricFamily<BytesFound, IntCounter>,
    /// Blocks that workers are asked to load.
    #[metric("verbs3_preload_blocks_in_flight")]
    pub(crate) blocks: IntGauge,
    /// Questions put again because a worker or a UFS was busy or away.
    pub(crate) retries: IntCounter,
    /// Writes of a job's progress that failed.
    pub(crate) store_failures: IntCounter,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum EndedState {
    Done,
    Incomplete,
    Failed,
    Stopped,
}

/// What became of an object.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum ObjectOutcome {
    Loaded,
    Failed,
    Vanished,
}

/// Where the bytes of a job were.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(crate) enum BytesFound {
    Loaded,
    Held,
}
