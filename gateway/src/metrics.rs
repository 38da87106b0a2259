//! Owns the metrics of the gateway's front: name, labels and meaning in one table. The read path
//! and the tier's client have tables of their own.

use std::sync::OnceLock;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::operation_table;
pub use crate::read::metrics::TABLE as READ_TABLE;
use crate::write::chunk_guard::ChunkRefusal;

/// Status classes, by their first digit; 0 for requests that never got an answer.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Seconds of whole requests, from 100 µs (a hot 4 KiB GET) to 5 minutes (a large body).
const SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0];

/// Declares one table of this crate's metrics: as fields of `GatewayMetricRows`, which registers
/// them all, and as `TABLE`.
macro_rules! table {
    ($($field:ident: $kind:ident, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        /// One value for each row.
        struct GatewayMetricRows { $($field: $kind,)* }

        impl GatewayMetricRows {
            fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
                let rows = Self { $($field: crate::metrics::table!(@make $kind, $name, [$($label),*], $help)?,)* };
                $(registry.register(Box::new(rows.$field.clone()))?;)*
                Ok(rows)
            }
        }

        /// Name, labels and meaning of every metric, for the documentation and its test.
        pub const TABLE: &[(&str, &[&str], &str)] = &[$(($name, &[$($label),*], $help)),*];
    };
    (@make IntCounterVec, $name:literal, [$($label:literal),*], $help:literal) => {
        IntCounterVec::new(Opts::new($name, $help), &[$($label),*])
    };
    (@make Histogram, $name:literal, [], $help:literal) => {
        Histogram::with_opts(HistogramOpts::new($name, $help).buckets(SECONDS.to_vec()))
    };
    (@make $kind:ident, $name:literal, [], $help:literal) => { $kind::new($name, $help) };
}
pub(crate) use table;

table! {
    requests: IntCounterVec, "verbs3_gateway_requests_total", ["op", "status"],
        "Requests answered, by operation and status class.";
    seconds: Histogram, "verbs3_gateway_request_seconds", [],
        "From a request's head to its body's last byte.";
    bytes_out: IntCounterVec, "verbs3_gateway_body_bytes_sent_total", ["verdict", "transport"],
        "Bytes of answers' bodies given to the socket, by the cache's verdict and how the first of \
        them came.";
    bytes_in: IntCounter, "verbs3_gateway_body_bytes_received_total", [],
        "Bytes of requests' bodies taken from sockets.";
    in_flight: IntGauge, "verbs3_gateway_requests_in_flight", [],
        "Requests under way, until their body's last byte or until all of it is in memory.";
    in_flight_max: IntGauge, "verbs3_gateway_requests_in_flight_max", [],
        "The configured bound; beyond it 503 SlowDown.";
    denied: IntCounterVec, "verbs3_gateway_denied_total", ["reason"],
        "Requests refused before they did anything, by reason.";
    bodies_refused: IntCounterVec, "verbs3_gateway_bodies_refused_total", ["reason"],
        "Request bodies that were not what was promised, by reason. Nothing of them was stored.";
    chunked_refused: IntCounterVec, "verbs3_gateway_chunk_guard_refused_total", ["reason"],
        "aws-chunked bodies whose framing was refused, by reason.";
    body_memory: IntGauge, "verbs3_gateway_body_memory_bytes", [],
        "Memory taken by bodies of requests under way: uploads and documents, without forms.";
    body_memory_max: IntGauge, "verbs3_gateway_body_memory_bytes_max", [],
        "The configured bound; beyond it 503 SlowDown.";
    http2_queued_bytes: IntGauge, "verbs3_gateway_http2_queued_bytes", [],
        "Bytes of answers that wait for the windows of HTTP/2 clients.";
    http2_answers: IntGauge, "verbs3_gateway_http2_answer_bytes", [],
        "Memory of small answers over HTTP/2 that are no requests under way any more.";
    http2_answers_max: IntGauge, "verbs3_gateway_http2_answer_bytes_max", [],
        "The configured bound; beyond it such an answer stays a request under way until it is \
        sent.";
    form_bytes: IntGauge, "verbs3_gateway_form_bytes", [],
        "Memory taken by form uploads under way.";
    form_bytes_max: IntGauge, "verbs3_gateway_form_bytes_max", [],
        "The configured bound; beyond it 503 SlowDown.";
    tls_errors: IntCounter, "verbs3_gateway_tls_errors_total", [],
        "Connections whose TLS handshake failed or took too long.";
    tls_reloads: IntCounterVec, "verbs3_gateway_tls_reloads_total", ["outcome"],
        "Changed certificate or key files, by what became of them: taken, or refused and the pair \
        before kept.";
    tls_not_after: IntGauge, "verbs3_gateway_tls_certificate_not_after", [],
        "When the certificate in force ends, in seconds since 1970; 0 without TLS.";
    connections: IntGauge, "verbs3_gateway_connections", [], "Open connections.";
    connections_max: IntGauge, "verbs3_gateway_connections_max", [],
        "The configured bound; beyond it connections are closed at once.";
    connections_refused: IntCounter, "verbs3_gateway_connections_refused_total", [],
        "Connections closed because of a bound: on all, on those of one address, or on those of \
        strangers.";
    connections_stalled: IntCounter, "verbs3_gateway_connections_stalled_total", [],
        "Connections cut because the client did not read.";
    connections_unproven: IntGauge, "verbs3_gateway_connections_unproven", [],
        "Open connections over which no signature has held yet.";
    connections_cut: IntCounterVec, "verbs3_gateway_connections_cut_total", ["reason"],
        "Connections cut, by reason: unproven (no signature held in time), displaced (the same, \
        and others wanted its place), idle (HTTP/2 without requests), slow (answers were taken \
        below the minimum rate).";
    requests_unproven: IntGauge, "verbs3_gateway_requests_unproven", [],
        "Forms and preflights under way whose sender is not known yet.";
}

pub(crate) struct GatewayHttpMetrics {
    requests: IntCounterVec,
    /// Counters of `requests`, by operation and class. A lookup by label costs 100 ns.
    by_operation: Vec<[OnceLock<IntCounter>; CLASSES.len()]>,
    pub seconds: Histogram,
    bytes_out: IntCounterVec,
    pub bytes_in: IntCounter,
    pub in_flight: IntGauge,
    pub in_flight_max: IntGauge,
    denied: IntCounterVec,
    bodies_refused: IntCounterVec,
    chunked_refused: IntCounterVec,
    pub body_memory: IntGauge,
    pub body_memory_max: IntGauge,
    pub http2_queued_bytes: IntGauge,
    pub http2_answers: IntGauge,
    pub http2_answers_max: IntGauge,
    pub form_bytes: IntGauge,
    pub form_bytes_max: IntGauge,
    pub tls_errors: IntCounter,
    pub tls_reloads: IntCounterVec,
    pub tls_not_after: IntGauge,
    pub connections: IntGauge,
    pub connections_max: IntGauge,
    pub connections_refused: IntCounter,
    pub connections_stalled: IntCounter,
    pub connections_unproven: IntGauge,
    connections_cut: IntCounterVec,
    pub requests_unproven: IntGauge,
}

impl GatewayHttpMetrics {
    /// Registers the metrics. Fails if their names are taken in this registry.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let GatewayMetricRows {
            requests,
            seconds,
            bytes_out,
            bytes_in,
            in_flight,
            in_flight_max,
            denied,
            bodies_refused,
            chunked_refused,
            body_memory,
            body_memory_max,
            http2_queued_bytes,
            http2_answers,
            http2_answers_max,
            form_bytes,
            form_bytes_max,
            tls_errors,
            tls_reloads,
            tls_not_after,
            connections,
            connections_max,
            connections_refused,
            connections_stalled,
            connections_unproven,
            connections_cut,
            requests_unproven,
        } = GatewayMetricRows::new(registry)?;
        Ok(Self {
            requests,
            by_operation: (0..=operation_table::TABLE.len()).map(|_| Default::default()).collect(),
            seconds,
            bytes_out,
            bytes_in,
            in_flight,
            in_flight_max,
            denied,
            bodies_refused,
            chunked_refused,
            body_memory,
            body_memory_max,
            http2_queued_bytes,
            http2_answers,
            http2_answers_max,
            form_bytes,
            form_bytes_max,
            tls_errors,
            tls_reloads,
            tls_not_after,
            connections,
            connections_max,
            connections_refused,
            connections_stalled,
            connections_unproven,
            connections_cut,
            requests_unproven,
        })
    }

    /// Counts an answered request. `operation`: its index in the table; `None` if it never became
    /// an operation.
    pub fn count_answer(&self, operation: Option<usize>, status: u16) {
        let operation = operation.unwrap_or(operation_table::TABLE.len());
        let class = usize::from(status / 100).min(CLASSES.len() - 1);
        let name = operation_table::TABLE.get(operation).map_or("none", |row| row.name);
        self.by_operation[operation][class]
            .get_or_init(|| self.requests.with_label_values(&[name, CLASSES[class]]))
            .inc();
    }

    /// Counts bytes of one answer's body, by the cache's verdict and the transport of the first of
    /// them.
    pub fn count_sent_bytes(&self, verdict: &str, transport: &str, bytes: u64) {
        if bytes > 0 {
            self.bytes_out.with_label_values(&[verdict, transport]).inc_by(bytes);
        }
    }

    /// Counts a request that was refused before it did anything. `reason` is the label's value.
    pub fn count_denial(&self, reason: &str) {
        self.denied.with_label_values(&[reason]).inc();
    }

    /// Counts a cut connection, for any reason but a client that does not read.
    pub fn count_cut(&self, reason: &str) {
        self.connections_cut.with_label_values(&[reason]).inc();
    }

    /// Counts a refused body. `None`: the home could not be told of the write.
    pub fn body_refused(&self, reason: Option<&str>) {
        if let Some(framing) = reason.filter(|reason| ChunkRefusal::REASONS.contains(reason)) {
            self.chunked_refused.with_label_values(&[framing]).inc();
        }
        self.bodies_refused.with_label_values(&[reason.unwrap_or("home_unreachable")]).inc();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_is_counted_under_its_operation_and_class() {
        let registry = Registry::new();
        let metrics = GatewayHttpMetrics::new(&registry).unwrap();
        let get = operation_table::TABLE.iter().position(|row| row.name == "GetObject");
        metrics.count_answer(get, 206);
        metrics.count_answer(get, 200);
        metrics.count_answer(None, 403);
        assert_eq!(metrics.requests.with_label_values(&["GetObject", "2xx"]).get(), 2);
        assert_eq!(metrics.requests.with_label_values(&["none", "4xx"]).get(), 1);
    }

    #[test]
    fn two_gateways_in_one_registry_are_refused_not_mixed() {
        let registry = Registry::new();
        let _first = GatewayHttpMetrics::new(&registry).unwrap();
        assert!(GatewayHttpMetrics::new(&registry).is_err());
    }
}
