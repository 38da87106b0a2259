//! Owns the metrics of one embedded store, declared once, and the values. They show what it holds,
//! and how near it is to its bounds.
//!
//! Counters count at the event. `metrics_collector` samples the gauges at a scrape.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::MetricsTable;

/// An embedded store.
#[derive(Debug, MetricsTable)]
#[metrics(prefix = "verbs3_ufs_local", each = "ufs")]
pub struct LocalMetrics {
    /// Commits of an embedded store's index.
    pub commits: IntCounter,
    /// Changes in them: many share one commit.
    pub changes: IntCounter,
    /// Commits that failed; their writes were refused.
    pub commit_failures: IntCounter,
    /// Changes that wait for the next commit.
    pub changes_queued: IntGauge,
    /// The bound of that queue; beyond it writers wait outside.
    pub changes_queued_max: IntGauge,
    /// Bodies and copies being read: each holds at most one file open and two pieces of
    /// read_chunk_bytes.
    pub readers: IntGauge,
    /// Blob files being written, or written and not yet committed: each holds at most two pieces of
    /// write_chunk_bytes.
    pub writers: IntGauge,
    /// Size of the index's file.
    pub index_bytes: IntGauge,
    /// Memory that the index may cache in.
    pub index_cache_bytes_max: IntGauge,
    /// Objects of all buckets.
    pub objects: IntGauge,
    /// Multipart uploads that are neither completed nor aborted.
    pub uploads: IntGauge,
    /// Parts of such uploads.
    pub parts: IntGauge,
    /// Files that hold bytes of objects and parts.
    pub blobs: IntGauge,
    /// Files that nothing refers to any more and that are not removed yet: readers hold them, or
    /// their turn is to come.
    #[metric("verbs3_ufs_local_blobs_garbage")]
    pub garbage: IntGauge,
}
