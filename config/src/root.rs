//! The whole configuration: one file format, whose sections each process reads as it needs them.

use serde::{Deserialize, Serialize};
use verbs3_settings::SettingsTable;

use crate::cluster::ClusterSettings;
use crate::dev::DevSettings;
use crate::mount::MountSettings;
use crate::process::{LogSettings, ProcessSettings};
use verbs3_cache_worker::WorkerSettings;
use verbs3_coordinator::CoordinatorSettings;
use verbs3_gateway::GatewaySettings;
use verbs3_kubernetes::{ControllerSettings, WebhookSettings};
use verbs3_rdma::settings::{TcpSettings, VerbsSettings};
use verbs3_telemetry::TelemetrySettings;
use verbs3_ufs::UfsSettings;

/// Every section. `gateway` reads all but `worker`, `coordinator` and `dev`; `worker` all but
/// `gateway`, `coordinator` and `dev`; `coordinator` only `cluster` and its own; `dev` all but
/// `coordinator`. `webhook` and `controller` read their own alone. Every process reads `process` and
/// `log`.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct RootSettings {
    /// What all processes of a cluster agree on.
    #[setting(table)]
    pub cluster: ClusterSettings,
    /// The object stores that own the truth.
    #[setting(list)]
    pub ufs: Vec<UfsSettings>,
    /// The bucket names that clients see.
    #[setting(list)]
    pub mount: Vec<MountSettings>,
    /// The S3 endpoint.
    #[setting(table)]
    pub gateway: GatewaySettings,
    /// The cache.
    #[setting(table)]
    pub worker: WorkerSettings,
    /// Membership and the placement map.
    #[setting(table)]
    pub coordinator: CoordinatorSettings,
    /// How gateways and workers talk: the way that works everywhere.
    #[setting(table)]
    pub tcp: TcpSettings,
    /// The same by RDMA, where both hosts have it.
    #[setting(table)]
    pub verbs: VerbsSettings,
    /// Gateway, worker and a local store in one process.
    #[setting(table)]
    pub dev: DevSettings,
    /// Threads and the end of a process.
    #[setting(table)]
    pub process: ProcessSettings,
    /// What is logged.
    #[setting(table)]
    pub log: LogSettings,
    /// What is told to an OpenTelemetry receiver.
    #[setting(table)]
    pub telemetry: TelemetrySettings,
    /// Variables for pods of Kubernetes.
    #[setting(table)]
    pub webhook: WebhookSettings,
    /// Preload jobs as resources of Kubernetes.
    #[setting(table)]
    pub controller: ControllerSettings,
}
