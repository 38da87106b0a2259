//! Owns the metrics of one embedded store: name, labels and meaning in one table, and the values.
//! They show what it holds, and how near it is to its bounds.
//!
//! Counters count at the event. Gauges are sampled at a scrape. Does not serve them.

use std::sync::{Arc, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntGauge, Opts, Registry};

use super::store::{LocalStore, LocalStoreInner};

macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, $help:literal;)*) => {
        /// Metrics of one store, one field for each row. Every one carries the store's name.
        #[derive(Debug)]
        pub struct LocalMetrics { $(#[doc = $help] pub $field: $kind,)* }

        impl LocalMetrics {
            /// Makes all values at zero. `ufs` becomes their only label.
            pub fn new(ufs: &str) -> Self {
                const WHY: &str = "the table's names are valid; a test makes them all";
                Self { $($field: $kind::with_opts(Opts::new($name, $help).const_label("ufs", ufs)).expect(WHY),)* }
            }

            fn each(&self) -> Vec<&dyn Collector> {
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

impl LocalStore {
    /// Shows this store's metrics in `registry`, under
    /// [`LocalOptions::name`](super::LocalOptions::name). Does not keep the store open.
    pub fn register_metrics(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        let metrics = self.inner.metrics.clone();
        registry.register(Box::new(LocalCollector { store: Arc::downgrade(&self.inner), metrics }))
    }
}

struct LocalCollector {
    store: Weak<LocalStoreInner>,
    metrics: Arc<LocalMetrics>,
}

impl Collector for LocalCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.metrics.each().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // A closed store shows nothing: its gauges would be stale.
        let Some(store) = self.store.upgrade() else { return Vec::new() };
        sample_gauges(&store, &self.metrics);
        self.metrics.each().into_iter().flat_map(Collector::collect).collect()
    }
}

fn sample_gauges(store: &LocalStoreInner, metrics: &LocalMetrics) {
    let set = |gauge: &IntGauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    let options = &store.options;
    set(&metrics.changes_queued, store.committer.queued_changes() as u64);
    set(&metrics.changes_queued_max, options.commit_queue_max as u64);
    set(&metrics.readers, store.pins.reader_count() as u64);
    set(&metrics.writers, store.dir.unfinished_blobs() as u64);
    set(&metrics.index_cache_bytes_max, options.index_cache_bytes as u64);
    match std::fs::metadata(store.index_path()) {
        Ok(file) => set(&metrics.index_bytes, file.len()),
        Err(error) => {
            tracing::debug!(%error, "the size of the local store's index could not be read")
        }
    }
    match store.count_rows() {
        Ok(rows) => {
            for (gauge, rows) in [
                (&metrics.objects, rows.objects),
                (&metrics.uploads, rows.uploads),
                (&metrics.parts, rows.parts),
                (&metrics.blobs, rows.blobs),
                (&metrics.garbage, rows.garbage),
            ] {
                set(gauge, rows);
            }
        }
        Err(error) => {
            tracing::debug!(%error, "the rows of the local store's index could not be counted")
        }
    }
}
