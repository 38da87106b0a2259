//! Every metric of the read path, by name.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::request::Verdict;

pub(super) struct Metrics {
    hit: IntCounter,
    partial: IntCounter,
    miss: IntCounter,
    bypass: IntCounter,
    /// Spans whose rest was read at the UFS because no worker could give it.
    pub(super) fallback_spans: IntCounter,
    /// Bytes that this gateway itself read from UFSs.
    pub(super) ufs_bytes: IntCounter,
    pub(super) slow_downs: IntCounter,
    /// Bodies that were cut after their first byte.
    pub(super) cut_bodies: IntCounter,
    /// Opens repeated because the version was gone before its first byte was sent.
    pub(super) reopens: IntCounter,
    pub(super) bytes_in_flight: IntGauge,
    pub(super) bypasses_in_flight: IntGauge,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let reads = IntCounterVec::new(
            Opts::new("verbs3_read_requests_total", "GET and HEAD by what the cache did"),
            &["cache"],
        )?;
        registry.register(Box::new(reads.clone()))?;
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let by = |verdict: Verdict| reads.with_label_values(&[verdict.as_str()]);
        Ok(Self {
            hit: by(Verdict::Hit),
            partial: by(Verdict::Partial),
            miss: by(Verdict::Miss),
            bypass: by(Verdict::Bypass),
            fallback_spans: counter(
                "verbs3_read_fallback_spans_total",
                "Spans that the gateway read at the UFS itself",
            )?,
            ufs_bytes: counter("verbs3_read_ufs_bytes_total", "Bytes that the gateway read from UFSs itself")?,
            slow_downs: counter("verbs3_read_slow_downs_total", "Reads answered with 503 SlowDown")?,
            cut_bodies: counter("verbs3_read_cut_bodies_total", "Bodies cut after their first byte")?,
            reopens: counter("verbs3_read_reopens_total", "Objects opened again because their version was gone")?,
            bytes_in_flight: gauge("verbs3_read_bytes_in_flight", "Bytes admitted under bytes_in_flight_max")?,
            bypasses_in_flight: gauge(
                "verbs3_read_bypasses_in_flight",
                "Reads past the tier under way, of ufs_bypass_in_flight_max",
            )?,
        })
    }

    pub(super) fn read(&self, verdict: Verdict) {
        match verdict {
            Verdict::Hit => self.hit.inc(),
            Verdict::Partial => self.partial.inc(),
            Verdict::Miss => self.miss.inc(),
            Verdict::Bypass => self.bypass.inc(),
        }
    }
}
