//! Every metric of this crate, by name.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use verbs3_rdma::transport::TransportKind;

/// Counters of one tier client.
pub(crate) struct Metrics {
    /// Calls by kind (`open`, `read`, `announce`, `report`, `forget`) and outcome (`ok`, `refused`, `failed`, `dropped`).
    pub(crate) calls: IntCounterVec,
    pub(crate) hedges: IntCounter,
    pub(crate) failovers: IntCounter,
    /// By kind of call.
    pub(crate) repeats: IntCounterVec,
    pub(crate) bypasses: IntCounterVec,
    pub(crate) checksum_failures: IntCounter,
    pub(crate) rests: IntCounter,
    pub(crate) announce_failures: IntCounter,
    pub(crate) report_failures: IntCounter,
    pub(crate) writes_open: IntGauge,
    bytes: [IntCounter; 3],
    pub(crate) open_ok: IntCounter,
    pub(crate) read_ok: IntCounter,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let vector = |name: &str, help: &str, labels: &[&str]| -> Result<IntCounterVec, prometheus::Error> {
            let vector = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(vector.clone()))?;
            Ok(vector)
        };
        let calls = vector("verbs3_client_calls_total", "Calls to workers by kind and outcome", &["kind", "outcome"])?;
        let bytes = vector("verbs3_client_bytes_total", "Verified bytes from workers by transport", &["transport"])?;
        let writes_open = IntGauge::new("verbs3_client_writes_open", "Announced writes that are not reported yet")?;
        registry.register(Box::new(writes_open.clone()))?;
        let by_kind = |kind: TransportKind| bytes.with_label_values(&[kind.as_str()]);
        Ok(Self {
            hedges: counter("verbs3_client_hedges_total", "Spans asked of a replica because the owner was silent")?,
            failovers: counter(
                "verbs3_client_failovers_total",
                "Spans that went on with another worker after a failure",
            )?,
            repeats: vector(
                "verbs3_client_repeats_total",
                "Calls put to the same worker again because their connection broke, by kind",
                &["kind"],
            )?,
            bypasses: vector("verbs3_client_bypasses_total", "Reads sent to the UFS by reason", &["reason"])?,
            checksum_failures: counter(
                "verbs3_client_checksum_failures_total",
                "Pieces whose bytes were not what was stored",
            )?,
            rests: counter("verbs3_client_rests_total", "Rests that workers were given after failures")?,
            announce_failures: counter(
                "verbs3_client_announce_failures_total",
                "Writes that a home could not be told of",
            )?,
            report_failures: counter(
                "verbs3_client_report_failures_total",
                "Writes whose end a home could not be told",
            )?,
            writes_open,
            bytes: [by_kind(TransportKind::Shm), by_kind(TransportKind::Verbs), by_kind(TransportKind::Tcp)],
            open_ok: calls.with_label_values(&["open", "ok"]),
            read_ok: calls.with_label_values(&["read", "ok"]),
            calls,
        })
    }

    pub(crate) fn call(&self, kind: &'static str, outcome: &'static str) {
        self.calls.with_label_values(&[kind, outcome]).inc();
    }

    pub(crate) fn bytes(&self, kind: TransportKind, bytes: u64) {
        let counter = match kind {
            TransportKind::Shm => &self.bytes[0],
            TransportKind::Verbs => &self.bytes[1],
            TransportKind::Tcp => &self.bytes[2],
        };
        counter.inc_by(bytes);
    }
}
