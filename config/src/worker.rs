//! The cache: its name, its memory, and how it fills from the UFS.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::process::Memory;
use crate::quantity::ByteSize;

/// The `[worker]` section.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    /// Name of this worker; one of `cluster.workers`. Usually given as `VERBS3_WORKER__ID`. Required.
    pub id: String,
    /// Address that gateways connect to; its port is the one in `cluster.workers`. Default: `"0.0.0.0:9400"`.
    pub listen: SocketAddr,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside. Default: `"127.0.0.1:9401"`.
    pub admin_listen: SocketAddr,
    /// Memory that pages are cached in.
    pub memory: Memory,
    /// How pages come from the UFS.
    pub fill: WorkerFill,
    /// What is known of objects.
    pub index: WorkerIndex,
}

/// The `[worker.fill]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerFill {
    /// Part of the memory that is kept free for fills, so that a full cache never waits for itself. Default: `0.05`. Range: `0.01` to `0.5`.
    pub reserve: f64,
    /// Requests of fills to the UFS at once; reads beyond are told to ask the UFS themselves. Default: `64`. Range: `1` to `65536`.
    pub in_flight_max: u32,
    /// Largest request of a fill: adjacent missing pages are asked for together up to here. At least one page. Default: `"4MiB"`. Range: `"64KiB"` to `"16MiB"`.
    pub request_max: ByteSize,
    /// Bytes read ahead of a sequential reader, over all readers of an object; `"0B"` switches read-ahead off. Default: `"16MiB"`. Range: `"0B"` to `"1GiB"`.
    pub read_ahead_max: ByteSize,
}

/// The `[worker.index]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerIndex {
    /// Objects whose attributes (or absence) are kept, about 1 KiB each. Default: `200000`. Range: `1000` to `100000000`.
    pub attributes_max: u64,
    /// Counters that order reads and writes; keys share them by hash, and a collision costs one question to the UFS. 8 bytes each; a
    /// power of two. Default: `1048576`. Range: `1024` to `268435456`.
    pub generation_slots: u64,
    /// Keys whose last write has not been reported yet; beyond, writes are refused (503). Default: `100000`. Range: `1000` to `10000000`.
    pub uncertain_max: u64,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            id: String::new(),
            listen: SocketAddr::from(([0, 0, 0, 0], 9400)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9401)),
            memory: Memory::default(),
            fill: WorkerFill::default(),
            index: WorkerIndex::default(),
        }
    }
}

impl Default for WorkerFill {
    fn default() -> Self {
        Self { reserve: 0.05, in_flight_max: 64, request_max: ByteSize::mib(4), read_ahead_max: ByteSize::mib(16) }
    }
}

impl Default for WorkerIndex {
    fn default() -> Self {
        Self { attributes_max: 200_000, generation_slots: 1 << 20, uncertain_max: 100_000 }
    }
}
