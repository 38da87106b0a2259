//! The whole configuration: one file format, whose sections each process reads as it needs them.

use serde::{Deserialize, Serialize};

use crate::cluster::ClusterSettings;
use crate::coordinator::CoordinatorSettings;
use crate::dev::DevSettings;
use crate::gateway::GatewaySettings;
use crate::mount::MountSettings;
use crate::process::{LogSettings, ProcessSettings};
use crate::tcp::TcpSettings;
use crate::telemetry::TelemetrySettings;
use crate::ufs::UfsSettings;
use crate::verbs::VerbsSettings;
use crate::worker::WorkerSettings;

/// Every section. `gateway` reads all but `worker`, `coordinator` and `dev`; `worker` all but
/// `gateway`, `coordinator` and `dev`; `coordinator` only `cluster` and its own; `dev` all but
/// `coordinator`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RootSettings {
    /// What all processes of a cluster agree on.
    pub cluster: ClusterSettings,
    /// The object stores that own the truth.
    pub ufs: Vec<UfsSettings>,
    /// The bucket names that clients see.
    pub mount: Vec<MountSettings>,
    /// The S3 endpoint.
    pub gateway: GatewaySettings,
    /// The cache.
    pub worker: WorkerSettings,
    /// Membership and the placement map.
    pub coordinator: CoordinatorSettings,
    /// How gateways and workers talk: the way that works everywhere.
    pub tcp: TcpSettings,
    /// The same by RDMA, where both hosts have it.
    pub verbs: VerbsSettings,
    /// Gateway, worker and a local store in one process.
    pub dev: DevSettings,
    /// Threads and the end of a process.
    pub process: ProcessSettings,
    /// What is logged.
    pub log: LogSettings,
    /// What is told to an OpenTelemetry receiver.
    pub telemetry: TelemetrySettings,
}
