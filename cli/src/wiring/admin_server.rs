//! The admin endpoints of a process: metrics and health. They serve until all else has ended.

use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_admin::{AdminEndpoints, AdminLimits, AdminMetrics, ReadinessCheck, ReadinessList};
use verbs3_config::ProcessSettings;

/// Admin endpoints that serve.
pub struct AdminServer {
    over: CancellationToken,
    readiness: ReadinessList,
    started: CancellationToken,
    serving: JoinHandle<()>,
}

impl AdminServer {
    /// Serves `registry` at `socket`, and is not ready for `reason` until
    /// [`AdminServer::mark_started`]. Comes first: large memory takes its time, and probes must not
    /// kill who touches it.
    pub fn start_early(
        socket: TcpListener,
        registry: Registry,
        reason: &'static str,
        process: &ProcessSettings,
    ) -> anyhow::Result<Self> {
        let started = CancellationToken::new();
        let check = ReadinessCheck::from_event("start", started.clone(), reason);
        Ok(Self { started, ..Self::start(socket, registry, vec![check], process)? })
    }

    /// Serves `registry` and `readiness` at `socket`.
    pub fn start(
        socket: TcpListener,
        registry: Registry,
        readiness: Vec<ReadinessCheck>,
        process: &ProcessSettings,
    ) -> anyhow::Result<Self> {
        let (over, limits) = (CancellationToken::new(), admin_limits(process));
        let metrics = Arc::new(AdminMetrics::new(&registry)?);
        let (stop, readiness) = (over.clone(), ReadinessList::with_checks(readiness));
        let checks = readiness.clone();
        let endpoints = AdminEndpoints { registry, readiness: checks, stop, limits, metrics };
        let serving = tokio::spawn(endpoints.serve_endpoints(socket));
        Ok(Self { over, readiness, started: CancellationToken::new(), serving })
    }

    /// Ready from now on, while `checks` hold as well.
    pub fn mark_started(&self, checks: Vec<ReadinessCheck>) {
        self.readiness.add_checks(checks);
        self.started.cancel();
    }

    /// Ends the endpoints, once all that they tell of has ended.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        self.over.cancel();
        self.serving.await.context("the admin endpoints ended badly")
    }
}

/// Bounds of the admin endpoints of any process.
fn admin_limits(process: &ProcessSettings) -> AdminLimits {
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
