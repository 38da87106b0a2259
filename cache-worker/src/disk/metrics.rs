//! The metrics of the disk tier: name, labels and meaning in one table. Owned by one tier, exported
//! through its worker's registry.

use std::path::Path;
use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::segment_medium::MediumErrorKind;

/// Seconds of one page's read or write: from the page cache to a device in trouble.
const SECONDS: [f64; 13] =
    [0.00002, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        /// The metrics, one field for each row. Clones share the values.
        #[derive(Clone)]
        pub(super) struct DiskMetrics { $(#[doc = $help] pub(super) $field: $kind,)* }

        impl DiskMetrics {
            pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
                let metrics = Self { $($field: table!(@make $kind, $name, [$($label),*], $help)?,)* };
                $(registry.register(Box::new(metrics.$field.clone()))?;)*
                Ok(metrics)
            }
        }

        /// Name, labels and meaning of every metric, for the documentation and its test.
        pub const TABLE: &[(&str, &[&str], &str)] = &[$(($name, &[$($label),*], $help)),*];
    };
    (@make HistogramVec, $name:literal, [$($label:literal),*], $help:literal) => {
        HistogramVec::new(HistogramOpts::new($name, $help).buckets(SECONDS.to_vec()), &[$($label),*])
    };
    (@make $kind:ident, $name:literal, [$($label:literal),*], $help:literal) => {
        $kind::new(Opts::new($name, $help), &[$($label),*])
    };
}

table! {
    folder_up: IntGaugeVec, "verbs3_disk_folder_up", ["folder"], "Whether a folder of the disk tier is used; 0: it failed at the start, or rests after errors.";
    folder_full: IntGaugeVec, "verbs3_disk_folder_full", ["folder"], "Whether the file system refused more space than the folder has.";
    pages: IntGaugeVec, "verbs3_disk_pages", ["folder"], "Pages on disk.";
    bytes: IntGaugeVec, "verbs3_disk_bytes", ["folder"], "Bytes of the pages on disk.";
    file_bytes: IntGaugeVec, "verbs3_disk_file_bytes", ["folder"], "Bytes of the segment files.";
    capacity_bytes: IntGaugeVec, "verbs3_disk_capacity_bytes", ["folder"], "The configured bound on them.";
    pinned_pages: IntGaugeVec, "verbs3_disk_pinned_pages", ["folder"], "Pages on disk that are pinned.";
    pins_waiting: IntGaugeVec, "verbs3_disk_pins_waiting", ["folder"], "Pins that wait to be written to the headers of their pages; at 1048576 more are refused.";
    pages_max: IntGaugeVec, "verbs3_disk_pages_max", ["folder"], "The configured bound on pages, which bounds the index.";
    index_bytes: IntGaugeVec, "verbs3_disk_index_bytes", ["folder"], "Memory that the index of the pages takes.";
    rebuild_ms: IntGaugeVec, "verbs3_disk_rebuild_ms", ["folder"], "Milliseconds that the start took to read the headers.";

    lookups: IntCounterVec, "verbs3_disk_lookups_total", ["found"],
        "Pages that memory did not have, by whether the disk has them (hit, miss).";
    promotions: IntCounterVec, "verbs3_disk_promotions_total", ["folder"], "Pages read into memory.";
    promoted_bytes: IntCounterVec, "verbs3_disk_promoted_bytes_total", ["folder"], "Bytes of the pages read into memory.";
    demotions: IntCounterVec, "verbs3_disk_demotions_total", ["folder"], "Pages written.";
    demoted_bytes: IntCounterVec, "verbs3_disk_demoted_bytes_total", ["folder"], "Bytes of the pages written.";
    dropped: IntCounterVec, "verbs3_disk_dropped_total", ["reason"],
        "Pages that were not written, by reason: cold (no sign of reuse, and no room), queue (too \
        many wait), known, quota, room (all is pinned), error, folder (none is up).";
    evictions: IntCounterVec, "verbs3_disk_evictions_total", ["reason"],
        "Pages given up, by reason (room, age, asked).";
    corrupt: IntCounterVec, "verbs3_disk_corrupt_total", ["folder", "what"], "What did not match its checksum: a page at its promotion, a header at the start. Dropped, never served.";
    errors: IntCounterVec, "verbs3_disk_errors_total", ["folder", "op", "kind"], "Failed operations, by operation (read, write, create, list, any) and kind (full, read_only, io, missing, stalled, other).";
    queue_bytes: IntGaugeVec, "verbs3_disk_queue_bytes", ["bound"],
        "Bytes of pages that wait to be written, and the bound on them (now, max).";
    read_seconds: HistogramVec, "verbs3_disk_read_seconds", ["folder"], "Seconds to read a page.";
    write_seconds: HistogramVec, "verbs3_disk_write_seconds", ["folder"], "Seconds to write a page.";
}

/// The metrics of one folder.
#[derive(Clone)]
pub(super) struct FolderMetrics {
    pub(super) all: DiskMetrics,
    folder: String,
}

macro_rules! of_folder {
    ($($name:ident -> $kind:ty),* $(,)?) => {
        $(pub(super) fn $name(&self) -> $kind {
            self.all.$name.with_label_values(&[&self.folder])
        })*
    };
}

impl FolderMetrics {
    pub(super) fn new(all: &DiskMetrics, folder: &Path) -> Self {
        Self { all: all.clone(), folder: folder.display().to_string() }
    }

    of_folder! {
        folder_up -> prometheus::IntGauge,
        folder_full -> prometheus::IntGauge,
        pages -> prometheus::IntGauge,
        pages_max -> prometheus::IntGauge,
        bytes -> prometheus::IntGauge,
        file_bytes -> prometheus::IntGauge,
        capacity_bytes -> prometheus::IntGauge,
        pinned_pages -> prometheus::IntGauge,
        pins_waiting -> prometheus::IntGauge,
        index_bytes -> prometheus::IntGauge,
        rebuild_ms -> prometheus::IntGauge,
    }

    pub(super) fn count_promotion(&self, bytes: usize, took: Duration) {
        let labels: &[&str] = &[&self.folder];
        self.all.promotions.with_label_values(labels).inc();
        self.all.promoted_bytes.with_label_values(labels).inc_by(bytes as u64);
        self.all.read_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    pub(super) fn count_demotion(&self, bytes: usize, took: Duration) {
        let labels: &[&str] = &[&self.folder];
        self.all.demotions.with_label_values(labels).inc();
        self.all.demoted_bytes.with_label_values(labels).inc_by(bytes as u64);
        self.all.write_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    pub(super) fn count_corrupt(&self, what: &str, count: u64) {
        self.all.corrupt.with_label_values(&[self.folder.as_str(), what]).inc_by(count);
    }

    pub(super) fn count_error(&self, op: &str, trouble: MediumErrorKind) {
        self.all.errors.with_label_values(&[self.folder.as_str(), op, trouble.as_str()]).inc();
    }

    pub(super) fn count_evictions(&self, reason: &str, count: u64) {
        self.all.evictions.with_label_values(&[reason]).inc_by(count);
    }
}
