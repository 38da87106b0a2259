//! Preload jobs: a list of objects is loaded into the cache tier before anybody reads it, and is
//! said to be there only if it is.
//!
//! Also what people ask and say of single objects ([`ObjectAdmin`]). Owns jobs, their progress and
//! their bounds. Knows no HTTP, and no election: whoever leads runs the [`PreloadEngine`] over a store of
//! its own. Loads nothing itself: the owners of blocks do.
#![forbid(unsafe_code)]

pub mod api;
mod bucket;
mod check;
mod compare;
mod document;
mod engine;
mod failures;
mod job;
mod list;
mod load;
mod look;
pub mod metrics;
mod mounts;
mod notified;
mod objects;
mod options;
mod pages;
mod plan;
mod run;
mod store;
mod tend;

pub use engine::{PreloadEngine, PreloadEngineError};
pub use mounts::{PreloadMount, PreloadMountTable};
pub use notified::{BucketNotification, NotificationError};
pub use objects::{ObjectAdmin, ObjectError};
pub use options::PreloadOptions;
pub use pages::{JobsOverview, JobsPageToken, JobsPageTokenError, PAGE_JOBS_MAX};
pub use plan::SpecError;
pub use store::{JobStore, JobStoreError, MemoryJobs};
