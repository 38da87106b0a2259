//! The cache worker: keeps blocks of remote objects in its arena, fills them from the UFS, and
//! answers gateways.
#![forbid(unsafe_code)]

mod attributes;
mod clock;
#[doc(hidden)]
pub mod decoders;
mod digest;
mod disk;
mod fill;
mod former;
mod heat;
mod leaving;
mod membership;
mod memory;
pub mod metrics;
mod options;
mod rates;
mod serve;
mod standing;
mod tasks;
mod trace;
mod voids;
mod volumes;
mod warming;
mod worker;

pub use clock::{ManualWorkerClock, SystemClock, WorkerClock, WorkerInstant};
pub use disk::{DiskError, DiskFolder, DiskOptions, DiskVolume, METRICS as DISK_METRICS};
pub use leaving::WorkerDrainProgress;
pub use membership::{MapActivation, NotedWrite};
pub use options::{WorkerOptions, WorkerOptionsError};
pub use rates::BlockRate;
pub use volumes::WorkerVolumes;
pub use worker::{CacheWorker, WorkerError};
