//! Preload jobs: loads a list of objects into the cache tier before anybody reads it. Reports them
//! as present only if they are.
//!
//! Also answers people about single objects ([`ObjectAdmin`]). Owns jobs, their progress and their
//! bounds. Knows no HTTP and no election: the leader runs the [`PreloadEngine`] over a store of its
//! own. The owners of blocks do the loading.
#![forbid(unsafe_code)]

pub mod api;
mod check_object;
mod checksum_comparison;
mod engine;
mod failure_file;
mod job;
mod job_record;
mod job_run;
mod job_store;
mod job_turns;
mod jobs_page;
mod judged_mounts;
mod load_object;
mod look;
pub mod metrics;
mod mounts;
mod notification;
mod object_admin;
mod object_list;
mod options;
mod plan;
mod preload_run;
mod run_environment;
mod settings;
mod tend_object;

pub use engine::{PreloadEngine, PreloadEngineError};
pub use job_record::JobOwner;
pub use job_store::{JobStore, JobStoreError, MemoryJobs};
pub use jobs_page::{JobsOverview, JobsPageToken, JobsPageTokenError, PAGE_JOBS_MAX};
pub use judged_mounts::JudgedMountError;
pub use mounts::{PreloadMount, PreloadMountTable};
pub use notification::{BucketNotification, NotificationError};
pub use object_admin::{ObjectAdmin, ObjectError};
pub use options::PreloadOptions;
pub use plan::SpecError;
pub use settings::CoordinatorPreloadSettings;
