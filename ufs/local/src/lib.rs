//! Owns the embedded under file store: a directory with S3's semantics, implementing [`s3s::S3`].
//!
//! ```text
//! root/
//!   FORMAT                 names this format and its version
//!   LOCK                   held by the one process that has the store open
//!   index.redb             the index: buckets, objects in key order, uploads, blob references
//!   data/<gen>/<n/4096>/<n>  blobs: one plain file per PUT body or part, written once
//! ```
//!
//! An object is its index record and nothing else: a blob file that no record names is invisible. A
//! write makes its blob durable first and commits the record second, so an object is visible whole
//! or not at all. Keys never become file names, so every key that S3 allows is allowed here.
//!
//! The store does not authenticate, does not version objects and enforces no access control lists.

#![forbid(unsafe_code)]

mod blob;
mod checksum;
mod condition;
mod index;
mod listing;
mod metrics;
mod metrics_collector;
mod ops;
mod options;
mod s3;
mod store;
#[cfg(test)]
mod tests;

pub use options::{LocalError, LocalOptions};
pub use store::{LocalStats, LocalStore};

pub(crate) use metrics::LocalMetrics;

use verbs3_metrics::{MetricsTable as _, MetricsTableDescription};

/// Describes every metric of this crate, for the document.
pub fn describe_metrics() -> Vec<MetricsTableDescription> {
    vec![LocalMetrics::describe_table()]
}
