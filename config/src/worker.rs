//! The cache: its name, its memory, and how it fills from the UFS.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::disk::WorkerDiskSettings;
use crate::process::MemorySettings;
use crate::quantity::{ByteSize, TimePeriod};

/// The `[worker]` section.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// Name of this worker, unique in the cluster; one of `cluster.workers` where these are listed.
    /// Usually given as `VERBS3_WORKER__ID`. Required.
    pub id: String,
    /// Address that gateways connect to; its port is the one in `cluster.workers`. Default:
    /// `"0.0.0.0:9400"`.
    pub listen: SocketAddr,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside.
    /// Default: `"127.0.0.1:9401"`.
    pub admin_listen: SocketAddr,
    /// Network device, such as `"eth0"`, that requests to `admin_listen` must come in over; none:
    /// over any. (That of `listen` is `tcp.bind_device`.) Default: none.
    pub admin_bind_device: Option<String>,
    /// Where gateways and other workers reach this one, `host:port`, as it tells the coordinators;
    /// none means `listen`, or this host's name where that is no single address. Default: none.
    pub advertise: Option<String>,
    /// What fails together, such as a rack: replicas of a block go to different zones where there
    /// are any. Default: `""`.
    pub zone: String,
    /// Share of the blocks, relative to the other workers, as it is told to the coordinators;
    /// `0.0`: its memory in GiB. Worth writing, on all workers, where they differ in drives more
    /// than in memory; a change moves blocks. Default: `0.0`. Range: `0.0` to `1000000.0`.
    pub weight: f64,
    /// Memory that pages are cached in.
    pub memory: MemorySettings,
    /// How pages come from the UFS.
    pub fill: WorkerFillSettings,
    /// Drives that pages are kept on besides, over restarts.
    pub disk: WorkerDiskSettings,
    /// What is known of objects.
    pub index: WorkerIndexSettings,
    /// How writes are ordered.
    pub writes: WorkerWritesSettings,
    /// What gateways may answer without asking this worker.
    pub leases: WorkerLeasesSettings,
    /// How other workers are asked for what has moved here from them.
    pub neighbours: WorkerNeighboursSettings,
    /// How gateways of the same host read the worker's memory itself.
    pub shm: WorkerShmSettings,
}

/// The `[worker.fill]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerFillSettings {
    /// Part of the memory that cached pages leave free, so that a fill finds memory at once.
    /// Default: `0.05`. Range: `0.0` to `0.9`.
    pub reserve: f64,
    /// Requests of fills to the UFS under way at once. Default: `256`. Range: `1` to `65536`.
    pub in_flight_max: u32,
    /// Fills that wait for their turn; readers beyond are told to ask the UFS themselves. Default:
    /// `4096`. Range: `1` to `1000000`.
    pub queued_max: u32,
    /// Bytes of all requests of fills under way. Default: `"1GiB"`. Range: `"1MiB"` to `"1TiB"`.
    pub bytes_in_flight_max: ByteSize,
    /// Blocks that preload jobs may have loaded at once; half of `in_flight_max` at most. Their
    /// bytes take half of what `reserve` keeps free, or one block. Default: `64`. Range: `1` to
    /// `65536`.
    pub warms_in_flight_max: u32,
    /// Largest request of a fill: adjacent missing pages are asked for together up to here. At
    /// least one page. Default: `"4MiB"`. Range: `"64KiB"` to `"16MiB"`.
    pub request_max: ByteSize,
    /// How long a fill waits for its turn before its readers are told to ask the UFS themselves.
    /// Default: `"5s"`. Range: `"10ms"` to `"5m"`.
    pub wait_max: TimePeriod,
    /// How long a fill goes on that nobody waits for: a reader that has just been given its first
    /// bytes is about to ask for the rest. Default: `"50ms"`. Range: `"0"` to `"10s"`.
    pub unwanted_max: TimePeriod,
    /// Bytes that one sequential read may have fetched ahead of itself; `"0B"` switches read-ahead
    /// off. Default: `"4MiB"`. Range: `"0B"` to `"1GiB"`.
    pub read_ahead_max: ByteSize,
    /// Pages that nobody read for as long are dropped; `"0"`: only when their memory is needed.
    /// Default: `"0"`. Range: `"0"` to `"365d"`.
    pub page_idle_max: TimePeriod,
}

/// The `[worker.index]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerIndexSettings {
    /// Objects whose attributes (or absence) are kept, half a KiB each. Default: `1000000`. Range:
    /// `1000` to `100000000`.
    pub attributes_max: u32,
    /// Objects whose attributes are being asked at the UFS at once. Default: `4096`. Range: `1` to
    /// `65536`.
    pub checks_in_flight_max: u32,
    /// Counters that order reads and writes, 8 bytes each; keys share them by hash, and a collision
    /// costs one question to the UFS. Default: `1048576`. Range: `1024` to `268435456`.
    pub generation_slots: u32,
}

/// The `[worker.leases]` table. A home leases the attributes of keys that are read often and not
/// written to gateways, which then answer HEAD by themselves, and ask for bytes without asking for
/// attributes first. A write waits until they have dropped them, or until the leases are over. Of
/// use only with `cluster.coordinators`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerLeasesSettings {
    /// How long a gateway may answer by itself, and a write may wait for one that is silent; `"0s"`
    /// switches leases off. Default: `"2s"`. Range: `"0s"` to `"2s"`.
    pub length: TimePeriod,
    /// Reads of a key within ten seconds from which on it is leased. Default: `8`. Range: `1` to
    /// `1000000`.
    pub reads_min: u32,
    /// For how long a key must not have been written to be leased. Default: `"30s"`. Range: `"0s"`
    /// to `"1h"`.
    pub quiet_for: TimePeriod,
    /// Leases that are remembered until they are over; beyond, none are granted. Default: `100000`.
    /// Range: `1` to `10000000`.
    pub leases_max: u32,
    /// Gateways that may hold leases. Default: `16384`. Range: `1` to `1000000`.
    pub holders_max: u32,
}

/// The `[worker.writes]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerWritesSettings {
    /// Longest time that reads of a key ask the UFS because its writer has vanished. Not shorter
    /// than any `gateway.tier.write_uncertain_for`. Default: `"5m"`. Range: `"1s"` to `"1h"`.
    pub uncertain_for_max: TimePeriod,
    /// How long after that a store may still complete such a write. Until then what is learnt of
    /// the key is believed for `doubt_age_max` only, on immutable mounts too. `"0s"`: such writes
    /// are taken to be over. Default: `"1h"`. Range: `"0s"` to `"7d"`.
    pub doubt_for: TimePeriod,
    /// How long what is learnt of a key in doubt is believed. Default: `"10s"`. Range: `"10ms"` to
    /// `"1h"`.
    pub doubt_age_max: TimePeriod,
    /// Keys whose write is under way at once; beyond, writes are refused (503). Default: `100000`.
    /// Range: `1000` to `10000000`.
    pub open_max: u32,
    /// Keys that one message may name: a batch delete has up to 1000. Default: `1000`. Range: `1`
    /// to `1000`.
    pub keys_per_message_max: u32,
}

/// The `[worker.neighbours]` table. After a change of the map, the new owner of a block asks its
/// former owners before the UFS. Of use with coordinators.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerNeighboursSettings {
    /// How long after a change of the map former owners are asked; `"0"`: never. Default: `"1h"`.
    /// Range: `"0"` to `"7d"`.
    pub asked_for: TimePeriod,
    /// Memory for what they send until it has been checked, besides `worker.memory`: as many bytes
    /// are asked for at once. Default: `"64MiB"`. Range: `"16MiB"` to `"64GiB"`.
    pub memory: ByteSize,
    /// How long a fill waits for its part of it before it asks the UFS. Default: `"100ms"`. Range:
    /// `"1ms"` to `"10s"`.
    pub wait_max: TimePeriod,
    /// Longest silence of a former owner before the UFS is asked. Default: `"250ms"`. Range:
    /// `"10ms"` to `"10s"`.
    pub silence_max: TimePeriod,
    /// Longest time for what one fill asks of one former owner. Default: `"2s"`. Range: `"50ms"` to
    /// `"1m"`.
    pub deadline: TimePeriod,
    /// Blocks of which it is remembered how much they are read: those are handed over when this
    /// worker is drained. Default: `32768`. Range: `1` to `10000000`.
    pub hot_blocks_max: u32,
    /// Bytes that are handed over in a second. Default: `"256MiB"`. Range: `"1MiB"` to `"64GiB"`.
    pub hand_over_rate_max: ByteSize,
}

/// The `[worker.shm]` table. Used by gateways that see the socket: processes of one host, and
/// containers that share its folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerShmSettings {
    /// Offer it. A worker whose socket can't be made says so and goes on with the network. Default:
    /// `true`.
    pub enabled: bool,
    /// The unix socket; none means `/run/verbs3/ID.sock` with the worker's id. Default: none.
    pub socket: Option<PathBuf>,
    /// Connections that are accepted; a gateway makes up to `gateway.peers.connections_max`.
    /// Default: `64`. Range: `1` to `4096`.
    pub connections_max: u32,
    /// Pieces of memory that one connection may keep from being used again; replies beyond are
    /// copied. Default: `4096`. Range: `1` to `1000000`.
    pub pins_max: u32,
    /// The same in bytes. Default: `"256MiB"`. Range: `"1MiB"` to `"1TiB"`.
    pub pinned_max: ByteSize,
    /// Replies up to this length are copied at once, which costs less than handing them back.
    /// Default: `"16KiB"`. Range: `"0B"` to `"16MiB"`.
    pub copy_max: ByteSize,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            id: String::new(),
            listen: SocketAddr::from(([0, 0, 0, 0], 9400)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9401)),
            admin_bind_device: None,
            advertise: None,
            zone: String::new(),
            weight: 0.0,
            memory: MemorySettings::default(),
            fill: WorkerFillSettings::default(),
            disk: WorkerDiskSettings::default(),
            index: WorkerIndexSettings::default(),
            writes: WorkerWritesSettings::default(),
            leases: WorkerLeasesSettings::default(),
            neighbours: WorkerNeighboursSettings::default(),
            shm: WorkerShmSettings::default(),
        }
    }
}

impl Default for WorkerFillSettings {
    fn default() -> Self {
        Self {
            reserve: 0.05,
            in_flight_max: 256,
            queued_max: 4096,
            bytes_in_flight_max: ByteSize::from_mib(1024),
            warms_in_flight_max: 64,
            request_max: ByteSize::from_mib(4),
            wait_max: TimePeriod::from_seconds(5),
            unwanted_max: TimePeriod::from_millis(50),
            read_ahead_max: ByteSize::from_mib(4),
            page_idle_max: TimePeriod::from_millis(0),
        }
    }
}

impl Default for WorkerIndexSettings {
    fn default() -> Self {
        Self { attributes_max: 1_000_000, checks_in_flight_max: 4096, generation_slots: 1 << 20 }
    }
}

impl Default for WorkerLeasesSettings {
    fn default() -> Self {
        Self {
            length: TimePeriod::from_seconds(2),
            reads_min: 8,
            quiet_for: TimePeriod::from_seconds(30),
            leases_max: 100_000,
            holders_max: 16_384,
        }
    }
}

impl Default for WorkerWritesSettings {
    fn default() -> Self {
        Self {
            uncertain_for_max: TimePeriod::from_seconds(300),
            doubt_for: TimePeriod::from_seconds(3600),
            doubt_age_max: TimePeriod::from_seconds(10),
            open_max: 100_000,
            keys_per_message_max: 1000,
        }
    }
}

impl Default for WorkerNeighboursSettings {
    fn default() -> Self {
        Self {
            asked_for: TimePeriod::from_seconds(3600),
            memory: ByteSize::from_mib(64),
            wait_max: TimePeriod::from_millis(100),
            silence_max: TimePeriod::from_millis(250),
            deadline: TimePeriod::from_seconds(2),
            hot_blocks_max: 32_768,
            hand_over_rate_max: ByteSize::from_mib(256),
        }
    }
}

impl Default for WorkerShmSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            socket: None,
            connections_max: 64,
            pins_max: 4096,
            pinned_max: ByteSize::from_mib(256),
            copy_max: ByteSize::from_kib(16),
        }
    }
}
