//! The admin endpoints of a process: metrics and health. They serve until all else has ended.

use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_admin::{
    AdminEndpoints, AdminLimits, AdminMetrics, AdminSockets, ReadinessCheck, ReadinessList,
};
use verbs3_config::ProcessSettings;
use verbs3_doors::NamedSocket;

/// Where the endpoints are asked, and whether another process answers at the address meanwhile.
pub struct ProcessSockets {
    pub address: TcpListener,
    pub probes: Option<NamedSocket>,
    pub ceded: bool,
}

impl From<TcpListener> for ProcessSockets {
    fn from(address: TcpListener) -> Self {
        Self { address, probes: None, ceded: false }
    }
}

/// Admin endpoints that serve.
pub struct AdminServer {
    over: CancellationToken,
    readiness: ReadinessList,
    started: CancellationToken,
    ceded: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl AdminServer {
    /// Serves `registry` at `sockets`, and is not ready for `reason` until
    /// [`AdminServer::mark_started`]. Comes first: large memory takes its time, and probes must not
    /// kill who touches it.
    pub fn start_early(
        sockets: ProcessSockets,
        registry: Registry,
        reason: &'static str,
        process: &ProcessSettings,
    ) -> anyhow::Result<Self> {
        let started = CancellationToken::new();
        let check = ReadinessCheck::from_event("start", started.clone(), reason);
        Ok(Self { started, ..Self::serve(sockets, registry, vec![check], process)? })
    }

    /// Serves `registry` and `readiness` at `socket`.
    pub fn start(
        socket: TcpListener,
        registry: Registry,
        readiness: Vec<ReadinessCheck>,
        process: &ProcessSettings,
    ) -> anyhow::Result<Self> {
        Self::serve(socket.into(), registry, readiness, process)
    }

    fn serve(
        sockets: ProcessSockets,
        registry: Registry,
        readiness: Vec<ReadinessCheck>,
        process: &ProcessSettings,
    ) -> anyhow::Result<Self> {
        let (over, limits) = (CancellationToken::new(), admin_limits(process));
        let metrics = Arc::new(AdminMetrics::new(&registry)?);
        let (stop, readiness) = (over.clone(), ReadinessList::with_checks(readiness));
        let checks = readiness.clone();
        let endpoints = AdminEndpoints { registry, readiness: checks, stop, limits, metrics };
        let ProcessSockets { address, probes, ceded } = sockets;
        let (ceded, seen) = watch::channel(ceded);
        let sockets = AdminSockets { address, probes, ceded: seen };
        let serving = tokio::spawn(endpoints.serve_endpoints(sockets));
        Ok(Self { over, readiness, started: CancellationToken::new(), ceded, serving })
    }

    /// Tells whether another process answers at the address. The socket of probes stays this one's.
    pub fn cession(&self) -> watch::Sender<bool> {
        self.ceded.clone()
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
