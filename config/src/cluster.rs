//! What all processes of a cluster must agree on: name, secret, workers, geometry.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::quantity::ByteSize;
use crate::secret::{ConfigSecret, SecretError};

/// The `[cluster]` section. The same in every process of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSettings {
    /// Name of the cluster. Processes of different clusters refuse each other. Default: `"verbs3"`.
    pub name: String,
    /// Shared secret that gateways and workers prove to each other before anything else is said; at
    /// least 16 characters. Better kept in `secret_file`, or given as `VERBS3_CLUSTER__SECRET`.
    /// Default: none.
    pub secret: Option<ConfigSecret>,
    /// File that holds the secret; white space at its end is ignored. Default: none.
    pub secret_file: Option<PathBuf>,
    /// Size of a block: the unit of placement. Objects are spread over workers in blocks of this
    /// size. A multiple of `page`. Default: `"4MiB"`. Range: `"1MiB"` to `"16MiB"`.
    pub block: ByteSize,
    /// Size of a page: the unit of a fill and of memory. A small read of a large object takes whole
    /// pages from the UFS. A power of two. Default: `"256KiB"`. Range: `"64KiB"` to `"1MiB"`.
    pub page: ByteSize,
    /// Workers that each block may be served by: its owner, and those that are asked when the owner
    /// does not answer. Default: `2`. Range: `1` to `8`.
    pub replicas: u16,
    /// The workers, where there is no coordinator. Order does not matter; the same list everywhere.
    /// A gateway with such a list wants `workers_fixed`, or `coherence = "ttl"` on each cached
    /// mount. Default: `[]`.
    pub workers: Vec<ClusterWorkerSettings>,
    /// Promises that no process of another list is ever alive beside one of this list: every
    /// gateway and every worker is stopped before `workers` or `replicas` changes. Two lists at
    /// once give a key two homes, and reads through one miss writes through the other, on immutable
    /// mounts for ever. Nothing can check this promise; with coordinators there is no need of it.
    /// Default: `false`.
    pub workers_fixed: bool,
    /// URLs of the coordinators, such as `"http://coordinator-0:9500"`, in place of `workers`:
    /// workers register with them, and gateways follow the placement map. Default: `[]`.
    pub coordinators: Vec<String>,
}

/// One `[[cluster.workers]]` entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterWorkerSettings {
    /// Name of the worker, unique in the cluster; the worker's own `worker.id`. Placement follows
    /// it, so a worker that moves to another address keeps its blocks. Required.
    pub id: String,
    /// Where gateways reach it: host name or address, and the port of its `worker.listen`.
    /// Required.
    pub address: String,
    /// Share of the blocks, relative to the other workers: usually its memory. Default: `1.0`.
    /// Range: `0.001` to `1000000.0`.
    pub weight: f64,
    /// What fails together, such as a rack: replicas of a block go to different zones where there
    /// are any. Default: `""`.
    pub zone: String,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            name: "verbs3".to_owned(),
            secret: None,
            secret_file: None,
            block: ByteSize::from_mib(4),
            page: ByteSize::from_kib(256),
            replicas: 2,
            workers: Vec::new(),
            workers_fixed: false,
            coordinators: Vec::new(),
        }
    }
}

impl Default for ClusterWorkerSettings {
    fn default() -> Self {
        Self { id: String::new(), address: String::new(), weight: 1.0, zone: String::new() }
    }
}

impl ClusterSettings {
    /// The secret, from wherever it was given; `None` if it was not.
    pub fn resolve_secret(&self) -> Result<Option<ConfigSecret>, SecretError> {
        match (&self.secret, &self.secret_file) {
            (Some(secret), _) => Ok(Some(secret.clone())),
            (None, Some(path)) => ConfigSecret::read(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}
