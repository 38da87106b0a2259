//! Measures S3 endpoints, by scenarios and against references. `verbs3 bench s3` and
//! `verbs3-loadtest` use it.
#![forbid(unsafe_code)]

pub mod agents;
mod bench_limits;
pub mod bench_record;
mod bench_round;
mod client;
pub mod comparison;
mod connection;
mod connection_loop;
mod content;
pub mod cpu_time;
pub mod credentials;
pub mod endpoint;
mod exchange_error;
mod histogram;
pub mod hot_bench;
pub mod memory_bench;
mod nginx_reference;
pub mod printable_text;
mod progress;
mod random;
pub mod report;
mod request_plan;
pub mod scenario;
mod schedule;
mod sign;
mod statistics;
pub mod store_proxy;
pub mod synthetic_store;
mod tally;
pub mod tenant_bench;
pub mod units;
