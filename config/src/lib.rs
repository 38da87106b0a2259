//! The whole configuration: its layers, and what must hold between the settings of all crates.
//! Imported by the binary alone. Each crate declares its own settings with `verbs3-settings`.
#![forbid(unsafe_code)]

mod check;
mod cluster;
mod cluster_secret;
mod cluster_tls;
mod dev;
mod effective_settings;
mod environment;
mod layers;
mod mount;
mod process;
mod process_role;
mod root;
mod schema;

pub use cluster::{ClusterSettings, ClusterWorkerSettings};
pub use cluster_secret::{
    ClusterSecretError, ClusterSecretTexts, SECRET_BYTES_MIN, WeakSecret, check_strength,
};
pub use cluster_tls::{ClusterTlsFiles, ClusterTlsMode, ClusterTlsSettings};
pub use dev::DevSettings;
pub use environment::EnvironmentLayer;
pub use layers::{CommandFlag, ConfigLayers, LoadedConfig, load_config, roles_in};
pub use mount::{AttributesTtl, CoherenceSetting, MountSettings, PopulateSetting};
pub use process::{LogFormat, LogSettings, ProcessSettings};
pub use process_role::ProcessRole;
pub use root::RootSettings;
pub use verbs3_cache_worker::{DiskFolderSettings, WorkerDiskSettings, WorkerSettings};
pub use verbs3_gateway::{GatewaySettings, GatewayTlsSettings};
pub use verbs3_settings::{
    ByteSize, ConfigError, ConfigProblem, ConfigSecret, MemorySettings, ProblemSeverity,
    SecretError, SettingOrigin, TimePeriod,
};
