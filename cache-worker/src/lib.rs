//! The cache worker: keeps blocks of remote objects in its arena, fills them from the UFS, and
//! answers gateways.
//!
//! # Map
//! - Questions: `serve` takes each of them, `question_checks` checks what it names, `serve_refusal`
//!   says why it is not served.
//! - Attributes: `home` decides, `attributes` keeps the tables and asks the UFS. `standing` is the
//!   right to answer, `invalidations` what was made void by prefix.
//! - Pages: `pages` sends and tends them, `fill` finds them and brings what is missing, `memory`
//!   and `disk` keep them. `former_owners` says whose pages to take, `block_heat` which are hot.
//! - The cluster: `coordination` takes map and lease, `block_rates` reports hot blocks,
//!   `worker_drain` hands blocks over before this worker leaves.
//! - Shares: `tenants` divides memory, disk and fills; `warmup_limiter` gives warm-ups what reads
//!   leave over.
//! - Below all: `volumes` maps names to stores, `digest` makes keys, `clock` is time, `tasks` runs
//!   what outlives a call, `call_trace` traces. `worker` composes and stops everything.
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
