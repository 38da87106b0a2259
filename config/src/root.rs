//! The whole configuration: one file format, whose sections each process reads as it needs them.

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::coordinator::Coordinator;
use crate::dev::Dev;
use crate::gateway::Gateway;
use crate::mount::Mount;
use crate::process::{Log, Process};
use crate::tcp::Tcp;
use crate::telemetry::Telemetry;
use crate::ufs::Ufs;
use crate::verbs::Verbs;
use crate::worker::Worker;

/// Every section. `gateway` reads all but `worker`, `coordinator` and `dev`; `worker` all but
/// `gateway`, `coordinator` and `dev`; `coordinator` only `cluster` and its own; `dev` all but
/// `coordinator`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What all processes of a cluster agree on.
    pub cluster: Cluster,
    /// The object stores that own the truth.
    pub ufs: Vec<Ufs>,
    /// The bucket names that clients see.
    pub mount: Vec<Mount>,
    /// The S3 endpoint.
    pub gateway: Gateway,
    /// The cache.
    pub worker: Worker,
    /// Membership and the placement map.
    pub coordinator: Coordinator,
    /// How gateways and workers talk: the way that works everywhere.
    pub tcp: Tcp,
    /// The same by RDMA, where both hosts have it.
    pub verbs: Verbs,
    /// Gateway, worker and a local store in one process.
    pub dev: Dev,
    /// Threads and the end of a process.
    pub process: Process,
    /// What is logged.
    pub log: Log,
    /// What is told to an OpenTelemetry receiver.
    pub telemetry: Telemetry,
}
