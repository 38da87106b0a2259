//! Owns the metrics of one embedded store: name, labels and meaning in one table, and the values.
//! They show what it holds, and how near it is to its bounds.
//!
//! Counters count at the event. `metrics_collector` samples the gauges at a scrape.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntGauge, Opts};

macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, $help:literal;)*) => {
        /// Metrics of one store, one field for each row. Every one carries the store's name.
        #[derive(Debug)]
        pub struct LocalMetrics { $(#[doc = $help] pub $field: $kind,)* }

        impl LocalMetrics {
            /// Makes all values at zero. `ufs` becomes their only label.
            pub fn new(ufs: &str) -> Self {
                const WHY: &str = "the table's names are valid; a test makes them all";
                let opts = |name, help| Opts::new(name, help).const_label("ufs", ufs);
                Self { $($field: $kind::with_opts(opts($name, $help)).expect(WHY),)* }
            }

            /// Returns each metric.
            pub fn each(&self) -> Vec<&dyn Collector> {
                vec![$(&self.$field),*]
            }
        }

        /// Name, labels and meaning of every metric, for the documentation and its test.
        pub const METRICS: &[(&str, &[&str], &str)] = &[$(($name, &["ufs"], $help)),*];
    };
}

table! {
    commits: IntCounter, "verbs3_ufs_local_commits_total", "Commits of an embedded store's index.";
    changes: IntCounter, "verbs3_ufs_local_changes_total",
        "Changes in them: many share one commit.";
    commit_failures: IntCounter, "verbs3_ufs_local_commit_failures_total",
        "Commits that failed; their writes were refused.";
    changes_queued: IntGauge, "verbs3_ufs_local_changes_queued",
        "Changes that wait for the next commit.";
    changes_queued_max: IntGauge, "verbs3_ufs_local_changes_queued_max",
        "The bound of that queue; beyond it writers wait outside.";
    readers: IntGauge, "verbs3_ufs_local_readers",
        "Bodies and copies being read: each holds at most one file open and two pieces of \
        read_chunk_bytes.";
    writers: IntGauge, "verbs3_ufs_local_writers",
        "Blob files being written, or written and not yet committed: each holds at most two pieces \
        of write_chunk_bytes.";
    index_bytes: IntGauge, "verbs3_ufs_local_index_bytes", "Size of the index's file.";
    index_cache_bytes_max: IntGauge, "verbs3_ufs_local_index_cache_bytes_max",
        "Memory that the index may cache in.";
    objects: IntGauge, "verbs3_ufs_local_objects", "Objects of all buckets.";
    uploads: IntGauge, "verbs3_ufs_local_uploads",
        "Multipart uploads that are neither completed nor aborted.";
    parts: IntGauge, "verbs3_ufs_local_parts", "Parts of such uploads.";
    blobs: IntGauge, "verbs3_ufs_local_blobs", "Files that hold bytes of objects and parts.";
    garbage: IntGauge, "verbs3_ufs_local_blobs_garbage",
        "Files that nothing refers to any more and that are not removed yet: readers hold them, or \
        their turn is to come.";
}
