//! Owns the metrics of what runs in Kubernetes.

use prometheus::{IntCounter, IntGauge};
use verbs3_certificates::metrics::ReloadOutcome;
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable, MetricsTableDescription};

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![WebhookMetrics::describe_table(), ControllerMetrics::describe_table()]
}

/// The webhook for pods.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_webhook")]
pub struct WebhookMetrics {
    /// Requests, by what was answered.
    #[metric(labels(outcome))]
    pub(crate) reviews: MetricFamily<ReviewOutcome, IntCounter>,
    /// Reviews whose body is held in memory: at most `webhook.reviews_max`.
    pub(crate) reviews_in_flight: IntGauge,
    /// Connections, each for one review: at most `webhook.connections_max`.
    pub(crate) connections: IntGauge,
    /// Connections that found no place.
    pub(crate) connections_refused: IntCounter,
    /// Connections that were cut before their answer was taken.
    #[metric(labels(reason))]
    pub(crate) connections_cut: MetricFamily<WebhookConnectionCut, IntCounter>,
    /// TLS handshakes that failed.
    pub(crate) tls_errors: IntCounter,
    /// Changed files of `webhook.tls`, by what became of them.
    #[metric(labels(outcome))]
    pub(crate) tls_reloads: MetricFamily<ReloadOutcome, IntCounter>,
    /// When the webhook's certificate ends, in seconds since 1970.
    #[metric("verbs3_webhook_tls_certificate_not_after")]
    pub(crate) tls_not_after: IntGauge,
}

/// The controller of `Preload` resources.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_controller")]
pub struct ControllerMetrics {
    /// What was done for resources.
    #[metric(labels(work))]
    pub(crate) work: MetricFamily<PreloadWork, IntCounter>,
    /// Resources whose job is not over, or whose finalizer is still there.
    pub(crate) resources: IntGauge,
    /// Resources that were due, and found no turn in the last round. They come first in a later one.
    pub(crate) left_out: IntGauge,
}

/// One step of work on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum PreloadWork {
    /// The endpoint told of the job, or took it.
    Looked,
    /// The endpoint refused, or did not answer.
    Refused,
    /// The API server refused, or did not answer.
    ApiFailed,
    /// The job was over.
    Ended,
    /// The job was stopped with its resource.
    Stopped,
    /// The resource went, and its job may run on.
    Abandoned,
}

/// What a request got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum ReviewOutcome {
    /// Variables for one container at least.
    Patched,
    /// Nothing: all is set already, or the pod wants nothing.
    Unchanged,
    /// 4xx: it is no admission review, too long, or did not come in time.
    Malformed,
    /// 503: too many bodies of its address were on their way.
    Busy,
}

/// Why a connection to the webhook is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum WebhookConnectionCut {
    /// Others wanted its place.
    Displaced,
    /// It lasted for `webhook.deadline`.
    Late,
}
