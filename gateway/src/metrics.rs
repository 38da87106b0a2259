//! Owns the metrics of the gateway's front, declared once. The read path and the tier's client have
//! tables of their own.

use prometheus::{Histogram, IntCounter, IntGauge};
use verbs3_certificates::metrics::ReloadOutcome;
use verbs3_lending::LendingMetrics;
use verbs3_metrics::{
    LabelValue, MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription,
};

use crate::operation_table;
use crate::read::metrics::ReadMetrics;
use crate::request_context::{BytesOrigin, ReadVerdict};
use crate::s3_rdma::S3RdmaMetrics;
use crate::tenant_metrics::TenantMetrics;
use crate::write::populate::PopulateMetrics;

/// Seconds of whole requests, from 100 µs (a hot 4 KiB GET) to 5 minutes (a large body).
const SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0];

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![
        GatewayHttpMetrics::describe_table(),
        LendingMetrics::describe_table(),
        PopulateMetrics::describe_table(),
        ReadMetrics::describe_table(),
        S3RdmaMetrics::describe_table(),
        TenantMetrics::describe_table(),
    ]
}

/// The front of a gateway.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_gateway")]
pub(crate) struct GatewayHttpMetrics {
    /// Requests answered, by operation and status class.
    #[metric(labels(op, status))]
    requests: MetricFamily<(Option<OperationLabel>, StatusClass), IntCounter>,
    /// GETs and HEADs of the plain form, answered without the general parser of S3 requests.
    #[metric("verbs3_gateway_plain_reads_total")]
    pub plain_reads: IntCounter,
    /// Requests for objects with `x-amz-rdma-token`: their clients wanted the payload to come or go
    /// by RDMA, and were told to use HTTP.
    pub rdma_declines: IntCounter,
    /// From a request's head to its body's last byte.
    #[metric("verbs3_gateway_request_seconds", buckets = SECONDS)]
    pub seconds: Histogram,
    /// Bytes of answers' bodies given to the socket, by the cache's verdict and how the first of
    /// them came.
    #[metric("verbs3_gateway_body_bytes_sent_total", labels(verdict, transport))]
    bytes_out: MetricFamily<(Option<ReadVerdict>, Option<BytesOrigin>), IntCounter>,
    /// Bytes of requests' bodies taken from sockets.
    #[metric("verbs3_gateway_body_bytes_received_total")]
    pub bytes_in: IntCounter,
    /// Requests of known senders under way, until their body's last byte or until all of it is in
    /// memory; a write whose client has gone, until its end.
    #[metric("verbs3_gateway_requests_in_flight")]
    pub in_flight: IntGauge,
    /// Requests to stores besides reads.
    #[metric("verbs3_gateway_store_requests_in_flight")]
    pub store_requests: IntGauge,
    /// Writes that go on although their clients have gone. Each holds its tenant's places among the
    /// requests under way and among those to its store.
    #[metric("verbs3_gateway_left_writes")]
    pub left_writes: IntGauge,
    /// The configured bound on requests under way; beyond it they wait, then 503 SlowDown.
    #[metric("verbs3_gateway_requests_in_flight_max")]
    pub in_flight_max: IntGauge,
    /// Requests refused before they did anything, by reason.
    #[metric(labels(reason))]
    denied: MetricFamily<DenialReason, IntCounter>,
    /// Request bodies that were not what was promised, by reason. Nothing of them was stored.
    #[metric(labels(reason))]
    bodies_refused: MetricFamily<BodyRefusal, IntCounter>,
    /// aws-chunked bodies whose framing was refused, by reason.
    #[metric("verbs3_gateway_chunk_guard_refused_total", labels(reason))]
    chunked_refused: MetricFamily<FramingRefusal, IntCounter>,
    /// Memory taken by bodies of requests under way: uploads and documents, without forms.
    #[metric("verbs3_gateway_body_memory_bytes")]
    pub body_memory: IntGauge,
    /// The configured bound on the memory of bodies; beyond it 503 SlowDown.
    #[metric("verbs3_gateway_body_memory_bytes_max")]
    pub body_memory_max: IntGauge,
    /// Bytes of answers that wait for the windows of HTTP/2 clients.
    pub http2_queued_bytes: IntGauge,
    /// Memory of small answers over HTTP/2 that are no requests under way any more.
    #[metric("verbs3_gateway_http2_answer_bytes")]
    pub http2_answers: IntGauge,
    /// The configured bound on small answers over HTTP/2; beyond it such an answer stays a request
    /// under way until it is sent.
    #[metric("verbs3_gateway_http2_answer_bytes_max")]
    pub http2_answers_max: IntGauge,
    /// Memory taken by form uploads under way.
    pub form_bytes: IntGauge,
    /// The configured bound on the memory of form uploads; beyond it 503 SlowDown.
    pub form_bytes_max: IntGauge,
    /// Connections whose TLS handshake failed or took too long.
    pub tls_errors: IntCounter,
    /// Changed certificate or key files, by what became of them.
    #[metric(labels(outcome))]
    pub tls_reloads: MetricFamily<ReloadOutcome, IntCounter>,
    /// When the certificate in force ends, in seconds since 1970; 0 without TLS.
    #[metric("verbs3_gateway_tls_certificate_not_after")]
    pub tls_not_after: IntGauge,
    /// Open connections.
    pub connections: IntGauge,
    /// The configured bound on connections; beyond it connections are closed at once.
    pub connections_max: IntGauge,
    /// Connections closed because of a bound: on all, on those of one address, or on those of
    /// strangers.
    pub connections_refused: IntCounter,
    /// Connections cut because the client did not read.
    pub connections_stalled: IntCounter,
    /// Open connections over which no signature has held yet.
    pub connections_unproven: IntGauge,
    /// Connections cut for any reason but a client that does not read, by reason.
    #[metric(labels(reason))]
    pub connections_cut: MetricFamily<ConnectionCut, IntCounter>,
    /// CORS configurations that stores are asked for because of signed requests.
    pub cors_lookups: IntGauge,
    /// Questions about preload jobs that wait for the coordinators.
    pub preload_questions: IntGauge,
    /// Forms and preflights under way whose sender is not known yet.
    pub requests_unproven: IntGauge,
}

impl GatewayHttpMetrics {
    /// Counts an answered request. `operation`: its index in the table; `None` if it never became
    /// an operation.
    pub fn count_answer(&self, operation: Option<usize>, status: u16) {
        let class = StatusClass::of_status(status);
        self.requests[(operation.map(OperationLabel), class)].inc();
    }

    /// Counts bytes of one answer's body, by the cache's verdict and the transport of the first of
    /// them.
    pub fn count_sent_bytes(
        &self,
        verdict: Option<ReadVerdict>,
        origin: Option<BytesOrigin>,
        bytes: u64,
    ) {
        if bytes > 0 {
            self.bytes_out[(verdict, origin)].inc_by(bytes);
        }
    }

    /// Counts a request that was refused before it did anything.
    pub fn count_denial(&self, reason: DenialReason) {
        self.denied[reason].inc();
    }

    /// Counts a refused body. `None`: the home could not be told of the write.
    pub fn body_refused(&self, reason: Option<BodyRefusal>) {
        let reason = reason.unwrap_or(BodyRefusal::HomeUnreachable);
        if let Some(framing) = reason.framing_refusal() {
            self.chunked_refused[framing].inc();
        }
        self.bodies_refused[reason].inc();
    }
}

/// An operation, by its index in the table of operations.
#[derive(Debug, Clone, Copy)]
struct OperationLabel(usize);

impl MetricLabel for OperationLabel {
    const VALUES: &'static [LabelValue] = &{
        let mut values = [LabelValue { text: "", documentation: "" }; operation_table::TABLE.len()];
        let mut index = 0;
        while index < values.len() {
            values[index].text = operation_table::TABLE[index].name;
            index += 1;
        }
        values
    };

    fn value_index(self) -> usize {
        self.0
    }
}

/// The first digit of a status.
#[derive(Debug, Clone, Copy, MetricLabel)]
enum StatusClass {
    /// There never was an answer.
    None,
    #[label("1xx")]
    Informational,
    #[label("2xx")]
    Success,
    #[label("3xx")]
    Redirection,
    #[label("4xx")]
    ClientError,
    #[label("5xx")]
    ServerError,
}

impl StatusClass {
    fn of_status(status: u16) -> Self {
        match status / 100 {
            0 => Self::None,
            1 => Self::Informational,
            2 => Self::Success,
            3 => Self::Redirection,
            4 => Self::ClientError,
            _ => Self::ServerError,
        }
    }
}

/// Why a request was refused before it did anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum DenialReason {
    Anonymous,
    UnknownKey,
    Signature,
    /// The clocks differ too much.
    Clock,
    /// A presigned URL or a form is too old.
    Expired,
    #[label("sigv2")]
    SignatureVersion2,
    UnsignedHeader,
    Policy,
    ReadOnly,
    PrefixMount,
    Destination,
    Unsupported,
    /// Over a bound, by a tenant that holds its share or more.
    TenantShare,
    /// Over the bound on requests whose sender is not known yet.
    Unproven,
    /// Over a bound that is held by others.
    Overloaded,
    CorsLookups,
    /// Over the bound on requests about preload jobs.
    Preloads,
}

/// Why a body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum BodyRefusal {
    Length,
    Md5,
    Checksum,
    Trailer,
    ChunkSignature,
    Sha256,
    Busy,
    TooBig,
    Idle,
    Slow,
    Broken,
    HomeUnreachable,
    ChunkTooLarge,
    Malformed,
    TooLong,
    TooShort,
    EndedEarly,
}

impl BodyRefusal {
    fn framing_refusal(self) -> Option<FramingRefusal> {
        match self {
            Self::ChunkTooLarge => Some(FramingRefusal::ChunkTooLarge),
            Self::Malformed => Some(FramingRefusal::Malformed),
            Self::TooLong => Some(FramingRefusal::TooLong),
            Self::TooShort => Some(FramingRefusal::TooShort),
            Self::EndedEarly => Some(FramingRefusal::EndedEarly),
            _ => None,
        }
    }
}

/// Why the framing of an aws-chunked body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
enum FramingRefusal {
    ChunkTooLarge,
    Malformed,
    TooLong,
    TooShort,
    EndedEarly,
}

/// Why a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum ConnectionCut {
    /// No signature has held in time.
    Unproven,
    /// No signature has held, and other connections needed the place.
    Displaced,
    /// HTTP/2 without requests.
    Idle,
    /// Answers were taken below the minimum rate.
    Slow,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use prometheus::Registry;

    #[test]
    fn an_answer_is_counted_under_its_operation_and_class() {
        let registry = Registry::new();
        let metrics = GatewayHttpMetrics::new(&registry).unwrap();
        let get = operation_table::TABLE.iter().position(|row| row.name == "GetObject");
        metrics.count_answer(get, 206);
        metrics.count_answer(get, 200);
        metrics.count_answer(None, 403);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "verbs3_gateway_requests_total{op=\"GetObject\",status=\"2xx\"} 2",
            "verbs3_gateway_requests_total{op=\"none\",status=\"4xx\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn two_gateways_in_one_registry_are_refused_not_mixed() {
        let registry = Registry::new();
        let _first = GatewayHttpMetrics::new(&registry).unwrap();
        assert!(GatewayHttpMetrics::new(&registry).is_err());
    }
}
