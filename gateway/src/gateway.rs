//! Owns the gateway as a whole: its parts, its tasks, start and shutdown. Does none of the work.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::Registry;
use s3s::config::{S3Config, S3ConfigProvider, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_client::CacheTierClient;
use verbs3_doors::KeyShares;
use verbs3_telemetry::RequestTracer;

use crate::auth::{AuthAccessGate, AuthKeyProvider, IdentityStore};
use crate::cors::{CorsOptions, CorsResponder};
use crate::exchange::{IdentityShares, RequestPlaces, share_of};
use crate::http::{
    AdminEndpoints, AdminLimits, FormUploads, GatewayFront, HostDomains, HttpListener, HttpServer,
    InboundBounds, LenientRoute, RateMin, ReadinessCheck, form_memory,
};
use crate::metrics::GatewayHttpMetrics;
use crate::mount::MountTable;
use crate::operations::{OperationCore, S3Implementation};
use crate::read::ObjectReader;
use crate::write::HomeNotifier;
use crate::write::body_budget::BodyBudget;

/// Bounds and choices of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayOptions {
    /// Domains under which `bucket.domain` names a bucket. Other hosts are path style.
    pub domains: Vec<String>,
    /// Most requests under way, until their body's last byte; beyond it 503 SlowDown.
    pub requests_in_flight_max: usize,
    pub connections_max: usize,
    /// Most connections of one address.
    pub connections_per_address_max: usize,
    /// Most connections over which no signature has held yet. Beyond it the oldest gives way.
    pub unproven_connections_max: usize,
    /// Most connections of one address over which no signature has held yet.
    pub unproven_per_address_max: usize,
    /// Most requests that wait for something before their signature is verified: forms and
    /// preflights. Beyond it 503 SlowDown.
    pub unproven_requests_max: usize,
    /// Longest time from a connection's beginning until a signature holds. Nothing renews it.
    pub proof_max: Duration,
    /// Longest wait for a request's head, also on a connection kept open between requests.
    pub header_read_max: Duration,
    pub header_bytes_max: usize,
    /// Longest time between two frames of a request's body.
    pub body_idle_max: Duration,
    /// Longest stall of a client that does not read its answer.
    pub write_stall_max: Duration,
    /// Lowest rate of a request's body. Only the time in which the gateway waits for it counts.
    pub upload_rate_min: RateMin,
    /// Lowest rate of an answer's body. It applies to each body that waits for the client.
    pub download_rate_min: RateMin,
    /// Part of the requests under way that one of several identities may hold.
    pub identity_share_percent: u32,
    /// Most uploads of one of several identities to one UFS.
    pub uploads_per_identity_max: usize,
    pub tls_handshake_max: Duration,
    /// Memory for the bodies of all requests under way, without forms; beyond it 503 SlowDown.
    pub bodies_bytes_max: u64,
    /// Bytes of bodies that an HTTP/2 connection may send before they are read. One request may
    /// send a quarter.
    pub http2_window_bytes: u32,
    /// Memory of small answers that wait for HTTP/2 clients. Beyond it they stay requests under
    /// way.
    pub http2_answers_bytes_max: u64,
    /// Largest XML document in a request.
    pub xml_bytes_max: usize,
    /// Largest form upload; it is held whole in memory.
    pub post_object_bytes_max: u64,
    /// Memory for all form uploads at once; beyond it 503 SlowDown.
    pub post_objects_bytes_max: u64,
    /// Whether requests signed by version 2 are accepted.
    pub sigv2: bool,
    /// Largest difference between a client's clock and this host's.
    pub clock_skew_max: Duration,
    /// How long a bucket's CORS configuration stays in the cache.
    pub cors_ttl: Duration,
    /// Most CORS configurations asked of UFSs at once for strangers. Known callers have as many of
    /// their own.
    pub cors_lookups_max: usize,
    /// Longest wait for one CORS configuration.
    pub cors_lookup_max: Duration,
    pub admin: AdminLimits,
}

/// About 1 MiB in a minute.
const RATE_MIN: RateMin = RateMin { bytes_per_second: 16 << 10, window: Duration::from_secs(30) };

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            requests_in_flight_max: 4096,
            connections_max: 8192,
            connections_per_address_max: 8192,
            unproven_connections_max: 4096,
            unproven_per_address_max: 2048,
            unproven_requests_max: 256,
            proof_max: Duration::from_secs(30),
            header_read_max: Duration::from_secs(60),
            header_bytes_max: 64 * 1024,
            body_idle_max: Duration::from_secs(60),
            write_stall_max: Duration::from_secs(60),
            upload_rate_min: RATE_MIN,
            download_rate_min: RATE_MIN,
            identity_share_percent: 90,
            uploads_per_identity_max: 448,
            tls_handshake_max: Duration::from_secs(10),
            bodies_bytes_max: 256 * 1024 * 1024,
            http2_window_bytes: 512 * 1024,
            http2_answers_bytes_max: 64 * 1024 * 1024,
            // S3's largest document: 10,000 parts of a CompleteMultipartUpload, or 1,000 keys of 1
            // KiB.
            xml_bytes_max: 4 * 1024 * 1024,
            post_object_bytes_max: 64 * 1024 * 1024,
            post_objects_bytes_max: 128 * 1024 * 1024,
            sigv2: false,
            // S3's own limit.
            clock_skew_max: Duration::from_secs(15 * 60),
            cors_ttl: Duration::from_secs(5),
            cors_lookups_max: 8,
            cors_lookup_max: Duration::from_secs(5),
            admin: AdminLimits::default(),
        }
    }
}

/// A gateway. Serves until [`GatewayService::shutdown`].
pub struct GatewayService {
    server: HttpServer,
    front: Arc<GatewayFront>,
    registry: Registry,
    /// Ends the server's and the gateway's own tasks.
    stop: CancellationToken,
    /// Ends the admin endpoints. They outlive the rest, to report its shutdown.
    stop_admin: CancellationToken,
    tasks: TaskTracker,
    admin_tasks: TaskTracker,
    admin_limits: AdminLimits,
}

impl GatewayService {
    /// Makes a gateway in front of a tier. Must be called within a tokio runtime. Fails if a
    /// metric's name is taken in the registry.
    pub fn new(
        options: GatewayOptions,
        mounts: MountTable,
        reader: ObjectReader,
        tier: Arc<CacheTierClient>,
        identities: Arc<IdentityStore>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        Self::from_parts(options, mounts, Some(reader), Arc::new(tier), identities, registry)
    }

    /// Makes a gateway whose reads go to the UFS, and which tells another kind of homes of its
    /// writes.
    pub fn without_tier(
        options: GatewayOptions,
        mounts: MountTable,
        homes: Arc<dyn HomeNotifier>,
        identities: Arc<IdentityStore>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        Self::from_parts(options, mounts, None, homes, identities, registry)
    }

    fn from_parts(
        options: GatewayOptions,
        mounts: MountTable,
        reader: Option<ObjectReader>,
        homes: Arc<dyn HomeNotifier>,
        identities: Arc<IdentityStore>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let metrics = Arc::new(GatewayHttpMetrics::new(registry)?);
        metrics
            .in_flight_max
            .set(i64::try_from(options.requests_in_flight_max).unwrap_or(i64::MAX));
        metrics.connections_max.set(i64::try_from(options.connections_max).unwrap_or(i64::MAX));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(identities.clone().follow_file(stop.clone()));

        let asking = CorsOptions {
            ttl: options.cors_ttl,
            lookups_max: options.cors_lookups_max,
            lookup_max: options.cors_lookup_max,
        };
        let cors = Arc::new(CorsResponder::new(mounts.clone(), asking, metrics.clone()));
        let core =
            OperationCore { mounts, homes, reader, metrics: metrics.clone(), cors: cors.clone() };
        let operations = S3Implementation(Arc::new(core));
        let config: Arc<dyn S3ConfigProvider> =
            Arc::new(StaticConfigProvider::new(Arc::new(s3_config(&options))));
        let service = || {
            let mut builder = S3ServiceBuilder::new(operations.clone());
            builder.set_config(config.clone());
            builder.set_auth(AuthKeyProvider { identities: identities.clone() });
            builder.set_access(AuthAccessGate {
                identities: identities.clone(),
                metrics: metrics.clone(),
            });
            if !options.domains.is_empty() {
                builder.set_host(HostDomains::new(&options.domains));
            }
            builder
        };
        let mut outer = service();
        outer.set_route(LenientRoute { inner: service().build(), identities: identities.clone() });
        metrics
            .form_bytes_max
            .set(i64::try_from(options.post_objects_bytes_max).unwrap_or(i64::MAX));
        let requests =
            RequestPlaces::new(options.requests_in_flight_max, metrics.in_flight.clone());
        let requests_max = share_of(options.requests_in_flight_max, options.identity_share_percent);
        let shares = IdentityShares {
            identities: identities.clone(),
            requests: KeyShares::new(requests_max),
            uploads: KeyShares::new(options.uploads_per_identity_max),
            metrics: metrics.clone(),
        };
        let forms = FormUploads {
            identities,
            domains: HostDomains::new(&options.domains),
            sigv2: options.sigv2,
            file_bytes_max: options.post_object_bytes_max,
            memory: form_memory(options.post_objects_bytes_max),
            held: metrics.form_bytes.clone(),
            proof_max: options.proof_max,
            requests: requests.clone(),
        };
        let bodies = inbound_bounds(&options, &metrics);
        metrics
            .http2_answers_max
            .set(i64::try_from(options.http2_answers_bytes_max).unwrap_or(i64::MAX));
        let answers =
            BodyBudget::new(options.http2_answers_bytes_max, metrics.http2_answers.clone());
        let front = GatewayFront {
            service: outer.build(),
            in_flight: requests,
            unproven: RequestPlaces::new(
                options.unproven_requests_max,
                metrics.requests_unproven.clone(),
            ),
            metrics,
            bodies,
            answers,
            shares: Arc::new(shares),
            forms,
            clock_skew_max: options.clock_skew_max,
            tracer: OnceLock::new(),
            cors,
        };
        let front = Arc::new(front);
        let server = HttpServer::new(front.clone(), &options, stop.clone());
        let stop_admin = CancellationToken::new();
        let registry = registry.clone();
        let (admin_tasks, admin_limits) = (TaskTracker::new(), options.admin);
        Ok(Self { server, front, registry, stop, stop_admin, tasks, admin_tasks, admin_limits })
    }

    /// Has requests traced from now on. The first tracer stays.
    pub fn trace_with(&self, tracer: Arc<RequestTracer>) {
        let _ = self.front.tracer.set(tracer);
    }

    /// Serves S3 on a listener, besides those served already.
    pub fn serve_s3(&self, listener: HttpListener) {
        self.server.serve_listener(listener);
    }

    /// Serves `/metrics`, `/healthz` and `/readyz`. Not ready once the shutdown has begun.
    pub fn serve_admin(&self, socket: tokio::net::TcpListener, mut readiness: Vec<ReadinessCheck>) {
        readiness.push(ReadinessCheck::until_shutdown(self.stop.clone()));
        let (registry, stop) = (self.registry.clone(), self.stop_admin.clone());
        let admin = AdminEndpoints { registry, readiness, stop, limits: self.admin_limits };
        self.admin_tasks.spawn(admin.serve_endpoints(socket));
    }

    /// Accepts no more connections, and lets requests under way end for up to `drain_max`. The
    /// tier's client waits for the reports of abandoned writes.
    pub async fn shutdown(&self, drain_max: Duration) {
        self.stop.cancel();
        self.server.drain_requests(drain_max).await;
        self.tasks.close();
        self.tasks.wait().await;
        self.stop_admin.cancel();
        self.admin_tasks.close();
        self.admin_tasks.wait().await;
    }
}

/// Most bytes of a body that the UFS's client queues before its connection takes them: hyper's
/// buffer of 408 KiB, and one frame.
const STORE_QUEUE_BYTES: u64 = 480 * 1024;

/// Size of an HTTP/2 frame, by hyper's setting.
const FRAME_BYTES: u64 = 16 * 1024;

/// Returns how much memory each body may hold. An object's body holds three parts: what the
/// socket's buffer or the HTTP/2 window takes ahead; one frame that is held back (at most that
/// buffer, or one of HTTP/2's frames); and what waits for the UFS.
fn inbound_bounds(options: &GatewayOptions, metrics: &GatewayHttpMetrics) -> InboundBounds {
    metrics.body_memory_max.set(i64::try_from(options.bodies_bytes_max).unwrap_or(i64::MAX));
    let ahead = (2 * options.header_bytes_max as u64)
        .max(u64::from(options.http2_window_bytes / 4) + FRAME_BYTES);
    InboundBounds {
        idle_max: options.body_idle_max,
        rate_min: options.upload_rate_min,
        budget: BodyBudget::new(options.bodies_bytes_max, metrics.body_memory.clone()),
        upload_bytes: ahead + STORE_QUEUE_BYTES,
        document_bytes_max: options.xml_bytes_max as u64,
    }
}

fn s3_config(options: &GatewayOptions) -> S3Config {
    let mut config = S3Config::default();
    config.xml_max_body_size = options.xml_bytes_max;
    config.post_object_max_file_size = options.post_object_bytes_max;
    config.presigned_url_max_skew_time_secs =
        u32::try_from(options.clock_skew_max.as_secs()).unwrap_or(u32::MAX);
    config
}
