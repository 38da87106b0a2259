//! The settings of a worker: its name, its memory, and how it fills from the UFS.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use verbs3_client::NeighbourSettings;
use verbs3_rdma::settings::ShmSettings;
use verbs3_settings::{ByteSize, MemorySettings, SettingsTable, TimePeriod};

use crate::disk::WorkerDiskSettings;

/// The `[worker]` section.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// Name of this worker, unique in the cluster; one of `cluster.workers` where these are listed.
    /// Usually given as `VERBS3_WORKER__ID`.
    #[setting(required, example = "gpu-01")]
    pub id: String,
    /// Address that gateways connect to; its port is the one in `cluster.workers`.
    #[setting(default = "0.0.0.0:9400")]
    pub listen: SocketAddr,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside.
    #[setting(default = "127.0.0.1:9401")]
    pub admin_listen: SocketAddr,
    /// Network device, such as `"eth0"`, that requests to `admin_listen` must come in over; none:
    /// over any. (That of `listen` is `tcp.bind_device`.)
    #[setting(example = "eth0")]
    pub admin_bind_device: Option<String>,
    /// Where gateways and other workers reach this one, `host:port`, as it tells the coordinators;
    /// none means `listen` or, where that is no single address, the first one of
    /// `tcp.bind_device`, else this host's name.
    #[setting(example = "10.0.0.1:9400")]
    pub advertise: Option<String>,
    /// What fails together, such as a rack: a block's owner and its next owners are in different
    /// zones, where there are any.
    #[setting(default = "")]
    pub zone: String,
    /// Share of the blocks, relative to the other workers, as it is told to the coordinators;
    /// `0.0`: its memory in GiB. Worth writing, on all workers, where they differ in drives more
    /// than in memory; a change moves blocks.
    #[setting(default = 0.0, range = 0.0..=1_000_000.0)]
    pub weight: f64,
    /// Memory that pages are cached in.
    #[setting(table)]
    pub memory: MemorySettings,
    /// How pages come from the UFS.
    #[setting(table)]
    pub fill: WorkerFillSettings,
    /// Drives that pages are kept on besides, over restarts.
    #[setting(table)]
    pub disk: WorkerDiskSettings,
    /// What is known of objects.
    #[setting(table)]
    pub index: WorkerIndexSettings,
    /// How writes are ordered.
    #[setting(table)]
    pub writes: WorkerWritesSettings,
    /// What gateways may push while they write (populate on write).
    #[setting(table)]
    pub populate: WorkerPopulateSettings,
    /// What gateways may answer without asking this worker.
    #[setting(table)]
    pub leases: WorkerLeasesSettings,
    /// How other workers are asked for what has moved here from them.
    #[setting(table)]
    pub neighbours: NeighbourSettings,
    /// How tenants share memory, drives and fills.
    #[setting(table)]
    pub tenants: WorkerTenantsSettings,
    /// How gateways of the same host read the worker's memory itself.
    #[setting(table)]
    pub shm: ShmSettings,
}

/// The `[worker.fill]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerFillSettings {
    /// Part of the memory that cached pages leave free, so that a fill finds memory at once.
    #[setting(default = 0.05, range = 0.0..=0.9)]
    pub reserve: f64,
    /// Requests of fills to the UFS under way at once.
    #[setting(default = 256, range = 1..=65_536)]
    pub in_flight_max: u32,
    /// Fills that wait for their turn; readers beyond are told to ask the UFS themselves.
    #[setting(default = 4096, range = 1..=1_000_000)]
    pub queued_max: u32,
    /// Bytes of all requests of fills under way.
    #[setting(default = "1GiB", range = "1MiB"..="1TiB")]
    pub bytes_in_flight_max: ByteSize,
    /// Bytes a second that fills read from one store, shared by tenants (docs/tenants.md); `"0B"`:
    /// any.
    #[setting(default = "0B", range = "0B"..="1TiB")]
    pub store_rate_max: ByteSize,
    /// Blocks that preload jobs may have loaded at once; half of `in_flight_max` at most. Their
    /// bytes take half of what `reserve` keeps free, or one block.
    #[setting(default = 64, range = 1..=65_536)]
    pub warms_in_flight_max: u32,
    /// Largest request of a fill for reads longer than `whole_request_max`: adjacent missing pages
    /// are asked for together up to here. At least one page. A long read has as many requests under
    /// way as its `gateway.read.window` has room for.
    #[setting(default = "4MiB", range = "64KiB"..="16MiB")]
    pub request_max: ByteSize,
    /// Longest read whose missing bytes are one request, as far as they lie in 16 blocks that are
    /// owned together. Of no effect where `request_max` is less than a block.
    #[setting(default = "64MiB", range = "1MiB"..="256MiB")]
    pub whole_request_max: ByteSize,
    /// How long a request waits at the end of a block for a reader of the next one, before it is
    /// ended there. It waits no longer where others wait for their turn.
    #[setting(default = "5s", range = "10ms"..="5m")]
    pub request_pause_max: TimePeriod,
    /// How long a fill waits for its turn before its readers are told to ask the UFS themselves.
    #[setting(default = "5s", range = "10ms"..="5m")]
    pub wait_max: TimePeriod,
    /// How long a fill goes on that nobody waits for: a reader that has just been given its first
    /// bytes is about to ask for the rest.
    #[setting(default = "50ms", range = "0"..="10s")]
    pub unwanted_max: TimePeriod,
    /// Bytes that one sequential read may have fetched ahead of itself; `"0B"` switches read-ahead
    /// off.
    #[setting(default = "4MiB", range = "0B"..="1GiB")]
    pub read_ahead_max: ByteSize,
    /// The least that is filled for a small read at a random offset of a large object: 4KiB to
    /// 64KiB, a power of two and less than `cluster.page`; `"0B"`: a page. Such a read is at most
    /// half a page long and does not go on where another has ended. The rest of the page comes once
    /// three quarters of it are wanted, or a read goes on. Parts are in memory alone: the disk tier
    /// takes whole pages.
    #[setting(default = "0B", range = "0B"..="64KiB")]
    pub part: ByteSize,
    /// Pages that nobody read for as long are dropped; `"0"`: only when their memory is needed.
    #[setting(default = "0", range = "0"..="365d")]
    pub page_idle_max: TimePeriod,
}

/// The `[worker.tenants]` table (docs/tenants.md). Gateways say for whom they ask, and what that
/// tenant weighs. Of no effect as long as there is one tenant, and no preload job.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerTenantsSettings {
    /// Part, in percent, of memory and of drives that is divided among the active tenants by their
    /// weights: others can't evict what a tenant holds within its part. The rest goes to whoever
    /// uses it most; 0: all of it.
    #[setting(default = 80, range = 0..=100)]
    pub share_percent: u32,
    /// How long after its last request a tenant counts as active. After that its pages stay only
    /// until somebody else needs the room.
    #[setting(default = "10m", range = "1s"..="30d")]
    pub active_for: TimePeriod,
    /// Part, in percent, of what fills may have under way (`worker.fill.in_flight_max` and
    /// `bytes_in_flight_max`), of the requests of one store, of checks and of announced writes, which
    /// a tenant that has more than its share leaves free while others are active.
    #[setting(default = 10, range = 0..=50)]
    pub reserve_percent: u32,
}

/// The `[worker.index]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerIndexSettings {
    /// Objects whose attributes (or absence) are kept, half a KiB each.
    #[setting(default = 1_000_000, range = 1000..=100_000_000)]
    pub attributes_max: u32,
    /// Objects whose attributes are being asked at the UFS at once, which tenants share.
    #[setting(default = 4096, range = 1..=65_536)]
    pub checks_in_flight_max: u32,
    /// Counters that order reads and writes, 8 bytes each; keys share them by hash, and a collision
    /// costs one question to the UFS.
    #[setting(default = 1_048_576, range = 1024..=268_435_456)]
    pub generation_slots: u32,
}

/// The `[worker.leases]` table. A home leases the attributes of keys that are read often and not
/// written, or that they are absent, to gateways, which then answer HEAD by themselves, and ask for
/// bytes without asking for attributes first. A write waits until they have dropped them, or until
/// the leases are over. Of use only with `cluster.coordinators`, and in `verbs3 dev`.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerLeasesSettings {
    /// How long a gateway may answer by itself, and a write may wait for one that is silent; `"0s"`
    /// switches leases off.
    #[setting(default = "2s", range = "0s"..="2s")]
    pub length: TimePeriod,
    /// Reads of a key within ten seconds from which on it is leased.
    #[setting(default = 8, range = 1..=1_000_000)]
    pub reads_min: u32,
    /// For how long a key must not have been written to be leased.
    #[setting(default = "30s", range = "0s"..="1h")]
    pub quiet_for: TimePeriod,
    /// Leases that are remembered until they are over; beyond, none are granted.
    #[setting(default = 100_000, range = 1..=10_000_000)]
    pub leases_max: u32,
    /// Gateways that may hold leases.
    #[setting(default = 16_384, range = 1..=1_000_000)]
    pub holders_max: u32,
}

/// The `[worker.writes]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerWritesSettings {
    /// Longest time that reads of a key ask the UFS because its writer has vanished. Not shorter
    /// than any `gateway.tier.write_uncertain_for`.
    #[setting(default = "5m", range = "1s"..="1h")]
    pub uncertain_for_max: TimePeriod,
    /// How long after that a store may still complete such a write. Until then what is learnt of
    /// the key is believed for `doubt_age_max` only, on immutable mounts too. `"0s"`: such writes
    /// are taken to be over.
    #[setting(default = "1h", range = "0s"..="7d")]
    pub doubt_for: TimePeriod,
    /// How long what is learnt of a key in doubt is believed.
    #[setting(default = "10s", range = "10ms"..="1h")]
    pub doubt_age_max: TimePeriod,
    /// Keys whose write is under way at once, shared by tenants (docs/tenants.md); beyond, writes are
    /// refused (503).
    #[setting(default = 100_000, range = 1000..=10_000_000)]
    pub open_max: u32,
    /// Keys that one message may name: a batch delete has up to 1000.
    #[setting(default = 1000, range = 1..=1000)]
    pub keys_per_message_max: u32,
}

/// The `[worker.populate]` table (docs/populate.md). Gateways push the pages of a write here while it
/// goes to the store; they are read once the store has answered. Whoever can do that can write any
/// bytes into the cache (docs/security.md), so it is off unless it is asked for.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerPopulateSettings {
    /// Memory, of `worker.memory.capacity`, for pages of writes that are not over yet; `"0B"`: none
    /// are taken. They are given up first where memory has run out.
    #[setting(default = "0B", range = "0B"..="1TiB")]
    pub staged_max: ByteSize,
    /// How long after its last page a write may end. A multipart upload has to be completed so long
    /// after each of its parts.
    #[setting(default = "5m", range = "1s"..="1h")]
    pub staged_for: TimePeriod,
    /// Bodies (a PUT, or one part of an upload) that pages are kept of at once.
    #[setting(default = 16_384, range = 1..=1_000_000)]
    pub writes_max: u32,
}
