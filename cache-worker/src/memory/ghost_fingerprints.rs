//! Recently evicted pages, by a 32-bit fingerprint: a page that comes back was worth keeping.
//!
//! A table that forgets by being overwritten: 4 bytes a page, no lists. A false match only keeps a
//! page of one-time data in the longer list for a while.

pub(crate) struct GhostFingerprints {
    fingerprints: Vec<u32>,
}

impl GhostFingerprints {
    pub(crate) fn new(count: usize) -> Self {
        Self { fingerprints: vec![0; count.max(64)] }
    }

    pub(crate) fn remember_page(&mut self, key: [u64; 2]) {
        let (slot, fingerprint) = self.fingerprint_slot(key);
        self.fingerprints[slot] = fingerprint;
    }

    /// Returns whether the page was remembered, and forgets it.
    pub(crate) fn recall_page(&mut self, key: [u64; 2]) -> bool {
        let (slot, fingerprint) = self.fingerprint_slot(key);
        let known = self.fingerprints[slot] == fingerprint;
        if known {
            self.fingerprints[slot] = 0;
        }
        known
    }

    fn fingerprint_slot(&self, key: [u64; 2]) -> (usize, u32) {
        // A fingerprint is never 0, which means empty. The slot uses other bits than the
        // fingerprint.
        ((key[0] >> 32) as usize % self.fingerprints.len(), key[1] as u32 | 1)
    }
}
