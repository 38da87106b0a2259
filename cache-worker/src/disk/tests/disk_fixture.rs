//! A folder, its pages, and what each must hold.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crc_fast::{CrcAlgorithm, checksum};
use parking_lot::{Condvar, Mutex};

use super::super::disk_headers::{FolderId, PageHeader};
use super::super::folder_index::FolderIndex;
use super::super::folder_store::{FolderPageStore, PageWriteOutcome};
use super::super::metrics::{CorruptPart, DiskMetrics, FolderMetrics, MediumOperation};
use super::super::segment_medium::{MediumErrorKind, SegmentMedium};
use super::super::volume_quota::VolumeQuotaRule;
use crate::digest::PageKey;
use crate::tenants::{TenantAccount, TenantAccounts};

pub(super) const SEGMENT: u64 = 256 << 10;
pub(super) const FOLDER: FolderId = FolderId(99);

pub(super) struct Options {
    pub(super) capacity: u64,
    pub(super) segment: u64,
    pub(super) age_max: Option<Duration>,
    pub(super) pages_max: u64,
    pub(super) rules: HashMap<u64, VolumeQuotaRule>,
    pub(super) tenants: Arc<TenantAccounts>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity: 2 << 20,
            segment: SEGMENT,
            age_max: None,
            pages_max: u64::MAX,
            rules: HashMap::new(),
            tenants: Arc::default(),
        }
    }
}

pub(super) struct DiskFixture {
    pub(super) folder: FolderPageStore,
    pub(super) metrics: DiskMetrics,
}

impl DiskFixture {
    pub(super) fn open(medium: impl SegmentMedium + 'static, options: &Options) -> Self {
        let metrics = DiskMetrics::default();
        let default_rule = VolumeQuotaRule { bytes_max: None, age_max: options.age_max };
        let mut index = FolderIndex::new(
            options.capacity,
            options.segment,
            default_rule,
            options.rules.clone(),
        );
        index.pages_max = options.pages_max;
        index.tenants = options.tenants.clone();
        let path = Path::new("/simulated");
        let folder =
            FolderPageStore::open_medium(path, FOLDER, Box::new(medium), index, &metrics).unwrap();
        Self { folder, metrics }
    }

    pub(super) fn write(&self, page: &Page, now_s: u32) -> PageWriteOutcome {
        self.write_as(page, 1, now_s)
    }

    pub(super) fn write_as(&self, page: &Page, volume: u64, now_s: u32) -> PageWriteOutcome {
        self.folder.write(
            PageHeader { volume, ..page.header() },
            &page.content(),
            &|_| false,
            now_s,
        )
    }

    /// Whether the page is there. Panics if it is, and is wrong.
    pub(super) fn serves(&self, page: &Page, now_s: u32) -> bool {
        let mut bytes = vec![0xee; page.length as usize];
        let Some(found) = self.folder.read(page.key(), &mut bytes, now_s, TenantAccount::NOBODY)
        else {
            return false;
        };
        assert!(bytes == page.content(), "page {} holds other bytes", page.number);
        assert_eq!(found, page.header().checksum, "page {} has another checksum", page.number);
        true
    }

    pub(super) fn corrupt(&self) -> u64 {
        self.values().corrupt[CorruptPart::Page].get()
    }

    pub(super) fn errors(&self, op: MediumOperation, kind: MediumErrorKind) -> u64 {
        self.values().errors[(op, kind)].get()
    }

    fn values(&self) -> FolderMetrics {
        self.metrics.folders.select_table("/simulated")
    }
}

/// A page whose content follows from its number. Pages of one length differ in every 8 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    pub(super) number: u64,
    pub(super) length: u32,
}

impl Page {
    pub(super) fn of(number: u64) -> Self {
        // Few lengths, so that slots are used again by pages of exactly the same one.
        let length = [4096, 4096, 1, 700, 8192, 20_000][(number % 6) as usize];
        Self { number, length }
    }

    pub(super) fn content(&self) -> Vec<u8> {
        let word = |at: u64| {
            (at + 1).wrapping_mul(self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes()
        };
        let words = u64::from(self.length).div_ceil(8);
        let mut content: Vec<u8> = (0..words).flat_map(word).collect();
        content.truncate(self.length as usize);
        content
    }

    fn version(&self) -> u128 {
        u128::from(self.number / 4 + 1).wrapping_mul(0x1234_5678_9abc_def1_0fed_cba9_8765_4321)
    }

    pub(super) fn header(&self) -> PageHeader {
        PageHeader {
            version: self.version(),
            object: self.number / 4,
            volume: 1,
            block: (self.number % 2) as u32,
            page: (self.number / 2 % 2) as u16,
            length: self.length,
            checksum: checksum(CrcAlgorithm::Crc64Nvme, &self.content()),
            sequence: 0,
            written_s: 0,
            pinned_until_s: 0,
            tenant: 0,
        }
    }

    pub(super) fn key(&self) -> PageKey {
        self.header().page_key()
    }
}

/// A medium whose process is killed at a given call that changes something: that one and all after
/// it are not made.
pub(super) struct Dying<M> {
    medium: M,
    left: std::sync::atomic::AtomicI64,
}

impl<M> Dying<M> {
    pub(super) fn new(medium: M, after: u64) -> Self {
        Self { medium, left: std::sync::atomic::AtomicI64::new(after as i64) }
    }

    fn is_dead(&self) -> bool {
        self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) <= 0
    }
}

impl<M: SegmentMedium> SegmentMedium for Dying<M> {
    fn list_segments(&self) -> std::io::Result<Vec<(u32, u64)>> {
        self.medium.list_segments()
    }

    fn create_segment(&self, segment: u32, bytes: u64) -> std::io::Result<()> {
        if self.is_dead() { Ok(()) } else { self.medium.create_segment(segment, bytes) }
    }

    fn remove_segment(&self, segment: u32) -> std::io::Result<()> {
        if self.is_dead() { Ok(()) } else { self.medium.remove_segment(segment) }
    }

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.medium.read(segment, at, into)
    }

    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        if self.is_dead() { Ok(()) } else { self.medium.write(segment, at, bytes) }
    }
}

/// A medium whose writes wait while its gate is shut.
#[derive(Clone)]
pub(super) struct Gated<M> {
    medium: M,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    shut: bool,
    waiting: usize,
}

impl<M> Gated<M> {
    pub(super) fn new(medium: M) -> Self {
        Self { medium, gate: Arc::default() }
    }

    pub(super) fn shut(&self) {
        self.gate.0.lock().shut = true;
    }

    pub(super) fn open(&self) {
        self.gate.0.lock().shut = false;
        self.gate.1.notify_all();
    }

    /// Whether so many writes wait within this time.
    pub(super) fn has_waiting(&self, writes: usize, within: Duration) -> bool {
        let mut gate = self.gate.0.lock();
        !self.gate.1.wait_while_for(&mut gate, |gate| gate.waiting < writes, within).timed_out()
    }
}

impl<M: SegmentMedium> SegmentMedium for Gated<M> {
    fn list_segments(&self) -> std::io::Result<Vec<(u32, u64)>> {
        self.medium.list_segments()
    }

    fn create_segment(&self, segment: u32, bytes: u64) -> std::io::Result<()> {
        self.medium.create_segment(segment, bytes)
    }

    fn remove_segment(&self, segment: u32) -> std::io::Result<()> {
        self.medium.remove_segment(segment)
    }

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.medium.read(segment, at, into)
    }

    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        {
            let mut gate = self.gate.0.lock();
            gate.waiting += 1;
            self.gate.1.notify_all();
            self.gate.1.wait_while(&mut gate, |gate| gate.shut);
            gate.waiting -= 1;
        }
        self.medium.write(segment, at, bytes)
    }
}
