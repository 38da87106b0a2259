//! The admin endpoints of a process: metrics and health. They serve until all else has ended.

use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_admin::{AdminEndpoints, AdminLimits, AdminMetrics, ReadinessCheck};
use verbs3_config::ProcessSettings;

/// Admin endpoints that serve.
pub struct AdminServer {
    over: CancellationToken,
    serving: JoinHandle<()>,
}

impl AdminServer {
    /// Serves `registry` and `readiness` at `socket`.
    pub fn start(
        socket: TcpListener,
        registry: Registry,
        readiness: Vec<ReadinessCheck>,
        process: &ProcessSettings,
    ) -> anyhow::Result<Self> {
        let (over, limits) = (CancellationToken::new(), admin_limits(process));
        let metrics = Arc::new(AdminMetrics::new(&registry)?);
        let stop = over.clone();
        let endpoints = AdminEndpoints { registry, readiness, stop, limits, metrics };
        Ok(Self { over, serving: tokio::spawn(endpoints.serve_endpoints(socket)) })
    }

    /// Ends the endpoints, once all that they tell of has ended.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        self.over.cancel();
        self.serving.await.context("the admin endpoints ended badly")
    }
}

/// Bounds of the admin endpoints of any process.
pub fn admin_limits(process: &ProcessSettings) -> AdminLimits {
    let ProcessSettings {
        threads: _,
        drain_for: _,
        admin_connections_max,
        admin_per_address_max,
        admin_deadline,
    } = process;
    AdminLimits {
        connections_max: *admin_connections_max as usize,
        per_address_max: *admin_per_address_max as usize,
        deadline: admin_deadline.0,
    }
}
