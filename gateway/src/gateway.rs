//! Owns the gateway as a whole: its parts, its tasks, start and shutdown. Does none of the work.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::Registry;
use s3s::config::{S3Config, S3ConfigProvider, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;
use verbs3_admin::ReadinessCheck;
use verbs3_client::CacheTierClient;
use verbs3_lending::LendingSocketError;
use verbs3_rdma::client_memory::ClientMemoryRail;
use verbs3_telemetry::RequestTracer;

use crate::auth::{AuthAccessGate, AuthKeyProvider, IdentityStore};
use crate::cors::{CorsOptions, CorsResponder};
use crate::http::{
    FormUploads, GatewayFront, HostDomains, HttpListener, HttpServer, InboundBounds, LenientRoute,
    OwnHosts,
};
use crate::http_exchange::{RequestPlaces, TenantBounds};
use crate::lending::GatewayLending;
use crate::metrics::GatewayHttpMetrics;
use crate::mount::MountTable;
use crate::operations::{BucketLists, OperationCore, RightsJudge, S3Implementation};
use crate::plain_read::PlainReadRoute;
use crate::preload::{PreloadJobs, PreloadPathNames, PreloadRoute};
use crate::read::ObjectReader;
use crate::s3_rdma::{RdmaEndpoints, RdmaSessions};
use crate::settings::{GatewaySettings, GatewayStoreProbeSettings};
use crate::store_probes::start_store_probes;
use crate::store_rates::StoreRates;
use crate::tenant_metrics::SharedResource;
use crate::tenant_places::{SharingRules, TenantPlaces};
use crate::write::body_budget::BodyBudget;
use crate::write::populate::{PopulateMetrics, WritePopulator};
use crate::write::{HomeNotifier, PopulateTier};

/// What a gateway is made of besides its settings and its tier.
pub struct GatewayParts<'a> {
    pub mounts: MountTable,
    pub identities: Arc<IdentityStore>,
    /// `None`: there are no coordinators to run preload jobs.
    pub preload: Option<Arc<dyn PreloadJobs>>,
    pub registry: &'a Registry,
}

/// Who is told of writes, and who gets copies of them.
struct WriteParts {
    homes: Arc<dyn HomeNotifier>,
    populate: Option<Arc<dyn PopulateTier>>,
}

/// A gateway. Serves until [`GatewayService::shutdown`].
pub struct GatewayService {
    server: HttpServer,
    lending: GatewayLending,
    front: Arc<GatewayFront>,
    /// Makes the gateway not ready.
    leaving: CancellationToken,
    /// Ends the server's and the gateway's own tasks.
    stop: CancellationToken,
    /// Ends the probes of stores.
    stop_probes: CancellationToken,
    tasks: TaskTracker,
    probe_tasks: TaskTracker,
    /// Their stores are probed.
    mounts: MountTable,
    store_probe: GatewayStoreProbeSettings,
}

impl GatewayService {
    /// Makes a gateway in front of a tier. Must be called within a tokio runtime. Fails if a
    /// metric's name is taken in the registry.
    pub fn new(
        settings: &GatewaySettings,
        parts: GatewayParts<'_>,
        tier: Arc<CacheTierClient>,
    ) -> Result<Self, prometheus::Error> {
        let reader = ObjectReader::new(settings, tier.clone(), parts.registry)?;
        let populate: Arc<dyn PopulateTier> = Arc::new(tier.clone());
        Self::from_parts(
            settings,
            parts,
            Some(reader),
            WriteParts { homes: Arc::new(tier), populate: Some(populate) },
        )
    }

    /// Makes a gateway whose reads go to the UFS, and which tells another kind of homes of its
    /// writes, and copies them to another kind of tier, if any.
    pub fn without_tier(
        settings: &GatewaySettings,
        parts: GatewayParts<'_>,
        homes: Arc<dyn HomeNotifier>,
        populate: Option<Arc<dyn PopulateTier>>,
    ) -> Result<Self, prometheus::Error> {
        Self::from_parts(settings, parts, None, WriteParts { homes, populate })
    }

    fn from_parts(
        settings: &GatewaySettings,
        parts: GatewayParts<'_>,
        reader: Option<ObjectReader>,
        writes: WriteParts,
    ) -> Result<Self, prometheus::Error> {
        let WriteParts { homes, populate } = writes;
        let GatewayParts { mounts, identities, preload, registry } = parts;
        let probed_mounts = mounts.clone();
        let metrics = Arc::new(GatewayHttpMetrics::new(registry)?);
        let GatewaySettings { limits, timeouts, .. } = settings;
        metrics.in_flight_max.set(limits.requests_in_flight_max.into());
        metrics.connections_max.set(limits.connections_max.into());
        let rules = SharingRules::from_settings(settings);
        registry.register(Box::new(identities.tenant_metrics()))?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(identities.clone().follow_file(stop.clone()));

        let asking = CorsOptions {
            ttl: settings.cors_ttl.0,
            stale_max: settings.cors_stale_max.0,
            lookups_max: limits.cors_lookups_max as usize,
            lookup_max: timeouts.cors_lookup.0,
            sharing: rules,
        };
        let cors = Arc::new(CorsResponder::new(mounts.clone(), asking, metrics.clone()));
        let rights = RightsJudge { mounts: mounts.clone(), metrics: metrics.clone() };
        let populate_metrics = PopulateMetrics::new(registry)?;
        let populator = populate.map(|tier| {
            WritePopulator::new(&settings.populate, tier, tasks.clone(), populate_metrics)
        });
        let core = OperationCore {
            mounts: mounts.clone(),
            rights,
            homes,
            reader,
            populator,
            metrics: metrics.clone(),
            cors: cors.clone(),
            bucket_lists: BucketLists::new(mounts.distinct_stores()),
            tasks: tasks.clone(),
        };
        let core = Arc::new(core);
        let operations = S3Implementation(core.clone());
        let config: Arc<dyn S3ConfigProvider> =
            Arc::new(StaticConfigProvider::new(Arc::new(s3_config(settings))));
        let service = || {
            let mut builder = S3ServiceBuilder::new(operations.clone());
            builder.set_config(config.clone());
            builder.set_validation(PreloadPathNames);
            builder.set_auth(AuthKeyProvider { identities: identities.clone() });
            builder.set_access(AuthAccessGate {
                identities: identities.clone(),
                metrics: metrics.clone(),
            });
            if !settings.domains.is_empty() {
                builder.set_host(HostDomains::new(&settings.domains));
            }
            builder
        };
        let mut outer = service();
        outer.set_route(PreloadRoute {
            others: LenientRoute { inner: service().build(), identities: identities.clone() },
            jobs: preload,
            mounts,
            identities: identities.clone(),
            domains: HostDomains::new(&settings.domains),
            metrics: metrics.clone(),
            places: TenantPlaces::of_count(
                SharedResource::PreloadQuestions,
                limits.preloads_in_flight_max as usize,
                &rules,
                metrics.preload_questions.clone(),
            ),
        });
        let forms_bytes_max = limits.forms_max.0.saturating_add(FORM_EXTRA_BYTES);
        metrics.form_bytes_max.set(i64::try_from(forms_bytes_max).unwrap_or(i64::MAX));
        let plain_identities = identities.clone();
        let lending_identities = identities.clone();
        let store_rates = match &core.reader {
            Some(reader) => reader.store_rates().clone(),
            None => StoreRates::new(settings),
        };
        let bounds = TenantBounds::new(settings, store_rates, metrics.clone());
        let forms = FormUploads {
            identities,
            domains: HostDomains::new(&settings.domains),
            sigv2: settings.sigv2,
            file_bytes_max: limits.form_max.0,
            memory: TenantPlaces::of_memory(
                SharedResource::FormBytes,
                forms_bytes_max,
                &rules,
                metrics.form_bytes.clone(),
            ),
            proof_max: timeouts.proof.0,
        };
        let bodies = inbound_bounds(settings, &rules, &metrics);
        metrics
            .http2_answers_max
            .set(i64::try_from(limits.http2_answers_max.0).unwrap_or(i64::MAX));
        let answers = BodyBudget::new(
            SharedResource::AnswerBytes,
            limits.http2_answers_max.0,
            &rules,
            metrics.http2_answers.clone(),
        );
        let put_rights = core.clone();
        let reader = core.reader.clone().filter(|_| settings.read.plain_reads);
        let plain_reads = reader.map(|reader| PlainReadRoute {
            core,
            reader,
            identities: plain_identities,
            domains: HostDomains::new(&settings.domains),
            clock_skew_max: timeouts.clock_skew.0,
        });
        let sessions = RdmaSessions::new(&settings.s3_over_rdma, &rules, registry, stop.clone())?;
        let rdma =
            RdmaEndpoints { sessions, identities: lending_identities.clone(), core: put_rights };
        let front = GatewayFront {
            service: outer.build(),
            unproven: RequestPlaces::new(
                limits.unproven_requests_max as usize,
                metrics.requests_unproven.clone(),
            ),
            metrics,
            own_hosts: OwnHosts::new(&settings.own_hosts, &settings.domains),
            bodies,
            answers,
            bounds: Arc::new(bounds),
            forms,
            clock_skew_max: timeouts.clock_skew.0,
            shows_cache: settings.cache_headers,
            is_leaving: AtomicBool::new(false),
            tracer: OnceLock::new(),
            cors,
            rdma,
            plain_reads,
        };
        let front = Arc::new(front);
        let server = HttpServer::new(front.clone(), settings, stop.clone());
        let lending = GatewayLending::new(
            settings,
            front.clone(),
            lending_identities,
            registry,
            stop.clone(),
        )?;
        Ok(Self {
            server,
            lending,
            front,
            leaving: CancellationToken::new(),
            stop,
            stop_probes: CancellationToken::new(),
            tasks,
            probe_tasks: TaskTracker::new(),
            mounts: probed_mounts,
            store_probe: settings.store_probe.clone(),
        })
    }

    /// Has requests traced from now on. The first tracer stays.
    pub fn trace_with(&self, tracer: Arc<RequestTracer>) {
        let _ = self.front.tracer.set(tracer);
    }

    /// Serves S3 on a listener, besides those served already.
    pub fn serve_s3(&self, listener: HttpListener) {
        self.server.serve_listener(listener);
    }

    /// Opens the socket for memory that processes of this host lend, if the settings have one. With
    /// `succeeds`, it takes the name from a gateway that serves there still.
    pub fn open_lending(&self, succeeds: bool) -> Result<(), LendingSocketError> {
        self.lending.open_socket(succeeds)
    }

    /// Writes payloads into memory of clients of other hosts, and reads them out of it, over these
    /// rails from now on, if the settings want it.
    pub fn serve_by_rdma(&self, rails: Vec<Arc<dyn ClientMemoryRail>>) {
        self.front.rdma.sessions.open_rails(rails);
    }

    /// Returns the conditions of `/readyz`: not ready once the shutdown has begun. Stores are probed
    /// from now on, so that it can tell of those that are silent.
    pub fn start_readiness(&self) -> Vec<ReadinessCheck> {
        let (settings, tasks) = (&self.store_probe, &self.probe_tasks);
        vec![
            ReadinessCheck::until_shutdown(self.leaving.clone()),
            start_store_probes(&self.mounts, settings, tasks, &self.stop_probes),
        ]
    }

    /// Lets clients leave in order, then accepts no more connections, and lets requests under way
    /// end, all for up to `drain_max`. The tier's client waits for the reports of abandoned writes.
    pub async fn shutdown(&self, drain_max: Duration) {
        let until = Instant::now() + drain_max;
        self.leaving.cancel();
        self.server.take_leave(drain_max).await;
        self.stop.cancel();
        let left = until.saturating_duration_since(Instant::now());
        tokio::join!(
            self.server.drain_requests(left),
            self.lending.drain_reads(left),
            self.front.rdma.sessions.drain_sessions(left),
        );
        self.tasks.close();
        let until = until.max(Instant::now() + TASKS_END_MIN);
        if timeout_at(until, self.tasks.wait()).await.is_err() {
            warn!(left = self.tasks.len(), "writes whose clients have gone did not end in time");
        }
        self.stop_probes.cancel();
        self.probe_tasks.close();
        self.probe_tasks.wait().await;
    }
}

/// What tasks have at least to end in, however long the requests have taken.
const TASKS_END_MIN: Duration = Duration::from_secs(2);

/// Most bytes of a body that the UFS's client queues before its connection takes them: hyper's
/// buffer of 408 KiB, and one frame.
const STORE_QUEUE_BYTES: u64 = 480 * 1024;

/// Fields and boundaries of forms, which come on top of their files.
const FORM_EXTRA_BYTES: u64 = 1024 * 1024;

/// Size of an HTTP/2 frame, by hyper's setting.
const FRAME_BYTES: u64 = 16 * 1024;

/// Returns how much memory each body may hold. An object's body holds three parts: what the
/// socket's buffer or the HTTP/2 window takes ahead; one frame that is held back (at most that
/// buffer, or one of HTTP/2's frames); and what waits for the UFS.
fn inbound_bounds(
    settings: &GatewaySettings,
    rules: &SharingRules,
    metrics: &GatewayHttpMetrics,
) -> InboundBounds {
    let limits = &settings.limits;
    metrics.body_memory_max.set(i64::try_from(limits.bodies_max.0).unwrap_or(i64::MAX));
    let ahead = (2 * limits.header_max.0).max(limits.http2_window.0 / 4 + FRAME_BYTES);
    InboundBounds {
        idle_max: settings.timeouts.body_idle.0,
        rate_min: settings.upload_rate_min(),
        budget: BodyBudget::new(
            SharedResource::BodyBytes,
            limits.bodies_max.0,
            rules,
            metrics.body_memory.clone(),
        ),
        upload_bytes: ahead + STORE_QUEUE_BYTES,
        document_bytes_max: limits.xml_max.0,
    }
}

fn s3_config(settings: &GatewaySettings) -> S3Config {
    let mut config = S3Config::default();
    config.xml_max_body_size = settings.limits.xml_max.as_usize();
    config.post_object_max_file_size = settings.limits.form_max.0;
    config.presigned_url_max_skew_time_secs =
        u32::try_from(settings.timeouts.clock_skew.0.as_secs()).unwrap_or(u32::MAX);
    config
}
