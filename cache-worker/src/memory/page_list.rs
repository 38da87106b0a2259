//! The two lists of a shard, linked through its entries: newest at one end, oldest at the other.

use super::slab::{NONE, PageEntrySlab};

pub(super) struct ShardPageList {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

impl Default for ShardPageList {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, bytes: 0 }
    }
}

impl ShardPageList {
    pub(super) fn oldest_entry(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, slab: &mut PageEntrySlab, slot: u32) {
        let entry = slab.get_mut(slot);
        (entry.newer, entry.older) = (NONE, self.newest);
        self.bytes += u64::from(entry.bytes);
        match self.newest {
            NONE => self.oldest = slot,
            newest => slab.get_mut(newest).newer = slot,
        }
        self.newest = slot;
    }

    pub(super) fn unlink_entry(&mut self, slab: &mut PageEntrySlab, slot: u32) {
        let entry = slab.get_mut(slot);
        let (newer, older) = (entry.newer, entry.older);
        self.bytes -= u64::from(entry.bytes);
        match newer {
            NONE => self.newest = older,
            newer => slab.get_mut(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => slab.get_mut(older).newer = newer,
        }
    }
}
