//! Every setting of every process, its default and its check. Imported by the binary alone:
//! libraries take `Options` of their own.
#![forbid(unsafe_code)]

mod check;
mod cluster;
mod coordinator;
mod dev;
mod disk;
mod effective_settings;
mod environment;
mod gateway;
mod hot;
mod layers;
mod mount;
mod preload;
mod problem;
mod process;
mod quantity;
mod root;
mod schema;
mod secret;
mod tcp;
mod telemetry;
mod ufs;
mod verbs;
mod worker;

pub use check::ProcessRole;
pub use cluster::{ClusterSettings, ClusterWorkerSettings};
pub use coordinator::{CoordinatorSettings, CoordinatorStoreKind, CoordinatorStoreSettings};
pub use dev::DevSettings;
pub use disk::{DiskFolderSettings, DiskVolumeSettings, WorkerDiskSettings};
pub use environment::EnvironmentLayer;
pub use gateway::{
    GatewayLimitsSettings, GatewayPeersSettings, GatewayReadSettings, GatewaySettings,
    GatewayTierSettings, GatewayTimeoutsSettings, GatewayTlsSettings,
};
pub use hot::CoordinatorHotSettings;
pub use layers::{CommandFlag, ConfigLayers, LoadedConfig, SettingOrigin, load_config, roles_in};
pub use mount::{AttributesTtl, CoherenceSetting, MountSettings};
pub use preload::CoordinatorPreloadSettings;
pub use problem::{ConfigError, ConfigProblem, ProblemSeverity};
pub use process::{LogFormat, LogSettings, MemorySettings, ProcessSettings};
pub use quantity::{ByteSize, QuantityError, TimePeriod};
pub use root::RootSettings;
pub use secret::{ConfigSecret, SecretError};
pub use tcp::TcpSettings;
pub use telemetry::{OtlpProtocol, TelemetryOtlpSettings, TelemetrySettings};
pub use ufs::{
    CredentialsKind, CredentialsSettings, UfsCircuitSettings, UfsDeadlinesSettings, UfsKind,
    UfsLimitsSettings, UfsRetriesSettings, UfsSettings,
};
pub use verbs::{FeatureSwitch, VerbsMode, VerbsSettings};
pub use worker::{
    WorkerFillSettings, WorkerIndexSettings, WorkerLeasesSettings, WorkerNeighboursSettings,
    WorkerSettings, WorkerShmSettings, WorkerWritesSettings,
};
