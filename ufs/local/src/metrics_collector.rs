//! Owns the scrape of one embedded store: it samples the gauges. Serves nothing.

use std::sync::Arc;

use prometheus::{IntGauge, Registry};
use verbs3_metrics::register_sampled;

use super::metrics::LocalMetrics;
use super::store::{LocalStore, LocalStoreInner};

impl LocalStore {
    /// Shows this store's metrics in `registry`, under
    /// [`LocalOptions::name`](super::LocalOptions::name). Does not keep the store open.
    pub fn register_metrics(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        let store = Arc::downgrade(&self.inner);
        register_sampled(registry, LocalMetrics::clone(&self.inner.metrics), move |metrics| {
            // A closed store shows nothing: its gauges would be stale.
            store.upgrade().is_some_and(|store| {
                sample_gauges(&store, metrics);
                true
            })
        })
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
