//! The options of a worker. Every bound of this crate is here.

use std::path::PathBuf;
use std::time::Duration;

use verbs3_protocol::{BlockGeometry, Epoch, GeometryError, LEASE_MS_MAX};

use crate::disk::{DiskOptions, FOLDER_BYTES_MIN};

/// The bounds and sizes of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Block and page size; the same in the whole cluster.
    pub geometry: BlockGeometry,
    /// Epoch of the placement map. Requests about attributes and writes are answered only to
    /// callers of the same map. `None` answers any caller, for a worker that has only one.
    pub epoch: Option<Epoch>,
    /// The placement map comes from a coordinator. Requests about attributes are refused before
    /// [`crate::CacheWorker::activate_map`], and `epoch` is not used.
    pub coordinated: bool,
    /// Share of the arena, 0 to 0.9, that cached pages leave free, so that a fill finds memory at
    /// once. Read-ahead may not use it.
    pub fill_reserve: f64,
    /// UFS reads under way at once.
    pub fills_in_flight_max: usize,
    /// UFS reads that wait for a permit. Any further read is answered with `Busy`.
    pub fills_queued_max: usize,
    /// Bytes of all UFS reads under way.
    pub fill_bytes_in_flight_max: u64,
    /// Bytes of one UFS read. At least one page.
    pub fill_bytes_max: u32,
    /// How long a fill waits for its permit before its readers get `Busy`.
    pub fill_wait_max: Duration,
    /// How long a fill without waiting readers continues. A reader that just got its first bytes
    /// will soon ask for the rest.
    pub fill_unwanted_max: Duration,
    /// Warm-ups of a block under way at once. Their bytes take at most half of what `fill_reserve`
    /// keeps free.
    pub warms_in_flight_max: usize,
    /// Bytes of readahead for one read.
    pub read_ahead_bytes_max: u32,
    /// Pages that nobody read for this long are dropped. `None`: they are dropped only when their
    /// memory is needed.
    pub page_idle_max: Option<Duration>,
    /// Longest time that an announced write stays uncertain without news from its writer.
    pub uncertain_max: Duration,
    /// How long after that a store may still complete such a write; zero: not at all.
    pub doubt_for: Duration,
    /// How long answers about such a write's key are trusted meanwhile.
    pub doubt_age_max: Duration,
    /// Announced writes that may be open at once; a batch counts its keys. Any further write is
    /// answered with `Busy`.
    pub open_writes_max: usize,
    /// Keys that one announcement, report or invalidation may name.
    pub keys_per_message_max: usize,
    /// Size of the generation table. Keys that share a slot only cost each other a check.
    pub generation_slots: usize,
    /// Attributes kept, each of half a KiB. Larger ones count as several.
    pub attributes_entries_max: usize,
    /// Objects whose attributes are requested from the UFS at once. Any further request is answered
    /// with `Busy`.
    pub checks_in_flight_max: usize,
    /// How long after a map change the former owners of slots are asked for pages. Has an effect
    /// only with a coordinator.
    pub former_asked_for: Duration,
    /// Blocks whose read heat is remembered. These are handed over when this worker is drained.
    pub hot_blocks_max: usize,
    /// Rate of that handover.
    pub hand_over_bytes_per_second_max: u64,
    /// How long a gateway may answer for a key's attributes by itself, at most
    /// [`verbs3_protocol::LEASE_MS_MAX`]; 0: not at all. Has an effect only with a coordinator.
    pub lease: Duration,
    /// Reads of a key within ten seconds that make it worth a lease.
    pub lease_reads_min: u32,
    /// How long a key must not have been written before it is leased.
    pub lease_quiet: Duration,
    /// Leases that are remembered until they end. No lease is granted beyond that.
    pub leases_max: usize,
    /// Gateways that may hold leases.
    pub lease_holders_max: usize,
    /// The disk tier, which keeps pages over restarts; `None`: there is none.
    pub disk: Option<DiskOptions>,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            geometry: BlockGeometry::DEFAULT,
            epoch: None,
            coordinated: false,
            fill_reserve: 0.05,
            fills_in_flight_max: 256,
            fills_queued_max: 4096,
            fill_bytes_in_flight_max: 1 << 30,
            fill_bytes_max: 4 << 20,
            fill_wait_max: Duration::from_secs(5),
            fill_unwanted_max: Duration::from_millis(50),
            warms_in_flight_max: 64,
            read_ahead_bytes_max: 4 << 20,
            page_idle_max: None,
            uncertain_max: Duration::from_secs(300),
            doubt_for: Duration::from_secs(3600),
            doubt_age_max: Duration::from_secs(10),
            open_writes_max: 100_000,
            keys_per_message_max: 1000,
            generation_slots: 1 << 20,
            attributes_entries_max: 1_000_000,
            checks_in_flight_max: 4096,
            former_asked_for: Duration::from_secs(3600),
            hot_blocks_max: 32_768,
            hand_over_bytes_per_second_max: 256 << 20,
            lease: Duration::from_secs(2),
            lease_reads_min: 8,
            lease_quiet: Duration::from_secs(30),
            leases_max: 100_000,
            lease_holders_max: 16_384,
            disk: None,
        }
    }
}

/// The reasons why a worker can't run with its options.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkerOptionsError {
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error("fill reserve of {0} is not between 0 and 0.9")]
    Reserve(f64),
    #[error("the disk folder {folder:?} of {bytes} bytes is too small; give it 16 MiB at least")]
    DiskFolder { folder: PathBuf, bytes: u64 },
    #[error("{0} is 0; it must be at least 1")]
    Zero(&'static str),
    #[error("a lease of {0:?} is longer than the 2 s that a worker waits for its predecessor's")]
    Lease(Duration),
    #[error("{name} of {bytes} bytes is less than one page of {page_bytes} bytes")]
    BelowPage { name: &'static str, bytes: u64, page_bytes: u32 },
    #[error(
        "the arena's largest cell of {cell_bytes} bytes holds no page of {page_bytes} bytes; map \
        the arena with cell_bytes_max = page size"
    )]
    Cell { cell_bytes: usize, page_bytes: u32 },
}

impl WorkerOptions {
    /// Returns every invalid value.
    pub fn find_problems(&self) -> Vec<WorkerOptionsError> {
        let mut problems = Vec::new();
        if let Err(error) = BlockGeometry::new(self.geometry.block_bytes, self.geometry.page_bytes)
        {
            problems.push(error.into());
        }
        if !(0.0..=0.9).contains(&self.fill_reserve) {
            problems.push(WorkerOptionsError::Reserve(self.fill_reserve));
        }
        if self.lease > Duration::from_millis(LEASE_MS_MAX.into()) {
            problems.push(WorkerOptionsError::Lease(self.lease));
        }
        let counts = [
            ("fills_in_flight_max", self.fills_in_flight_max),
            ("fills_queued_max", self.fills_queued_max),
            ("warms_in_flight_max", self.warms_in_flight_max),
            ("open_writes_max", self.open_writes_max),
            ("keys_per_message_max", self.keys_per_message_max),
            ("generation_slots", self.generation_slots),
            ("attributes_entries_max", self.attributes_entries_max),
            ("checks_in_flight_max", self.checks_in_flight_max),
            ("hot_blocks_max", self.hot_blocks_max),
            ("leases_max", self.leases_max),
            ("lease_holders_max", self.lease_holders_max),
        ];
        problems.extend(
            counts
                .iter()
                .filter(|(_, count)| *count == 0)
                .map(|(name, _)| WorkerOptionsError::Zero(name)),
        );
        let page_bytes = self.geometry.page_bytes;
        let sizes = [
            ("fill_bytes_max", u64::from(self.fill_bytes_max)),
            ("fill_bytes_in_flight_max", self.fill_bytes_in_flight_max),
        ];
        for (name, bytes) in sizes {
            if bytes < u64::from(page_bytes) {
                problems.push(WorkerOptionsError::BelowPage { name, bytes, page_bytes });
            }
        }
        let folders = self.disk.iter().flat_map(|disk| &disk.folders);
        for folder in folders.filter(|folder| folder.capacity_bytes < FOLDER_BYTES_MIN) {
            problems.push(WorkerOptionsError::DiskFolder {
                folder: folder.path.clone(),
                bytes: folder.capacity_bytes,
            });
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_defaults_can_work() {
        assert_eq!(WorkerOptions::default().find_problems(), []);
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let options = WorkerOptions {
            geometry: BlockGeometry { block_bytes: 1, page_bytes: 256 << 10 },
            fill_reserve: 2.0,
            fills_in_flight_max: 0,
            fill_bytes_max: 1,
            ..WorkerOptions::default()
        };
        assert_eq!(options.find_problems().len(), 4);
    }
}
