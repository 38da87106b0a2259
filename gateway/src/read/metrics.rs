//! Owns every metric of the read path: name, labels and meaning in one table.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::metrics::table;
use crate::request::ReadVerdict;

table! {
    reads: IntCounterVec, "verbs3_read_requests_total", ["cache"],
        "GET and HEAD by what the cache did.";
    fallback_spans: IntCounter, "verbs3_read_fallback_spans_total", [],
        "Spans that the gateway read at the UFS itself, because no worker could give the rest.";
    ufs_bytes: IntCounter, "verbs3_read_ufs_bytes_total", [],
        "Bytes that the gateway read from UFSs itself.";
    slow_downs: IntCounter, "verbs3_read_slow_downs_total", [], "Reads answered with 503 SlowDown.";
    cut_bodies: IntCounter, "verbs3_read_cut_bodies_total", [],
        "Bodies cut after their first byte.";
    resumptions: IntCounter, "verbs3_read_resumptions_total", [],
        "Pauses after which a body that had begun asked another source for its rest.";
    reopens: IntCounter, "verbs3_read_reopens_total", [],
        "Objects opened again because their version was gone before its first byte was sent.";
    bytes_in_flight: IntGauge, "verbs3_read_bytes_in_flight", [],
        "Bytes admitted under bytes_in_flight_max.";
    bypasses_in_flight: IntGauge, "verbs3_read_bypasses_in_flight", [],
        "Reads past the tier under way, of ufs_bypass_in_flight_max.";
}

pub(super) struct ReadMetrics {
    hit: IntCounter,
    partial: IntCounter,
    miss: IntCounter,
    bypass: IntCounter,
    pub(super) fallback_spans: IntCounter,
    pub(super) ufs_bytes: IntCounter,
    pub(super) slow_downs: IntCounter,
    pub(super) cut_bodies: IntCounter,
    pub(super) resumptions: IntCounter,
    pub(super) reopens: IntCounter,
    pub(super) bytes_in_flight: IntGauge,
    pub(super) bypasses_in_flight: IntGauge,
}

impl ReadMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let GatewayMetricRows {
            reads,
            fallback_spans,
            ufs_bytes,
            slow_downs,
            cut_bodies,
            resumptions,
            reopens,
            bytes_in_flight,
            bypasses_in_flight,
        } = GatewayMetricRows::new(registry)?;
        let by = |verdict: ReadVerdict| reads.with_label_values(&[verdict.as_str()]);
        Ok(Self {
            hit: by(ReadVerdict::Hit),
            partial: by(ReadVerdict::Partial),
            miss: by(ReadVerdict::Miss),
            bypass: by(ReadVerdict::Bypass),
            fallback_spans,
            ufs_bytes,
            slow_downs,
            cut_bodies,
            resumptions,
            reopens,
            bytes_in_flight,
            bypasses_in_flight,
        })
    }

    pub(super) fn read(&self, verdict: ReadVerdict) {
        match verdict {
            ReadVerdict::Hit => self.hit.inc(),
            ReadVerdict::Partial => self.partial.inc(),
            ReadVerdict::Miss => self.miss.inc(),
            ReadVerdict::Bypass => self.bypass.inc(),
        }
    }
}
