//! What all processes of a cluster must agree on: name, secret, workers, geometry.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, ConfigSecret, SecretError, SettingsTable};

use crate::cluster_tls::ClusterTlsSettings;

/// The `[cluster]` section. The same in every process of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSettings {
    /// Name of the cluster. Processes of different clusters refuse each other.
    #[setting(default = "verbs3")]
    pub name: String,
    /// Shared secret that all processes prove to each other before anything else is said; at least
    /// 32 characters: `openssl rand -hex 32`. Better kept in `secret_file`, or given as
    /// `VERBS3_CLUSTER__SECRET`; it can be changed without a restart in `secret_file` alone.
    #[setting(example = "what openssl rand -hex 32 prints")]
    pub secret: Option<ConfigSecret>,
    /// File that holds the secret; white space at its end is ignored. It is read again when it
    /// changes.
    #[setting(example = "/etc/verbs3/cluster.secret")]
    pub secret_file: Option<PathBuf>,
    /// File of secrets that are accepted besides, one a line, 4 at most, for the time in which the
    /// cluster changes its secret; it may be empty. It is read again when it changes.
    #[setting(example = "/etc/verbs3/cluster.secrets-accepted")]
    pub secret_accepted_file: Option<PathBuf>,
    /// Size of a block. Objects are spread over workers in groups of 16 blocks, which one worker
    /// owns together. A multiple of `page`.
    #[setting(default = "4MiB", range = "1MiB"..="16MiB")]
    pub block: ByteSize,
    /// Size of a page: the unit of a fill and of memory. A small read of a large object takes whole
    /// pages from the UFS. A power of two.
    #[setting(default = "256KiB", range = "64KiB"..="1MiB")]
    pub page: ByteSize,
    /// Workers that each block has, in order: its owner, and the next owners, which are asked one
    /// after the other when the owner does not answer. Replicas of hot blocks don't count.
    #[setting(default = 2, range = 1..=8)]
    pub replicas: u16,
    /// The workers, where there is no coordinator. Order does not matter; the same list everywhere.
    /// A gateway with such a list wants `workers_fixed`, or `coherence = "ttl"` on each cached
    /// mount.
    #[setting(list)]
    pub workers: Vec<ClusterWorkerSettings>,
    /// Promises that no process of another list is ever alive beside one of this list: every
    /// gateway and every worker is stopped before `workers` or `replicas` changes. Two lists at
    /// once give a key two homes, and reads through one miss writes through the other, on immutable
    /// mounts for ever. Nothing can check this promise; with coordinators there is no need of it.
    #[setting(default = false)]
    pub workers_fixed: bool,
    /// URLs of the coordinators, such as `"http://coordinator-0:9500"`, in place of `workers`:
    /// workers register with them, and gateways follow the placement map. `https` with `tls`.
    pub coordinators: Vec<String>,
    /// Certificates of the processes, for coordinators and for tcp between gateways and workers.
    #[setting(table)]
    pub tls: ClusterTlsSettings,
}

/// One `[[cluster.workers]]` entry.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterWorkerSettings {
    /// Name of the worker, unique in the cluster; the worker's own `worker.id`. Placement follows
    /// it, so a worker that moves to another address keeps its blocks.
    #[setting(required, example = "gpu-01")]
    pub id: String,
    /// Where gateways reach it: host name or address, and the port of its `worker.listen`.
    #[setting(required, example = "10.0.0.1:9400")]
    pub address: String,
    /// Share of the blocks, relative to the other workers: usually its memory.
    #[setting(default = 1.0, range = 0.001..=1_000_000.0)]
    pub weight: f64,
    /// What fails together, such as a rack: a block's owner and its next owners are in different
    /// zones, where there are any.
    #[setting(default = "")]
    pub zone: String,
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
