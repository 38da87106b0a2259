//! The gateway's front in numbers: one table of names. `read` and the tier's client have tables of their own.

use std::sync::OnceLock;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, core::Collector};

use crate::operations::TABLE;

/// Status classes, by their first digit; 0 for requests that never got an answer.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Seconds of whole requests, from 100 µs (a hot 4 KiB GET) to 5 minutes (a large body).
const SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0];

pub(crate) struct Metrics {
    requests: IntCounterVec,
    /// Counters of `requests`, by operation and class: looking them up by their labels costs 100 ns each.
    by_operation: Vec<[OnceLock<IntCounter>; CLASSES.len()]>,
    pub seconds: Histogram,
    bytes_out: IntCounterVec,
    pub bytes_in: IntCounter,
    pub in_flight: IntGauge,
    pub in_flight_max: IntGauge,
    denied: IntCounterVec,
    bodies_refused: IntCounterVec,
    pub chunked_refused: IntCounterVec,
    pub tls_errors: IntCounter,
    pub connections: IntGauge,
    pub connections_max: IntGauge,
    pub connections_refused: IntCounter,
    pub connections_stalled: IntCounter,
}

impl Metrics {
    /// Fails if the names are taken in this registry.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let names = Names { registry };
        Ok(Self {
            requests: names.counters(
                "requests_total",
                "Requests answered, by operation and status class.",
                &["op", "status"],
            )?,
            by_operation: (0..=TABLE.len()).map(|_| Default::default()).collect(),
            seconds: names.register(Histogram::with_opts(
                HistogramOpts::new("verbs3_gateway_request_seconds", "From a request's head to its body's last byte.")
                    .buckets(SECONDS.to_vec()),
            )?)?,
            bytes_out: names.counters(
                "body_bytes_sent_total",
                "Bytes of answers' bodies given to the socket, by the cache's verdict and how the first of them came.",
                &["verdict", "transport"],
            )?,
            bytes_in: names.counter("body_bytes_received_total", "Bytes of requests' bodies taken from sockets.")?,
            in_flight: names.gauge(
                "requests_in_flight",
                "Requests under way, until their body's last byte or until all of it is in memory.",
            )?,
            in_flight_max: names.gauge("requests_in_flight_max", "The configured bound; beyond it 503 SlowDown.")?,
            denied: names.counters(
                "denied_total",
                "Requests refused before they did anything, by reason.",
                &["reason"],
            )?,
            bodies_refused: names.counters(
                "bodies_refused_total",
                "Request bodies that were not what was promised, by reason. Nothing of them was stored.",
                &["reason"],
            )?,
            chunked_refused: names.counters(
                "chunk_guard_refused_total",
                "aws-chunked bodies whose framing was refused, by reason.",
                &["reason"],
            )?,
            tls_errors: names
                .counter("tls_errors_total", "Connections whose TLS handshake failed or took too long.")?,
            connections: names.gauge("connections", "Open connections.")?,
            connections_max: names
                .gauge("connections_max", "The configured bound; beyond it connections are closed at once.")?,
            connections_refused: names
                .counter("connections_refused_total", "Connections closed because of the bound.")?,
            connections_stalled: names
                .counter("connections_stalled_total", "Connections cut because the client did not read.")?,
        })
    }

    /// An answered request. `operation`: its index in the table; `None` for what never became an operation.
    pub fn answered(&self, operation: Option<usize>, status: u16) {
        let operation = operation.unwrap_or(TABLE.len());
        let class = usize::from(status / 100).min(CLASSES.len() - 1);
        let name = TABLE.get(operation).map_or("none", |row| row.name);
        self.by_operation[operation][class]
            .get_or_init(|| self.requests.with_label_values(&[name, CLASSES[class]]))
            .inc();
    }

    pub fn sent(&self, verdict: &str, transport: &str, bytes: u64) {
        if bytes > 0 {
            self.bytes_out.with_label_values(&[verdict, transport]).inc_by(bytes);
        }
    }

    pub fn denied(&self, reason: &str) {
        self.denied.with_label_values(&[reason]).inc();
    }

    pub fn body_refused(&self, reason: Option<&str>) {
        self.bodies_refused.with_label_values(&[reason.unwrap_or("home_unreachable")]).inc();
    }
}

struct Names<'a> {
    registry: &'a Registry,
}

impl Names<'_> {
    fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, prometheus::Error> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(Opts::new(format!("verbs3_gateway_{name}"), help), labels)?)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::new(format!("verbs3_gateway_{name}"), help)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::new(format!("verbs3_gateway_{name}"), help)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_is_counted_under_its_operation_and_class() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let get = TABLE.iter().position(|row| row.name == "GetObject");
        metrics.answered(get, 206);
        metrics.answered(get, 200);
        metrics.answered(None, 403);
        assert_eq!(metrics.requests.with_label_values(&["GetObject", "2xx"]).get(), 2);
        assert_eq!(metrics.requests.with_label_values(&["none", "4xx"]).get(), 1);
    }

    #[test]
    fn two_gateways_in_one_registry_are_refused_not_mixed() {
        let registry = Registry::new();
        let _first = Metrics::new(&registry).unwrap();
        assert!(Metrics::new(&registry).is_err());
    }
}
