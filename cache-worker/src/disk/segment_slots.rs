//! The slots of one segment file, and what is known of the page in each.

use verbs3_protocol::BlockIndex;

use super::segment_layout::SegmentLayout;
use crate::digest::{PageKey, VersionDigest};
use crate::tenants::{AccountHoldings, TenantAccount};

/// A slot and its page. 64 bytes.
pub(super) struct DiskSlotEntry {
    /// Two halves, because a `u128` would align the entry to 16 bytes.
    pub(super) version: [u64; 2],
    pub(super) object: u64,
    pub(super) checksum: u64,
    pub(super) block: u32,
    /// 0: the slot is free.
    pub(super) length: u32,
    /// The low half of the sequence number. It tells the present page of the slot from earlier
    /// ones.
    pub(super) stamp: u32,
    pub(super) written_s: u32,
    pub(super) used_s: u32,
    pub(super) pinned_until_s: u32,
    pub(super) page: u16,
    pub(super) volume: u16,
    /// Uses since it was written or last passed over, up to 3.
    pub(super) uses: u8,
    /// The slot is being written: its page is neither found nor evicted.
    pub(super) writing: bool,
    /// For whom it counts.
    pub(super) account: TenantAccount,
}

pub(super) const USES_MAX: u8 = 3;

impl DiskSlotEntry {
    /// Returns the entry of a slot without a page.
    pub(super) fn new_free() -> Self {
        Self {
            version: [0; 2],
            object: 0,
            checksum: 0,
            block: 0,
            length: 0,
            stamp: 0,
            written_s: 0,
            used_s: 0,
            pinned_until_s: 0,
            page: 0,
            volume: 0,
            uses: 0,
            writing: false,
            account: TenantAccount::NOBODY,
        }
    }

    /// Returns the digest of the page's version, as it is stored.
    pub(super) fn version(&self) -> u128 {
        u128::from(self.version[0]) | u128::from(self.version[1]) << 64
    }

    pub(super) fn page_key(&self) -> PageKey {
        VersionDigest::from_stored(self.version()).page_key(BlockIndex(self.block), self.page)
    }

    /// Returns the key in the table of objects; `None`: the page is of a later block.
    pub(super) fn object_hash(&self) -> Option<u64> {
        (self.block == 0).then(|| object_hash(self.object, self.page))
    }

    pub(super) fn is_live(&self) -> bool {
        self.length > 0 && !self.writing
    }
}

pub(super) fn object_hash(object: u64, page: u16) -> u64 {
    object ^ u64::from(page).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(super) fn page_hash(key: PageKey) -> u64 {
    key.0 as u64
}

/// A file and its slots.
pub(super) struct IndexedSegment {
    pub(super) bytes: u64,
    /// `None`: the segment belongs to no width now.
    pub(super) cut: Option<SegmentSlotTable>,
}

pub(super) struct SegmentSlotTable {
    pub(super) layout: SegmentLayout,
    pub(super) era: u32,
    /// Slots up to the last one that was ever used.
    pub(super) entries: Vec<DiskSlotEntry>,
    pub(super) free: Vec<u32>,
    /// Whether the segment is in its width's list of segments with room.
    pub(super) open: bool,
    /// When one of the pages was last used or written.
    pub(super) touched_s: u32,
    pub(super) holders: AccountHoldings,
}

impl SegmentSlotTable {
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.entries.len() < self.layout.slots as usize
    }
}

/// Makes room for one more entry by growing an eighth. A vector that doubles would hold twice the
/// memory.
pub(super) fn grow_entries(entries: &mut Vec<DiskSlotEntry>) {
    if entries.len() == entries.capacity() {
        entries.reserve_exact(entries.len() / 8 + 64);
    }
}
