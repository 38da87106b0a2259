//! The settings of those who ask workers: a gateway, and a worker that asks others.

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

use crate::asking::health::HealthOptions;

/// The `[gateway.tier]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct TierSettings {
    /// Memory lent with the first request for an object, before its length is known: up to here an
    /// object is one round trip. Not less than a page, not more than a block.
    #[setting(default = "1MiB", range = "64KiB"..="16MiB")]
    pub open_landing: ByteSize,
    /// For a worker's first sign of life; then the next worker is asked, then the UFS. A live fill
    /// counts as one.
    #[setting(default = "2s", range = "10ms"..="5m")]
    pub first_progress: TimePeriod,
    /// For the next sign of life of a worker that has shown one.
    #[setting(default = "15s", range = "100ms"..="10m")]
    pub idle: TimePeriod,
    /// After how long the next worker is asked too, while the first is silent; and, while an
    /// object's home is silent, the UFS.
    #[setting(default = "250ms", range = "1ms"..="1m")]
    pub hedge_after: TimePeriod,
    /// For how long reads of a key ask the UFS when its writer has vanished between announce and
    /// report.
    #[setting(default = "1m", range = "1s"..="1h")]
    pub write_uncertain_for: TimePeriod,
    /// For a home's acknowledgement of an announcement. Longer than `coordinator.lease`, or writes
    /// fail whose home has died.
    #[setting(default = "8s", range = "100ms"..="5m")]
    pub announce_deadline: TimePeriod,
    /// How long a report is tried before the writer is told that it failed.
    #[setting(default = "15s", range = "100ms"..="10m")]
    pub report_deadline: TimePeriod,
    /// How long an open waits, where its worker has another placement map, for the maps to agree,
    /// before the UFS is read. `"0s"`: not at all.
    #[setting(default = "500ms", range = "0s"..="30s")]
    pub map_wait: TimePeriod,
    /// How long a read waits for memory of its own process, where other reads have all of it,
    /// before it asks the UFS past the cache. `"0s"`: not at all.
    #[setting(default = "3s", range = "0s"..="30s")]
    pub memory_wait: TimePeriod,
    /// How long a home may be silent to an announcement or report before the coordinators are asked
    /// to relay it; of use only with `cluster.coordinators`, and below `announce_deadline`.
    #[setting(default = "500ms", range = "10ms"..="1m")]
    pub relay_after: TimePeriod,
    /// Announcements and reports that are relayed at once; `0` has none relayed.
    #[setting(default = 16, range = 0..=65_536)]
    pub relays_max: u32,
    /// Objects whose attributes may be held by leases of their homes (see `worker.leases`), those
    /// with long headers counting as several; `0` wants none.
    #[setting(default = 100_000, range = 0..=10_000_000)]
    pub leases_max: u32,
    /// Longest object whose bytes are held beside the lease on its attributes, so that a read of it
    /// asks nobody; `"0B"` holds none. Above 64 KiB, an object is held from its second read on. One
    /// that is longer than `open_landing` never comes whole, and is not held.
    #[setting(default = "256KiB", range = "0B"..="256KiB")]
    pub small_object_max: ByteSize,
    /// Memory of all such objects, shared by tenants; beyond it, those that were not read lately
    /// make room.
    #[setting(default = "64MiB", range = "0B"..="64GiB")]
    pub small_memory_max: ByteSize,
    /// Pages of workers of this host that are kept in their memory, shared by tenants, so that a
    /// read of what was just read twice asks nobody; `"0B"` keeps none. An eighth of a worker's
    /// memory at the most. They count against `worker.shm.pinned_max`: stay well below it.
    #[setting(default = "64MiB", range = "0B"..="64GiB")]
    pub kept_pages_max: ByteSize,
    /// How long they are kept, or up to a quarter longer. A worker hears of hot blocks so often.
    #[setting(default = "2s", range = "10ms"..="1m")]
    pub kept_pages_for: TimePeriod,
    /// Failures in a row after which a worker rests.
    #[setting(default = 3, range = 1..=1000)]
    pub failures_max: u32,
    /// Its first rest; doubles with each failed trial.
    #[setting(default = "1s", range = "10ms"..="10m")]
    pub rest_min: TimePeriod,
    /// Its longest rest.
    #[setting(default = "1m", range = "10ms"..="1h")]
    pub rest_max: TimePeriod,
}

/// The `[worker.neighbours]` table. After a change of the map, the new owner of a block asks its
/// former owners before the UFS. Of use with coordinators.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct NeighbourSettings {
    /// How long after a change of the map former owners are asked; `"0"`: never.
    #[setting(default = "1h", range = "0"..="7d")]
    pub asked_for: TimePeriod,
    /// Memory for what they send until it has been checked, besides `worker.memory`: as many bytes
    /// are asked for at once.
    #[setting(default = "64MiB", range = "16MiB"..="64GiB")]
    pub memory: ByteSize,
    /// How long a fill waits for its part of it before it asks the UFS.
    #[setting(default = "100ms", range = "1ms"..="10s")]
    pub wait_max: TimePeriod,
    /// Longest silence of a former owner before the UFS is asked.
    #[setting(default = "250ms", range = "10ms"..="10s")]
    pub silence_max: TimePeriod,
    /// Longest time for what one fill asks of one former owner.
    #[setting(default = "2s", range = "50ms"..="1m")]
    pub deadline: TimePeriod,
    /// Blocks of which it is remembered how much they are read: those are handed over when this
    /// worker is drained.
    #[setting(default = 32_768, range = 1..=10_000_000)]
    pub hot_blocks_max: u32,
    /// Bytes that are handed over in a second.
    #[setting(default = "256MiB", range = "1MiB"..="64GiB")]
    pub hand_over_rate_max: ByteSize,
}

impl TierSettings {
    /// `open_landing`, as a request carries it.
    pub fn open_landing_bytes(&self) -> u32 {
        u32::try_from(self.open_landing.0).unwrap_or(u32::MAX)
    }

    pub(crate) fn health_options(&self) -> HealthOptions {
        HealthOptions {
            failures_max: self.failures_max,
            rest_min: self.rest_min.0,
            rest_max: self.rest_max.0,
        }
    }
}
