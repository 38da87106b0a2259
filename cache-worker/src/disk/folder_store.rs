//! One folder: writes pages into slots, reads them back, and tracks whether its medium is usable.
//!
//! One thread writes (that of its `write_queue`); any thread reads. A write clears the slot's old
//! header, then writes the bytes, the new header, and the index, in this order. The medium may lose
//! or tear any of them, so every read verifies the checksum.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crc_fast::{CrcAlgorithm, checksum};
use parking_lot::Mutex;
use prometheus::IntCounter;
use verbs3_metrics::{MetricFamily, MetricLabel};

use super::disk_headers::{FolderId, HEADER_BYTES, HeaderLocation, PageHeader, SegmentHeader};
use super::folder_health::{FolderHealth, FolderHealthChange};
use super::folder_index::{DiskPageLocation, FolderIndex, FolderUsage};
use super::index_rebuild::rebuild_index;
use super::metrics::{
    CorruptPart, DiskEvictionReason, DiskMetrics, FolderMetrics, MediumOperation,
};
use super::segment_layout::SegmentLayout;
use super::segment_medium::{MediumErrorKind, SegmentMedium};
use super::slot_allocation::{DiskSlotRefusal, ReservedSlot, SlotAllocationStep};
use super::slot_eviction::EvictionContext;
use super::slot_table::DiskSlot;
use crate::digest::PageKey;
use crate::memory::PageHeat;
use crate::tenants::TenantAccount;

pub(super) struct FolderPageStore {
    path: PathBuf,
    id: FolderId,
    medium: Box<dyn SegmentMedium>,
    index: Mutex<FolderIndex>,
    health: Mutex<FolderHealth>,
    began: Instant,
    sequence: AtomicU64,
    /// Held while a page's header is rewritten, or is cleared with the page, so that neither undoes
    /// the other.
    rewriting: Mutex<()>,
    /// When a corrupt page was last logged, in seconds from the start; 0: never.
    corrupt_told_s: AtomicU64,
    metrics: FolderMetrics,
    evictions: MetricFamily<DiskEvictionReason, IntCounter>,
}

/// Seconds between two log lines about corrupt pages.
const CORRUPT_TOLD_EVERY_S: u64 = 60;

/// The outcome of writing a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageWriteOutcome {
    Done,
    Refused(DiskSlotRefusal),
    /// The failure was recorded and counted.
    Failed,
    /// The folder rests.
    Resting,
}

impl FolderPageStore {
    /// Reads the index from the medium. Fails if the medium can't even be listed.
    pub(super) fn open_medium(
        path: &Path,
        id: FolderId,
        medium: Box<dyn SegmentMedium>,
        mut index: FolderIndex,
        all: &DiskMetrics,
    ) -> io::Result<Self> {
        let began = Instant::now();
        let rebuilt = rebuild_index(&*medium, id, &mut index)?;
        let took = began.elapsed();
        let metrics = all.folders.select_table(&path.display().to_string());
        metrics.corrupt[CorruptPart::Header].inc_by(rebuilt.damaged);
        for error in &rebuilt.errors {
            let kind = MediumErrorKind::from_io_error(error);
            metrics.errors[(MediumOperation::List, kind)].inc();
            tracing::warn!(
                folder = %path.display(), %error,
                "a segment of the disk tier can't be read, and is left out"
            );
        }
        metrics.rebuild_ms.set(took.as_millis() as i64);
        metrics.folder_up.set(1);
        let held = index.held;
        tracing::info!(
            folder = %path.display(), pages = held.pages, bytes = held.bytes, damaged = rebuilt.damaged,
            segments_removed = rebuilt.removed, ?took, "disk tier: folder read"
        );
        let sequence = AtomicU64::new(rebuilt.sequence + 1);
        let index = Mutex::new(index);
        Ok(Self {
            path: path.to_owned(),
            id,
            medium,
            index,
            health: Mutex::default(),
            began,
            sequence,
            rewriting: Mutex::default(),
            corrupt_told_s: AtomicU64::new(0),
            metrics,
            evictions: all.evictions.clone(),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.health.lock().is_up(self.began.elapsed())
    }

    /// Returns whether the page belongs to this folder, even if it can't be read now.
    pub(super) fn lists_page(&self, key: PageKey) -> bool {
        self.index.lock().find_page(key).is_some()
    }

    pub(super) fn holds_page(&self, key: PageKey, now_s: u32) -> bool {
        self.is_up() && self.index.lock().find_fresh(key, now_s).is_some()
    }

    /// Returns how hot a readable page is, and whether it is pinned.
    pub(super) fn page_heat(&self, key: PageKey, now_s: u32) -> Option<(PageHeat, bool)> {
        if !self.is_up() {
            return None;
        }
        self.index.lock().page_heat(key, now_s)
    }

    pub(super) fn knows_object_page(&self, object: u64, page: u16) -> bool {
        self.is_up() && self.index.lock().knows_object_page(object, page)
    }

    /// Returns whether a page of this length could be kept without evicting another.
    pub(super) fn has_room(&self, length: u32) -> bool {
        let may_grow = self.may_grow();
        self.index.lock().has_room(length, may_grow)
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.index.lock().capacity_bytes
    }

    /// Reads a page of exactly this length, and returns its checksum, which the bytes match. Counts
    /// as a use by that account.
    /// Returns `None` if the page is not here, or no longer.
    pub(super) fn read(
        &self,
        key: PageKey,
        into: &mut [u8],
        now_s: u32,
        user: TenantAccount,
    ) -> Option<u64> {
        if !self.is_up() {
            return None;
        }
        let found = self.index.lock().find_fresh(key, now_s)?;
        let began = Instant::now();
        if found.length as usize != into.len() {
            // The key matches but the length differs: this tier never wrote such a page.
            self.drop_corrupt_page(found);
            return None;
        }
        if let Err(error) = self.medium.read(found.place.segment, found.at, into) {
            self.record_failure(MediumOperation::Read, &error);
            self.index.lock().remove_if_still(found);
            return None;
        }
        if checksum(CrcAlgorithm::Crc64Nvme, into) != found.checksum {
            self.drop_corrupt_page(found);
            return None;
        }
        self.record_success();
        self.index.lock().touch_page(found.place, now_s, user);
        self.metrics.count_promotion(into.len(), began.elapsed());
        Some(found.checksum)
    }

    /// Writes a page. Must be called from one thread only.
    pub(super) fn write(
        &self,
        mut header: PageHeader,
        bytes: &[u8],
        resident: &dyn Fn(PageKey) -> bool,
        now_s: u32,
    ) -> PageWriteOutcome {
        if !self.is_up() {
            return PageWriteOutcome::Resting;
        }
        debug_assert_eq!(header.length as usize, bytes.len());
        let began = Instant::now();
        header.sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        header.written_s = now_s;
        let reserved = match self.place_for(&header, resident, now_s) {
            Ok(Ok(reserved)) => reserved,
            Ok(Err(refusal)) => return PageWriteOutcome::Refused(refusal),
            Err(()) => return PageWriteOutcome::Failed,
        };
        let written = self.write_slot(&header, bytes, reserved);
        let mut index = self.index.lock();
        if let Err(error) = written {
            index.free_slot(reserved.place);
            drop(index);
            self.record_failure(MediumOperation::Write, &error);
            return PageWriteOutcome::Failed;
        }
        index.commit_page(reserved.place, &header);
        drop(index);
        self.record_success();
        self.metrics.count_demotion(bytes.len(), began.elapsed());
        PageWriteOutcome::Done
    }

    /// Pins a page until then (seconds since 1970; 0 unpins it). Returns false if it is not here.
    /// `write_pin` makes the pin survive a restart.
    pub(super) fn pin_page(&self, key: PageKey, until_s: u32) -> bool {
        let mut index = self.index.lock();
        let Some(found) = index.find_page(key) else { return false };
        index.pin_page(found.place, until_s);
        true
    }

    /// Rewrites a pinned page's header. Must be called from the writing thread: nothing else
    /// reassigns the slot meanwhile. Returns false if the page is no longer here, or its header
    /// can't be written.
    pub(super) fn write_pin(&self, key: PageKey) -> bool {
        let _alone = self.rewriting.lock();
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let again = {
            let mut index = self.index.lock();
            index.find_page(key).and_then(|found| {
                let header = index.renew_header(found.place, sequence)?;
                let cut = index.cut_of(found.place.segment)?;
                Some((
                    found.place,
                    cut.layout.header_at(found.place.slot),
                    header.encode(self.header_location(found.place, cut.era)),
                ))
            })
        };
        let Some((place, at, bytes)) = again else { return false };
        let written = self.medium.write(place.segment, at, &bytes);
        if let Err(error) = &written {
            self.record_failure(MediumOperation::Write, error);
        }
        written.is_ok()
    }

    /// Drops a page that must not be served again. Returns false if the page is not here, or if
    /// this folder hangs or rests.
    pub(super) fn evict_page(&self, key: PageKey, within: Duration) -> bool {
        // The device may hang on a pin of another page. A caller whose page is in another folder
        // must not wait for it.
        if !self.lists_page(key) || !self.is_up() {
            return false;
        }
        let Some(_alone) = self.rewriting.try_lock_for(within) else {
            self.report_stall();
            return false;
        };
        let found = self.index.lock().find_page(key);
        found.is_some_and(|found| {
            self.clear_header(found);
            self.index.lock().remove_if_still(found)
        })
    }

    /// Drops expired pages and sets the gauges.
    pub(super) fn look_over(&self, now_s: u32, steps: usize) {
        let mut index = self.index.lock();
        let expired = index.sweep_expired(now_s, steps);
        let room = std::mem::take(&mut index.given_up);
        let (FolderUsage { pages, bytes, file_bytes, pinned_pages }, capacity) =
            (index.held, index.capacity_bytes);
        let (index_bytes, pages_max) = (index.index_bytes(), index.pages_max);
        drop(index);
        self.evictions[DiskEvictionReason::Age].inc_by(expired);
        self.evictions[DiskEvictionReason::Room].inc_by(room);
        self.metrics.pages.set(pages as i64);
        self.metrics.bytes.set(bytes as i64);
        self.metrics.file_bytes.set(file_bytes as i64);
        self.metrics.capacity_bytes.set(capacity as i64);
        self.metrics.pinned_pages.set(pinned_pages as i64);
        self.metrics.pages_max.set(pages_max as i64);
        self.metrics.index_bytes.set(index_bytes as i64);
        let health = self.health.lock();
        self.metrics.folder_up.set(i64::from(!health.is_suspect()));
        self.metrics.folder_full.set(i64::from(health.is_full()));
    }

    /// Sets the number of pins that are not written yet.
    pub(super) fn pins_wait(&self, pins: usize) {
        self.metrics.pins_waiting.set(pins as i64);
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> (FolderUsage, u64) {
        let index = self.index.lock();
        (index.held, index.index_bytes())
    }

    /// Records that a call on the medium did not return in time.
    pub(super) fn report_stall(&self) {
        let change = self.health.lock().record_stall(self.began.elapsed());
        if change.is_some() {
            self.metrics.errors[(MediumOperation::Any, MediumErrorKind::Stalled)].inc();
        }
        self.log_health_change(change, Some(&io::ErrorKind::TimedOut.into()));
    }

    /// Performs the necessary steps until there is a slot. An error was recorded already.
    fn place_for(
        &self,
        header: &PageHeader,
        resident: &dyn Fn(PageKey) -> bool,
        now_s: u32,
    ) -> Result<Result<ReservedSlot, DiskSlotRefusal>, ()> {
        loop {
            let judge = EvictionContext { now_s, may_grow: self.may_grow(), resident };
            let step = self.index.lock().reserve_slot(header, &judge);
            match step {
                SlotAllocationStep::Write(reserved) => return Ok(Ok(reserved)),
                SlotAllocationStep::Refused(refusal) => return Ok(Err(refusal)),
                SlotAllocationStep::Cut { segment, layout } => {
                    self.cut_segment(segment, layout, now_s)?
                }
                // If the disk is full, it refuses growth, and `may_grow` is false the next time.
                SlotAllocationStep::Grow { segment, bytes } => {
                    match self.medium.create_segment(segment, bytes) {
                        Ok(()) => {
                            self.index.lock().add_segment(segment, bytes);
                            let change = self.health.lock().record_growth();
                            self.log_health_change(change, None);
                        }
                        Err(error) => self.create_failed(&error)?,
                    }
                }
            }
        }
    }

    fn cut_segment(&self, segment: u32, layout: SegmentLayout, now_s: u32) -> Result<(), ()> {
        // A random era differs from those of all headers that are still in the table, known or not.
        let era = rand::random();
        let header = SegmentHeader { folder: self.id, segment, era, width: layout.width };
        match self.medium.write(segment, 0, &header.encode()) {
            Ok(()) => {
                self.index.lock().cut_segment(segment, layout, era, now_s);
                Ok(())
            }
            Err(error) => {
                self.record_failure(MediumOperation::Write, &error);
                Err(())
            }
        }
    }

    fn write_slot(
        &self,
        header: &PageHeader,
        bytes: &[u8],
        reserved: ReservedSlot,
    ) -> io::Result<()> {
        let ReservedSlot { place, layout, era, stale } = reserved;
        let header_at = layout.header_at(place.slot);
        if stale {
            self.medium.write(place.segment, header_at, &[0; HEADER_BYTES])?;
        }
        self.medium.write(place.segment, layout.data_at(place.slot), bytes)?;
        self.medium.write(
            place.segment,
            header_at,
            &header.encode(self.header_location(place, era)),
        )
    }

    fn header_location(&self, place: DiskSlot, era: u32) -> HeaderLocation {
        HeaderLocation { folder: self.id, segment: place.segment, era, slot: place.slot }
    }

    fn may_grow(&self) -> bool {
        self.health.lock().may_grow(self.began.elapsed())
    }

    /// Drops a page whose bytes are not what was written. If its slot was reassigned meanwhile, the
    /// mismatch is no error.
    fn drop_corrupt_page(&self, found: DiskPageLocation) {
        self.clear_header(found);
        if self.index.lock().remove_if_still(found) {
            self.metrics.corrupt[CorruptPart::Page].inc();
            let (folder, DiskSlot { segment, slot }) = (self.path.display(), found.place);
            let now_s = self.began.elapsed().as_secs() + 1;
            let told_s = self.corrupt_told_s.load(Ordering::Relaxed);
            // The counter has them all; a failing drive would fill the log.
            if told_s == 0 || now_s >= told_s + CORRUPT_TOLD_EVERY_S {
                self.corrupt_told_s.store(now_s, Ordering::Relaxed);
                tracing::warn!(
                    %folder, segment, slot,
                    "a page on disk does not match its checksum; it is dropped, and filled again"
                );
            } else {
                tracing::debug!(%folder, segment, slot, "another page does not match its checksum");
            }
        }
    }

    /// Clears a slot's header, so that a restart does not find the page again. Best effort: the
    /// page's checksum guards it. A page that takes the slot at this moment is lost only at the
    /// next restart.
    fn clear_header(&self, found: DiskPageLocation) {
        let at = {
            let index = self.index.lock();
            let Some(cut) = index.cut_of(found.place.segment) else { return };
            let entry = cut.entries.get(found.place.slot as usize);
            if !entry.is_some_and(|entry| entry.is_live() && entry.stamp == found.stamp) {
                return;
            }
            cut.layout.header_at(found.place.slot)
        };
        if let Err(error) = self.medium.write(found.place.segment, at, &[0; HEADER_BYTES]) {
            self.record_failure(MediumOperation::Write, &error);
        }
    }

    fn create_failed(&self, error: &io::Error) -> Result<(), ()> {
        let trouble = MediumErrorKind::from_io_error(error);
        self.metrics.errors[(MediumOperation::Create, trouble)].inc();
        let now = self.began.elapsed();
        let change = match trouble {
            MediumErrorKind::Full => self.health.lock().record_full(now),
            _ => self.health.lock().record_failure(now),
        };
        self.log_health_change(change, Some(error));
        if trouble == MediumErrorKind::Full { Ok(()) } else { Err(()) }
    }

    fn record_failure(&self, op: MediumOperation, error: &io::Error) {
        self.metrics.errors[(op, MediumErrorKind::from_io_error(error))].inc();
        let now = self.began.elapsed();
        let change = match MediumErrorKind::from_io_error(error) {
            // The stored pages can still be read; only new ones have no place.
            MediumErrorKind::Full => self.health.lock().record_full(now),
            _ => self.health.lock().record_failure(now),
        };
        tracing::debug!(
            folder = %self.path.display(), op = op.label_text(), %error,
            "disk tier: an operation failed"
        );
        self.log_health_change(change, Some(error));
    }

    fn record_success(&self) {
        let change = self.health.lock().record_success(self.began.elapsed());
        self.log_health_change(change, None);
    }

    /// Logs each change once.
    fn log_health_change(&self, change: Option<FolderHealthChange>, error: Option<&io::Error>) {
        let folder = self.path.display();
        let error = error.map(tracing::field::display);
        match change {
            None => {}
            Some(FolderHealthChange::Rests(rest)) => {
                self.metrics.folder_up.set(0);
                let rest: Duration = rest;
                tracing::warn!(%folder, error, ?rest, "a folder of the disk tier failed and rests");
            }
            Some(FolderHealthChange::Returned) => {
                self.metrics.folder_up.set(1);
                tracing::info!(%folder, "a folder of the disk tier works again");
            }
            Some(FolderHealthChange::Full) => {
                self.metrics.folder_full.set(1);
                tracing::warn!(
                    %folder, error,
                    "the disk is full; the disk tier goes on with the space that it has"
                );
            }
            Some(FolderHealthChange::HasSpace) => {
                self.metrics.folder_full.set(0);
                tracing::info!(%folder, "the disk has space again");
            }
        }
    }
}
