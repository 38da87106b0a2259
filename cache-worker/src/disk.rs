//! The disk tier: pages of versions, in slots of segment files in one or more folders, kept over
//! restarts.
//!
//! Owns which pages are written, where they go, and which pages are evicted for them. Knows pages
//! and versions, but no attributes: it never checks whether a version is current. A read returns
//! the right bytes or nothing, whatever the disk did.

pub(crate) mod decoders;
mod disk_error;
mod disk_headers;
mod folder_files;
mod folder_health;
mod folder_index;
mod folder_store;
mod index_rebuild;
mod metrics;
mod pending_pins;
mod quota_eviction;
mod segment_layout;
mod segment_medium;
mod segment_slots;
mod settings;
mod slot_allocation;
mod slot_eviction;
mod slot_table;
mod tier_builder;
mod volume_quota;
mod write_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use verbs3_doors::{FairLimits, FairPlaces};
use verbs3_protocol::BlockIndex;
use verbs3_rdma::arena::CellReader;

use crate::digest::{PageKey, VersionDigest};
use crate::memory::{GhostFingerprints, PageHeat};
use crate::tenants::{TenantAccount, TenantAccounts, TenantTier};
use disk_headers::PageHeader;
use folder_store::FolderPageStore;
use metrics::{DiskEvictionReason, LookupResult, PageDropReason, QueueBytesKind};
use write_queue::{DiskTierWriter, DiskWriteJob, DiskWriteQueue, WriteQueueBudget};

pub use disk_error::DiskError;
pub(crate) use metrics::DiskMetrics;
pub(crate) use pending_pins::PendingPins;
pub use settings::{DiskFolderSettings, DiskVolumeSettings, WorkerDiskSettings};
pub(crate) use tier_builder::DiskTierBuilder;

/// A predicate that tells whether memory holds a page.
pub(crate) type ResidencyCheck = Arc<dyn Fn(PageKey) -> bool + Send + Sync>;

/// Bound on refused pages whose fingerprints are remembered, at most 16 MiB. A page that returns is
/// then worth writing.
const GHOSTS_MAX: u64 = 4 << 20;

/// Slots of each folder that one maintenance pass checks for age.
const SWEEP_STEPS: usize = 16_384;

/// How long after its last read places are kept free for a tenant.
const RESERVED_FOR_MAX: Duration = Duration::from_secs(60);

/// Uses in memory that justify writing a page where another one has to be evicted for it. The first
/// use is that of the reader that the page was filled for.
const USES_MIN: u8 = 2;

/// A page that could be written, and the evidence for it.
pub(crate) struct DiskOffer<'a> {
    pub(crate) version: VersionDigest,
    pub(crate) block: BlockIndex,
    pub(crate) page: u16,
    pub(crate) object: u64,
    pub(crate) volume: u64,
    pub(crate) account: TenantAccount,
    pub(crate) cell: &'a CellReader,
    pub(crate) length: u32,
    pub(crate) checksum: u64,
    /// Uses since the page entered memory.
    pub(crate) uses: u8,
    /// Memory remembers the page from before.
    pub(crate) returned: bool,
}

/// A folder with its write queue and writer thread.
struct DiskTierFolder {
    folder: Arc<FolderPageStore>,
    queue: Arc<DiskWriteQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The disk tier of a worker.
pub(crate) struct DiskTier {
    shelves: Vec<DiskTierFolder>,
    ghosts: Mutex<GhostFingerprints>,
    budget: WriteQueueBudget,
    reads: Arc<FairPlaces>,
    /// Reads that have ended, so that a wait for a place tells a hanging device from a busy one.
    reads_ended: AtomicU64,
    tenants: Arc<TenantAccounts>,
    flush_max: Duration,
    stall_max: Duration,
    metrics: DiskMetrics,
}

/// What a disk tier is made of, besides its settings and folders.
struct DiskTierParts {
    metrics: DiskMetrics,
    arena_bytes: u64,
    resident: ResidencyCheck,
    tenants: Arc<TenantAccounts>,
}

/// Returns seconds since 1970. A clock that is set wrong only makes pages look older or younger.
fn now_s() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// Makes the places of reads. Whoever waits longer than a read may take asks elsewhere.
fn share_reads(settings: &WorkerDiskSettings, tenants: &TenantAccounts) -> Arc<FairPlaces> {
    let (capacity, rules) = (u64::from(settings.reads_in_flight_max), tenants.rules());
    let limits = FairLimits {
        capacity,
        reserve: capacity.saturating_mul(rules.reserve_percent.into()) / 100,
        // Fills that wait are bounded already.
        waiting_max: usize::MAX,
        active_for: rules.active_for.min(RESERVED_FOR_MAX),
    };
    FairPlaces::new(limits, settings.stall_max.0)
}

impl DiskTier {
    fn new(
        settings: &WorkerDiskSettings,
        folders: Vec<FolderPageStore>,
        parts: DiskTierParts,
    ) -> Result<Self, DiskError> {
        let DiskTierParts { metrics, arena_bytes, resident, tenants } = parts;
        let budget = WriteQueueBudget {
            used: Arc::new(AtomicU64::new(0)),
            bytes_max: settings.queue_max.0.min(arena_bytes / 8),
            bytes_per_second_max: settings.write_rate_max.0 / (folders.len().max(1) as u64),
        };
        metrics.queue_bytes[QueueBytesKind::Max].set(budget.bytes_max as i64);
        let capacity: u64 = folders.iter().map(FolderPageStore::capacity_bytes).sum();
        tenants.set_capacity(TenantTier::Disk, capacity, 0);
        let shelf = |(number, folder): (usize, FolderPageStore)| {
            let (folder, queue) = (Arc::new(folder), Arc::new(DiskWriteQueue::new(budget.clone())));
            let (metrics, resident) = (metrics.clone(), resident.clone());
            let writer = DiskTierWriter {
                folder: folder.clone(),
                queue: queue.clone(),
                metrics,
                resident,
                now_s,
            };
            let thread = writer.start_thread(number).map_err(|source| DiskError::Thread {
                folder: settings
                    .folders
                    .get(number)
                    .map(|folder| folder.path.clone())
                    .unwrap_or_default(),
                source,
            })?;
            Ok(DiskTierFolder { folder, queue, thread: Mutex::new(Some(thread)) })
        };
        let shelves =
            folders.into_iter().enumerate().map(shelf).collect::<Result<Vec<_>, DiskError>>()?;
        let disk = Self {
            shelves,
            ghosts: Mutex::new(GhostFingerprints::new((capacity >> 16).min(GHOSTS_MAX) as usize)),
            budget,
            reads: share_reads(settings, &tenants),
            reads_ended: AtomicU64::new(0),
            tenants,
            flush_max: settings.flush_max.0,
            stall_max: settings.stall_max.0,
            metrics,
        };
        disk.look_over();
        Ok(disk)
    }

    /// Returns whether the page can be read here, and counts the lookup.
    pub(crate) fn look_up_page(&self, key: PageKey) -> bool {
        let found = self.holds_page(key);
        let result = if found { LookupResult::Hit } else { LookupResult::Miss };
        self.metrics.lookups[result].inc();
        found
    }

    pub(crate) fn holds_page(&self, key: PageKey) -> bool {
        let now_s = now_s();
        self.shelves.iter().any(|shelf| shelf.folder.holds_page(key, now_s))
    }

    /// Returns how hot the page is, and whether it is pinned, if it can be read here. Does not
    /// count as a use.
    pub(crate) fn page_heat(&self, key: PageKey) -> Option<(PageHeat, bool)> {
        let now_s = now_s();
        self.shelves.iter().find_map(|shelf| shelf.folder.page_heat(key, now_s))
    }

    /// Evicts a page, pinned or not. Blocks; only the page's own folder can make that long.
    pub(crate) fn evict_page(&self, key: PageKey) {
        for shelf in &self.shelves {
            if shelf.folder.evict_page(key, self.stall_max) {
                self.metrics.evictions[DiskEvictionReason::Asked].inc();
            }
        }
    }

    /// Returns whether some version of the object has this page of its first block here.
    pub(crate) fn knows_object_page(&self, object: u64, page: u16) -> bool {
        self.shelves.iter().any(|shelf| shelf.folder.knows_object_page(object, page))
    }

    /// Returns the places of reads under way. Take one before [`DiskTier::read`].
    pub(crate) fn read_places(&self) -> &Arc<FairPlaces> {
        &self.reads
    }

    /// Returns how many reads have ended.
    pub(crate) fn reads_ended(&self) -> u64 {
        self.reads_ended.load(Ordering::Relaxed)
    }

    /// Returns how long a read may take.
    pub(crate) fn stall_max(&self) -> Duration {
        self.stall_max
    }

    /// Reports that a read of this page took longer than `stall_max`. Its folder then rests for a
    /// while.
    pub(crate) fn report_stall(&self, key: PageKey) {
        for shelf in self.shelves.iter().filter(|shelf| shelf.folder.lists_page(key)) {
            shelf.folder.report_stall();
        }
    }

    /// Reads a page of exactly that length into memory, and returns its checksum. Returns `None` if
    /// the page is not here or is corrupt; the memory then holds garbage. Counts as a use by that
    /// account. Blocks.
    pub(crate) fn read(&self, key: PageKey, into: &mut [u8], user: TenantAccount) -> Option<u64> {
        let now_s = now_s();
        let read = self.shelves.iter().find_map(|shelf| shelf.folder.read(key, into, now_s, user));
        self.reads_ended.fetch_add(1, Ordering::Relaxed);
        read
    }

    /// Queues a page to be written, if it is worth it. Returns true if it will be written, or is on
    /// disk already. Never waits.
    pub(crate) fn offer_page(&self, offer: &DiskOffer<'_>) -> bool {
        let dropped = |reason: PageDropReason| {
            self.metrics.dropped[reason].inc();
            false
        };
        let key = offer.version.page_key(offer.block, offer.page);
        if self.holds_page(key) {
            return true;
        }
        let Some(shelf) = self.shelf_for(key) else { return dropped(PageDropReason::Folder) };
        if !shelf.folder.has_room(offer.length) && !self.is_worth_a_place(key, offer) {
            return dropped(PageDropReason::Cold);
        }
        let header = PageHeader {
            version: offer.version.to_stored(),
            object: offer.object,
            volume: offer.volume,
            block: offer.block.0,
            page: offer.page,
            length: offer.length,
            checksum: offer.checksum,
            sequence: 0,
            written_s: 0,
            pinned_until_s: 0,
            tenant: self.tenants.stored_hash(offer.account),
        };
        shelf.queue.offer_job(DiskWriteJob::Write { header, cell: offer.cell.clone() })
            || dropped(PageDropReason::Queue)
    }

    /// Pins the pages that are here until that time; `None` unpins them. Pins survive a restart
    /// once their headers are written.
    pub(crate) fn pin_pages(
        &self,
        keys: impl IntoIterator<Item = PageKey>,
        until: Option<SystemTime>,
    ) -> PendingPins {
        let seconds =
            |until: SystemTime| until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let until_s = until.map_or(0, |until| u32::try_from(seconds(until)).unwrap_or(u32::MAX));
        let mut pins = PendingPins::default();
        for key in keys {
            if let Some(shelf) =
                self.shelves.iter().find(|shelf| shelf.folder.pin_page(key, until_s))
            {
                // A refused pin lasts until the restart only, and does not count.
                if shelf.queue.offer_job(DiskWriteJob::Pin { key, ticket: pins.issue_ticket() }) {
                    pins.count_accepted();
                }
            }
        }
        pins
    }

    /// Drops expired pages and sets the gauges.
    pub(crate) fn look_over(&self) {
        let now_s = now_s();
        for shelf in &self.shelves {
            if shelf.queue.is_stuck(self.stall_max) {
                shelf.folder.report_stall();
                // Other folders need the queue's bytes, and memory needs the pages.
                let dropped = shelf.queue.drop_pages();
                self.metrics.dropped[PageDropReason::Folder].inc_by(dropped as u64);
            }
            shelf.folder.look_over(now_s, SWEEP_STEPS);
            shelf.folder.pins_wait(shelf.queue.pin_count());
        }
        self.metrics.queue_bytes[QueueBytesKind::Now]
            .set(self.budget.used.load(Ordering::Relaxed) as i64);
    }

    /// Writes the queued pages within the configured time, and ends the writers. Blocks.
    pub(crate) fn shutdown(&self) {
        let end = std::time::Instant::now() + self.flush_max;
        for shelf in &self.shelves {
            shelf.queue.flush_jobs(end.saturating_duration_since(std::time::Instant::now()));
            shelf.queue.close();
        }
        for shelf in &self.shelves {
            let Some(thread) = shelf.thread.lock().take() else { continue };
            // A writer that hangs in its device is left behind: the process ends.
            while !thread.is_finished() && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }

    /// Ends the writers without writing what is queued.
    #[cfg(test)]
    pub(crate) fn abandon(&self) {
        for shelf in &self.shelves {
            shelf.queue.close();
            if let Some(thread) = shelf.thread.lock().take() {
                thread.join().expect("a writer does not panic");
            }
        }
    }

    /// Waits until everything that was offered is written.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        for shelf in &self.shelves {
            shelf.queue.flush_jobs(Duration::from_secs(60));
        }
    }

    fn is_worth_a_place(&self, key: PageKey, offer: &DiskOffer<'_>) -> bool {
        if offer.returned || offer.uses >= USES_MIN {
            return true;
        }
        if offer.uses > 0 {
            // This use is that of the reader that the page was filled for.
            return false;
        }
        let key = [key.0 as u64, (key.0 >> 64) as u64];
        let mut ghosts = self.ghosts.lock();
        let returned = ghosts.recall_page(key);
        if !returned {
            ghosts.remember_page(key);
        }
        returned
    }

    /// Chooses a page's folder among those that are up, in proportion to their capacity.
    fn shelf_for(&self, key: PageKey) -> Option<&DiskTierFolder> {
        let up: Vec<(&DiskTierFolder, u64)> = self
            .shelves
            .iter()
            .filter(|shelf| shelf.folder.is_up())
            .map(|shelf| (shelf, shelf.folder.capacity_bytes() >> 20))
            .collect();
        let sum: u64 = up.iter().map(|(_, weight)| weight).sum();
        let mut at = (key.0 >> 32) as u64 % sum.max(1);
        for (shelf, weight) in &up {
            if at < *weight {
                return Some(shelf);
            }
            at -= weight;
        }
        up.first().map(|(shelf, _)| *shelf)
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        for shelf in &self.shelves {
            shelf.queue.close();
        }
    }
}

#[cfg(test)]
mod simulated_medium;
#[cfg(test)]
mod tests;
