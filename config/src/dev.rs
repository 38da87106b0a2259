//! What `verbs3 dev` starts: everything in one process, over a folder.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, SettingsTable};

/// The `[dev]` section. `verbs3 dev` brings a UFS, a mount of all its buckets and an identity of
/// its own where the file has none.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct DevSettings {
    /// Folder for the objects and the generated credentials, made if absent and kept across
    /// restarts.
    #[setting(default = ".verbs3")]
    pub dir: PathBuf,
    /// Cache workers in the process; they share `worker.memory`.
    #[setting(default = 1, range = 1..=64)]
    pub workers: u16,
    /// Bytes of a disk tier in the folder, so that what was cached is still there after a restart;
    /// `"0B"`: none.
    #[setting(default = "0B", range = "0B"..="1TiB")]
    pub disk: ByteSize,
    /// Address of the coordinator inside, for `verbs3 preload`, `cache` and `status`; port 0 takes
    /// a free one, and `cluster.toml` in the folder says which.
    #[setting(default = "127.0.0.1:0")]
    pub coordinator: SocketAddr,
    /// Show at start that it works: read a sample dataset twice and print what the cache did.
    #[setting(default = true)]
    pub demo: bool,
}
