//! The two lists of a shard, threaded through its entries: newest at one end, oldest at the other.

use super::slab::{NONE, Slab};

pub(super) struct List {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, bytes: 0 }
    }
}

impl List {
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, slab: &mut Slab, slot: u32) {
        let entry = slab.at(slot);
        (entry.newer, entry.older) = (NONE, self.newest);
        self.bytes += u64::from(entry.bytes);
        match self.newest {
            NONE => self.oldest = slot,
            newest => slab.at(newest).newer = slot,
        }
        self.newest = slot;
    }

    pub(super) fn unlink(&mut self, slab: &mut Slab, slot: u32) {
        let entry = slab.at(slot);
        let (newer, older) = (entry.newer, entry.older);
        self.bytes -= u64::from(entry.bytes);
        match newer {
            NONE => self.newest = older,
            newer => slab.at(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => slab.at(older).newer = newer,
        }
    }
}
