//! Owns the metrics of tenants, declared once: a table for each.

use prometheus::{IntCounter, IntGauge};
use verbs3_metrics::{MetricFamily, MetricLabel, MetricsTable};

/// What tenants of a gateway do and hold. The first 64 tenants that a gateway comes to know have
/// series of their own, the rest are `other`.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_tenant", each = "tenant")]
pub(crate) struct TenantMetrics {
    /// Requests whose signature held.
    pub requests: IntCounter,
    /// Bytes of answers' bodies given to sockets.
    pub bytes_sent: IntCounter,
    /// Bytes of requests' bodies taken from sockets.
    pub bytes_received: IntCounter,
    /// Bytes read from stores past the cache, and bytes of uploads to them.
    pub store_bytes: IntCounter,
    /// What is held now: requests, or bytes.
    #[metric(labels(resource))]
    pub held: MetricFamily<SharedResource, IntGauge>,
    /// Times that something was not free at once, and was got after a wait.
    #[metric(labels(resource))]
    pub waits: MetricFamily<SharedResource, IntCounter>,
    /// Times that something was refused: 503 SlowDown, a read that goes on with less memory, or an
    /// answer by an older CORS configuration or without one.
    #[metric(labels(resource))]
    pub refusals: MetricFamily<SharedResource, IntCounter>,
}

/// What tenants share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MetricLabel)]
pub(crate) enum SharedResource {
    /// Requests under way.
    Requests,
    /// Memory that bytes of reads land in.
    ReadBytes,
    /// The part of it that reads of data may hold which is not cached.
    ColdReadBytes,
    /// Reads past the cache.
    Bypasses,
    /// Requests to a store besides reads.
    StoreRequests,
    /// Bytes a second to and from a store. None is held.
    StoreBytes,
    /// Memory of requests' bodies.
    BodyBytes,
    /// Memory of forms.
    FormBytes,
    /// Memory of small answers over HTTP/2.
    AnswerBytes,
    /// CORS configurations that stores are asked for.
    CorsLookups,
    /// Questions about preload jobs.
    PreloadQuestions,
    /// Processes that lend memory.
    LendingClients,
    /// Threads that map their memory.
    LendingMappings,
    /// Memory that they lend.
    LentBytes,
    /// Bytes of workers that they read where they lie.
    PageBytes,
    /// Transfers by RDMA that are prepared or under way.
    RdmaSessions,
    /// Those under way.
    RdmaTransfers,
}
