//! Every setting of every process, its default and its check. Imported by the binary alone:
//! libraries take `Options` of their own.
#![forbid(unsafe_code)]

mod check;
mod cluster;
mod coordinator;
mod dev;
mod disk;
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
mod show;
mod tcp;
mod telemetry;
mod ufs;
mod verbs;
mod worker;

pub use check::Role;
pub use cluster::{Cluster, ClusterWorker};
pub use coordinator::{Coordinator, CoordinatorStore, CoordinatorStoreKind};
pub use dev::Dev;
pub use disk::{WorkerDisk, WorkerDiskFolder, WorkerDiskVolume};
pub use environment::Environment;
pub use gateway::{
    Gateway, GatewayLimits, GatewayPeers, GatewayRead, GatewayTier, GatewayTimeouts, GatewayTls,
};
pub use hot::CoordinatorHot;
pub use layers::{Flag, Layers, Loaded, Origin, load, roles_in};
pub use mount::{AttributesTtl, Coherence, Mount};
pub use preload::CoordinatorPreload;
pub use problem::{Problem, Problems, Severity};
pub use process::{Log, LogFormat, Memory, Process};
pub use quantity::{ByteSize, Period, QuantityError};
pub use root::Config;
pub use secret::{Secret, SecretError};
pub use tcp::Tcp;
pub use telemetry::{OtlpProtocol, Telemetry, TelemetryOtlp};
pub use ufs::{
    Credentials, CredentialsKind, Ufs, UfsCircuit, UfsDeadlines, UfsKind, UfsLimits, UfsRetries,
};
pub use verbs::{Feature, Verbs, VerbsMode};
pub use worker::{
    Worker, WorkerFill, WorkerIndex, WorkerLeases, WorkerNeighbours, WorkerShm, WorkerWrites,
};
