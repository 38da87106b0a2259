//! The metrics of the disk tier, declared once. Owned by one tier, exported through its worker's
//! registry.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, TableFamily};

use super::segment_medium::MediumErrorKind;

/// Seconds of one page's read or write: from the page cache to a device in trouble.
const SECONDS: [f64; 13] =
    [0.00002, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

/// The disk tier of a worker.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_disk")]
pub(crate) struct DiskMetrics {
    pub(super) folders: TableFamily<FolderMetrics>,
    /// Pages that memory did not have, by whether the disk has them.
    #[metric(labels(found), from_zero)]
    pub(super) lookups: MetricFamily<LookupResult, IntCounter>,
    /// Pages that were not written, by reason.
    #[metric(labels(reason))]
    pub(super) dropped: MetricFamily<PageDropReason, IntCounter>,
    /// Pages given up, by reason.
    #[metric(labels(reason))]
    pub(super) evictions: MetricFamily<DiskEvictionReason, IntCounter>,
    /// Bytes of pages that wait to be written, and the bound on them.
    #[metric(labels(bound))]
    pub(super) queue_bytes: MetricFamily<QueueBytesKind, IntGauge>,
}

/// One folder of the disk tier.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_disk", each = "folder")]
pub(super) struct FolderMetrics {
    /// Whether a folder of the disk tier is used; 0: it failed at the start, or rests after errors.
    pub(super) folder_up: IntGauge,
    /// Whether the file system refused more space than the folder has.
    pub(super) folder_full: IntGauge,
    /// Pages on disk.
    pub(super) pages: IntGauge,
    /// Bytes of the pages on disk.
    pub(super) bytes: IntGauge,
    /// Bytes of the segment files.
    pub(super) file_bytes: IntGauge,
    /// The configured bound on the bytes of the segment files.
    pub(super) capacity_bytes: IntGauge,
    /// Pages on disk that are pinned.
    pub(super) pinned_pages: IntGauge,
    /// Pins that wait to be written to the headers of their pages; at 1048576 more are refused.
    pub(super) pins_waiting: IntGauge,
    /// The configured bound on pages, which bounds the index.
    pub(super) pages_max: IntGauge,
    /// Memory that the index of the pages takes.
    pub(super) index_bytes: IntGauge,
    /// Milliseconds that the start took to read the headers.
    pub(super) rebuild_ms: IntGauge,
    /// Pages read into memory.
    promotions: IntCounter,
    /// Bytes of the pages read into memory.
    promoted_bytes: IntCounter,
    /// Pages written.
    demotions: IntCounter,
    /// Bytes of the pages written.
    demoted_bytes: IntCounter,
    /// What did not match its checksum. Dropped, never served.
    #[metric(labels(what))]
    pub(super) corrupt: MetricFamily<CorruptPart, IntCounter>,
    /// Failed operations, by operation and kind of failure.
    #[metric(labels(op, kind))]
    pub(super) errors: MetricFamily<(MediumOperation, MediumErrorKind), IntCounter>,
    /// Seconds to read a page.
    #[metric(buckets = SECONDS)]
    read_seconds: Histogram,
    /// Seconds to write a page.
    #[metric(buckets = SECONDS)]
    write_seconds: Histogram,
}

impl FolderMetrics {
    pub(super) fn count_promotion(&self, bytes: usize, took: Duration) {
        self.promotions.inc();
        self.promoted_bytes.inc_by(bytes as u64);
        self.read_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn count_demotion(&self, bytes: usize, took: Duration) {
        self.demotions.inc();
        self.demoted_bytes.inc_by(bytes as u64);
        self.write_seconds.observe(took.as_secs_f64());
    }
}

/// Whether the disk has a page.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(super) enum LookupResult {
    Hit,
    Miss,
}

/// Why a page was not written.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(super) enum PageDropReason {
    /// No sign of reuse, and no room.
    Cold,
    /// Too many wait.
    Queue,
    Known,
    Quota,
    /// All is pinned.
    Room,
    Error,
    /// None is up.
    Folder,
}

/// Why a page on disk was given up.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(super) enum DiskEvictionReason {
    Room,
    Age,
    Asked,
}

/// What the bytes of the write queue are.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(super) enum QueueBytesKind {
    Now,
    Max,
}

/// What did not match its checksum.
#[derive(Debug, Clone, Copy, MetricLabel)]
pub(super) enum CorruptPart {
    /// At its promotion.
    Page,
    /// At the start.
    Header,
}

/// An operation on a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(super) enum MediumOperation {
    Read,
    Write,
    Create,
    List,
    Any,
}
