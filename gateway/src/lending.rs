//! Joins lent memory to the gateway: who a client is, what it counts against, and its reads, which
//! go the way of those over HTTP. The socket, the memory and the rings are `verbs3_lending`'s.

mod lending_guest;
mod lending_identity;
mod lending_settings;

use std::sync::Arc;
use std::time::Duration;

use prometheus::{IntGauge, Registry};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;
use verbs3_lending::{
    LendingLimits, LendingListener, LendingMetrics, LendingServer, LendingSocketError,
    LendingSocketOptions, LendingStop,
};

use crate::auth::IdentityStore;
use crate::http::{GatewayFront, KnownConnections};
use crate::settings::GatewaySettings;
use crate::tenant_metrics::SharedResource;
use crate::tenant_places::{SharingRules, TenantPlaces};
use lending_identity::LendingIdentities;
pub use lending_settings::{GatewayLendingSettings, LendingAccess};

/// How long an ended connection may take to end its tasks.
const CUT_MAX: Duration = Duration::from_secs(5);

/// Lent memory of one gateway.
pub(crate) struct GatewayLending {
    /// `None`: nobody lends memory.
    options: Option<LendingSocketOptions>,
    host: Arc<LendingIdentities>,
    limits: LendingLimits,
    metrics: LendingMetrics,
    stop: LendingStop,
    tasks: TaskTracker,
}

impl GatewayLending {
    /// Makes it. Nothing is served before `open_socket`. Fails if a metric's name is taken.
    pub fn new(
        settings: &GatewaySettings,
        front: Arc<GatewayFront>,
        identities: Arc<IdentityStore>,
        registry: &Registry,
        stop: CancellationToken,
    ) -> Result<Self, prometheus::Error> {
        let lending = &settings.lending;
        let metrics = LendingMetrics::new(registry)?;
        metrics.clients_max.set(lending.clients_max.into());
        metrics.mappings_max.set(lending.mappings_max.into());
        metrics.memory_bytes_max.set(i64::try_from(lending.memory_total.0).unwrap_or(i64::MAX));
        metrics.page_bytes_max.set(i64::try_from(lending.pages_total.0).unwrap_or(i64::MAX));
        let rules = SharingRules::from_settings(settings);
        let options = lending.socket_options();
        let socket_path = options.as_ref().map(|options| options.path.to_string_lossy());
        let host = LendingIdentities {
            front,
            identities,
            socket_path: socket_path.unwrap_or_default().into_owned(),
            clock_skew_max: settings.timeouts.clock_skew.0,
            reads_in_flight_max: lending.reads_in_flight_max as usize,
            lands_directly: lending.direct,
            clients: TenantPlaces::of_count(
                SharedResource::LendingClients,
                lending.clients_max as usize,
                &rules,
                metrics.clients.clone(),
            ),
            memory: TenantPlaces::of_memory(
                SharedResource::LentBytes,
                lending.memory_total.0,
                &rules,
                metrics.memory_bytes.clone(),
            ),
            pages: (lending.pages_total.0 > 0).then(|| {
                TenantPlaces::of_memory(
                    SharedResource::PageBytes,
                    lending.pages_total.0,
                    &rules,
                    metrics.page_bytes.clone(),
                )
            }),
            mappings: TenantPlaces::of_count(
                SharedResource::LendingMappings,
                lending.mappings_max as usize,
                &rules,
                metrics.mappings.clone(),
            ),
            // Not the list of HTTP: who lends holds no place of its connections, so none gets free
            // where it gives way.
            known: Arc::new(KnownConnections::for_connections(usize::MAX)),
            // The server shows them.
            unproven: IntGauge::new("unproven", "not shown")?,
        };
        let limits = LendingLimits {
            strangers_max: lending.unproven_max as usize,
            handshake_max: settings.timeouts.proof.0,
            memory_bytes_max: lending.memory_max.0,
            reads_in_flight_max: lending.reads_in_flight_max,
        };
        let stop = LendingStop { stop, cut: CancellationToken::new() };
        let (host, tasks) = (Arc::new(host), TaskTracker::new());
        Ok(Self { options, host, limits, metrics, stop, tasks })
    }

    /// Opens the socket and serves it. Does nothing if none is set. With `succeeds`, it takes the
    /// name from a gateway that serves there still.
    pub fn open_socket(&self, succeeds: bool) -> Result<(), LendingSocketError> {
        let Some(options) = &self.options else { return Ok(()) };
        let listener = LendingListener::open_socket(options, succeeds)?;
        let (host, metrics) = (self.host.clone(), self.metrics.clone());
        let (stop, tasks) = (self.stop.clone(), self.tasks.clone());
        LendingServer::new(host, self.limits, metrics, stop, tasks).serve_socket(listener);
        Ok(())
    }

    /// Waits for reads under way; cuts what is left after `drain_max`. The stop token must have
    /// been cancelled.
    pub async fn drain_reads(&self, drain_max: Duration) {
        self.tasks.close();
        if timeout(drain_max, self.tasks.wait()).await.is_ok() {
            return;
        }
        warn!(clients = self.tasks.len(), "clients that lend memory are cut: reads did not end");
        self.stop.cut.cancel();
        let _ = timeout(CUT_MAX, self.tasks.wait()).await;
    }
}
