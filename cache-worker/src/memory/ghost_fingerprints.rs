//! Pages that were given up lately, by a 32-bit fingerprint: one that comes back was worth keeping.
//!
//! A table that forgets by being overwritten: 4 bytes a page, no lists. A false memory costs a page
//! of one-time data some time in the longer list, nothing else.

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

    /// Whether the page was remembered; forgets it.
    pub(crate) fn recall_page(&mut self, key: [u64; 2]) -> bool {
        let (slot, fingerprint) = self.fingerprint_slot(key);
        let known = self.fingerprints[slot] == fingerprint;
        if known {
            self.fingerprints[slot] = 0;
        }
        known
    }

    fn fingerprint_slot(&self, key: [u64; 2]) -> (usize, u32) {
        // Never 0, which means empty. The slot takes other bits than the fingerprint.
        ((key[0] >> 32) as usize % self.fingerprints.len(), key[1] as u32 | 1)
    }
}
