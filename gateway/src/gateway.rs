//! The gateway as a whole: what it is made of, when it starts and how it ends. Owns its tasks. Does none of the work.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::Registry;
use s3s::config::{S3Config, S3ConfigProvider, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verbs3_client::Tier;
use verbs3_telemetry::Tracer;

use crate::auth::{Access, Identities, Keys};
use crate::cors::Cors;
use crate::http::{Admin, Domains, Forms, Front, InboundBounds, Lenient, Listener, Readiness, Server, form_memory};
use crate::metrics::Metrics;
use crate::mount::Mounts;
use crate::operations::{Core, Operations};
use crate::read::Reader;
use crate::write::Homes;
use crate::write::body_budget::BodyBudget;

/// Bounds and choices of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayOptions {
    /// Domains under which `bucket.domain` is a bucket. Other hosts are path style.
    pub domains: Vec<String>,
    /// Requests under way, until their body's last byte; beyond it 503 SlowDown.
    pub requests_in_flight_max: usize,
    pub connections_max: usize,
    /// For a request's head, also on a connection kept open between requests.
    pub header_read_max: Duration,
    pub header_bytes_max: usize,
    /// Between two frames of a request's body.
    pub body_idle_max: Duration,
    /// For a client that does not read its answer.
    pub write_stall_max: Duration,
    pub tls_handshake_max: Duration,
    /// Memory for the bodies of all requests under way, without forms; beyond it 503 SlowDown.
    pub bodies_bytes_max: u64,
    /// What an HTTP/2 connection may send of bodies before they are read; one request may send a quarter.
    pub http2_window_bytes: u32,
    /// Memory of small answers that wait for HTTP/2 clients; beyond it they stay requests under way.
    pub http2_answers_bytes_max: u64,
    /// Largest XML document in a request.
    pub xml_bytes_max: usize,
    /// Largest form upload: held whole in memory.
    pub post_object_bytes_max: u64,
    /// All form uploads at once; beyond it 503 SlowDown.
    pub post_objects_bytes_max: u64,
    /// Whether requests signed by version 2 are taken.
    pub sigv2: bool,
    /// Between a client's clock and this host's.
    pub clock_skew_max: Duration,
    /// How long a bucket's CORS configuration is believed.
    pub cors_ttl: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            requests_in_flight_max: 4096,
            connections_max: 8192,
            header_read_max: Duration::from_secs(60),
            header_bytes_max: 64 * 1024,
            body_idle_max: Duration::from_secs(60),
            write_stall_max: Duration::from_secs(60),
            tls_handshake_max: Duration::from_secs(10),
            bodies_bytes_max: 256 * 1024 * 1024,
            http2_window_bytes: 512 * 1024,
            http2_answers_bytes_max: 64 * 1024 * 1024,
            // S3's largest document: 10,000 parts of a CompleteMultipartUpload, or 1,000 keys of 1 KiB.
            xml_bytes_max: 4 * 1024 * 1024,
            post_object_bytes_max: 64 * 1024 * 1024,
            post_objects_bytes_max: 128 * 1024 * 1024,
            sigv2: false,
            // As S3.
            clock_skew_max: Duration::from_secs(15 * 60),
            cors_ttl: Duration::from_secs(5),
        }
    }
}

/// A gateway. Serves until [`Gateway::shutdown`].
pub struct Gateway {
    server: Server,
    front: Arc<Front>,
    registry: Registry,
    /// Ends the server's and the gateway's own tasks.
    stop: CancellationToken,
    /// Ends the admin endpoints, which outlive the others to tell of their end.
    stop_admin: CancellationToken,
    tasks: TaskTracker,
    admin_tasks: TaskTracker,
}

impl Gateway {
    /// A gateway in front of a tier. Must be called within a tokio runtime. Fails if a metric's name is taken in the registry.
    pub fn new(
        options: GatewayOptions,
        mounts: Mounts,
        reader: Reader,
        tier: Arc<Tier>,
        identities: Arc<Identities>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        Self::of(options, mounts, Some(reader), Arc::new(tier), identities, registry)
    }

    /// A gateway whose reads go to the UFS, and whose writes are told to homes of another kind.
    pub fn without_tier(
        options: GatewayOptions,
        mounts: Mounts,
        homes: Arc<dyn Homes>,
        identities: Arc<Identities>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        Self::of(options, mounts, None, homes, identities, registry)
    }

    fn of(
        options: GatewayOptions,
        mounts: Mounts,
        reader: Option<Reader>,
        homes: Arc<dyn Homes>,
        identities: Arc<Identities>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let metrics = Arc::new(Metrics::new(registry)?);
        metrics.in_flight_max.set(i64::try_from(options.requests_in_flight_max).unwrap_or(i64::MAX));
        metrics.connections_max.set(i64::try_from(options.connections_max).unwrap_or(i64::MAX));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(identities.clone().follow(stop.clone()));

        let cors = Arc::new(Cors::new(mounts.clone(), options.cors_ttl, metrics.clone()));
        let core = Core { mounts, homes, reader, metrics: metrics.clone(), cors: cors.clone() };
        let operations = Operations(Arc::new(core));
        let config: Arc<dyn S3ConfigProvider> = Arc::new(StaticConfigProvider::new(Arc::new(s3_config(&options))));
        let service = || {
            let mut builder = S3ServiceBuilder::new(operations.clone());
            builder.set_config(config.clone());
            builder.set_auth(Keys { identities: identities.clone() });
            builder.set_access(Access { identities: identities.clone(), metrics: metrics.clone() });
            if !options.domains.is_empty() {
                builder.set_host(Domains::new(&options.domains));
            }
            builder
        };
        let mut outer = service();
        outer.set_route(Lenient { inner: service().build(), identities: identities.clone() });
        metrics.form_bytes_max.set(i64::try_from(options.post_objects_bytes_max).unwrap_or(i64::MAX));
        let forms = Forms {
            identities,
            domains: Domains::new(&options.domains),
            sigv2: options.sigv2,
            file_bytes_max: options.post_object_bytes_max,
            memory: form_memory(options.post_objects_bytes_max),
            held: metrics.form_bytes.clone(),
        };
        let bodies = inbound_bounds(&options, &metrics);
        metrics.http2_answers_max.set(i64::try_from(options.http2_answers_bytes_max).unwrap_or(i64::MAX));
        let answers = BodyBudget::new(options.http2_answers_bytes_max, metrics.http2_answers.clone());
        let front = Front {
            service: outer.build(),
            metrics,
            in_flight: Arc::new(Semaphore::new(options.requests_in_flight_max)),
            bodies,
            answers,
            forms,
            clock_skew_max: options.clock_skew_max,
            tracer: OnceLock::new(),
            cors,
        };
        let front = Arc::new(front);
        let server = Server::new(front.clone(), &options, stop.clone());
        let stop_admin = CancellationToken::new();
        let registry = registry.clone();
        Ok(Self { server, front, registry, stop, stop_admin, tasks, admin_tasks: TaskTracker::new() })
    }

    /// Has requests traced from now on. The first tracer stays.
    pub fn trace_with(&self, tracer: Arc<Tracer>) {
        let _ = self.front.tracer.set(tracer);
    }

    /// Serves S3 on a listener, beside those served already.
    pub fn serve(&self, listener: Listener) {
        self.server.listen(listener);
    }

    /// Serves `/metrics`, `/healthz` and `/readyz`. Not ready once the shutdown has begun.
    pub fn serve_admin(&self, socket: tokio::net::TcpListener, mut readiness: Vec<Readiness>) {
        readiness.push(Readiness::until_shutdown(self.stop.clone()));
        let admin = Admin { registry: self.registry.clone(), readiness, stop: self.stop_admin.clone() };
        self.admin_tasks.spawn(admin.serve(socket));
    }

    /// Takes no more connections, and lets requests under way end for up to `drain_max`. The reports of
    /// abandoned writes are the tier's client's to wait for.
    pub async fn shutdown(&self, drain_max: Duration) {
        self.stop.cancel();
        self.server.drain(drain_max).await;
        self.tasks.close();
        self.tasks.wait().await;
        self.stop_admin.cancel();
        self.admin_tasks.close();
        self.admin_tasks.wait().await;
    }
}

/// Most that the UFS's client queues of a body before the connection takes it: hyper's buffer of 408 KiB, and one frame.
const STORE_QUEUE_BYTES: u64 = 480 * 1024;

/// HTTP/2's frames, as hyper takes them.
const FRAME_BYTES: u64 = 16 * 1024;

/// What each body may hold. Of an object's: what the socket's buffer or the HTTP/2 window takes ahead, the frame that is held back
/// (as long as that buffer at most, or one of HTTP/2's), and what waits for the UFS.
fn inbound_bounds(options: &GatewayOptions, metrics: &Metrics) -> InboundBounds {
    metrics.body_memory_max.set(i64::try_from(options.bodies_bytes_max).unwrap_or(i64::MAX));
    let ahead = (2 * options.header_bytes_max as u64).max(u64::from(options.http2_window_bytes / 4) + FRAME_BYTES);
    InboundBounds {
        idle_max: options.body_idle_max,
        budget: BodyBudget::new(options.bodies_bytes_max, metrics.body_memory.clone()),
        upload_bytes: ahead + STORE_QUEUE_BYTES,
        document_bytes_max: options.xml_bytes_max as u64,
    }
}

fn s3_config(options: &GatewayOptions) -> S3Config {
    let mut config = S3Config::default();
    config.xml_max_body_size = options.xml_bytes_max;
    config.post_object_max_file_size = options.post_object_bytes_max;
    config.presigned_url_max_skew_time_secs = u32::try_from(options.clock_skew_max.as_secs()).unwrap_or(u32::MAX);
    config
}
