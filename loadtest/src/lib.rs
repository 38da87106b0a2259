//! Measures S3 endpoints, by scenarios and against references. `verbs3 bench s3` and
//! `verbs3-loadtest` are made of it.
#![forbid(unsafe_code)]

mod client;
pub mod compare;
mod connection;
mod content;
pub mod cpu;
mod drive;
pub mod endpoint;
mod failure;
mod histogram;
pub mod hot;
mod limits;
pub mod memory;
mod plan;
mod progress;
pub mod proxy;
mod random;
pub mod record;
mod reference;
pub mod report;
mod round;
pub mod scenario;
mod schedule;
mod sign;
mod statistics;
pub mod synthetic;
mod tally;
pub mod units;
