//! Every setting of every process, its default and its check. Imported by the binary alone:
//! libraries take `Options` of their own.
#![forbid(unsafe_code)]

// The code that `#[derive(SettingsTable)]` writes names this crate.
extern crate self as verbs3_config;

mod check;
mod cluster;
mod coordinator;
mod dev;
mod disk;
mod effective_settings;
mod environment;
mod findings;
mod gateway;
mod hot;
mod layers;
mod mount;
mod preload;
mod problem;
mod process;
mod process_role;
mod quantity;
mod root;
mod schema;
mod secret;
mod setting_origin;
mod settings_table;
mod tcp;
mod telemetry;
mod ufs;
mod verbs;
mod worker;

pub use cluster::{ClusterSettings, ClusterWorkerSettings};
pub use coordinator::{CoordinatorSettings, CoordinatorStoreKind, CoordinatorStoreSettings};
pub use dev::DevSettings;
pub use disk::{DiskFolderSettings, DiskVolumeSettings, WorkerDiskSettings};
pub use environment::EnvironmentLayer;
pub use findings::CheckFindings;
pub use gateway::{
    GatewayLimitsSettings, GatewayPeersSettings, GatewayReadSettings, GatewaySettings,
    GatewayTierSettings, GatewayTimeoutsSettings, GatewayTlsSettings,
};
pub use hot::CoordinatorHotSettings;
pub use layers::{CommandFlag, ConfigLayers, LoadedConfig, load_config, roles_in};
pub use mount::{AttributesTtl, CoherenceSetting, MountSettings};
pub use preload::CoordinatorPreloadSettings;
pub use problem::{ConfigError, ConfigProblem, ProblemSeverity};
pub use process::{LogFormat, LogSettings, MemorySettings, ProcessSettings};
pub use process_role::ProcessRole;
pub use quantity::{ByteSize, QuantityError, TimePeriod};
pub use root::RootSettings;
pub use secret::{ConfigSecret, SecretError};
pub use setting_origin::SettingOrigin;
pub use settings_table::{
    PlainSetting, SettingContent, SettingDescription, SettingsTable, TableDescription, join_path,
    read_literal, write_default, write_literal,
};
pub use tcp::TcpSettings;
pub use telemetry::{OtlpProtocol, TelemetryOtlpSettings, TelemetrySettings};
pub use ufs::{
    CredentialsKind, CredentialsSettings, UfsCircuitSettings, UfsDeadlinesSettings, UfsKind,
    UfsLimitsSettings, UfsRetriesSettings, UfsSettings,
};
pub use verbs::{FeatureSwitch, VerbsMode, VerbsSettings};
pub use verbs3_config_derive::SettingsTable;
pub use worker::{
    WorkerFillSettings, WorkerIndexSettings, WorkerLeasesSettings, WorkerNeighboursSettings,
    WorkerSettings, WorkerShmSettings, WorkerWritesSettings,
};
