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

pub use clock::{Clock, ManualClock, Moment, SystemClock};
pub use disk::{DiskError, DiskFolder, DiskOptions, DiskVolume, METRICS as DISK_METRICS};
pub use leaving::HandingOver;
pub use membership::{Activation, NotedWrite};
pub use options::{OptionsError, WorkerOptions};
pub use rates::BlockRate;
pub use volumes::Volumes;
pub use worker::{Worker, WorkerError};
