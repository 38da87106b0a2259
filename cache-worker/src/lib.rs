//! The cache worker: keeps blocks of remote objects in its arena, fills them from the UFS, and
//! answers gateways.
#![forbid(unsafe_code)]

mod attributes;
mod block_heat;
mod block_rates;
mod call_trace;
mod clock;
mod coordination;
#[doc(hidden)]
pub mod decoders;
mod digest;
mod disk;
mod fill;
mod former_owners;
mod home;
mod invalidations;
mod memory;
pub mod metrics;
mod pages;
mod question_checks;
mod serve;
mod serve_refusal;
mod settings;
mod standing;
mod tasks;
mod tenants;
mod volumes;
mod warmup_limiter;
mod worker;
mod worker_drain;

pub use block_rates::BlockRate;
pub use clock::{ManualWorkerClock, SystemClock, WorkerClock, WorkerInstant};
pub use coordination::{MapActivation, NotedWrite};
pub use disk::{DiskError, DiskFolderSettings, DiskVolumeSettings, WorkerDiskSettings};
pub use settings::{
    WorkerFillSettings, WorkerIndexSettings, WorkerLeasesSettings, WorkerPopulateSettings,
    WorkerSettings, WorkerWritesSettings,
};
pub use volumes::WorkerVolumes;
pub use worker::{CacheWorker, WorkerAskers, WorkerComponents, WorkerError};
pub use worker_drain::WorkerDrainProgress;
