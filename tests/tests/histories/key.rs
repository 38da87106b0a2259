//! One key's history: one writer, so that versions are ordered, and what every read of it must see.

use std::sync::atomic::{AtomicU64, Ordering};

/// Less than a page, a page, a page and a byte, several pages, several blocks. The first four are
/// small objects; the longest of them is the longest that gateways hold.
const LENGTHS: [usize; 7] =
    [1, 5000, 30_000, 64 << 10, (64 << 10) + 1, 150_000, (1 << 20) + 70_000];

/// Every fifth version is a deletion, and so is what was before the first.
pub fn is_deletion(version: u64) -> bool {
    version.is_multiple_of(5)
}

pub fn length(key: &str, version: u64) -> usize {
    LENGTHS[(key.len() as u64 * 3 + version) as usize % LENGTHS.len()]
}

/// What is known of one key. Version 0 means "never written".
pub struct Key {
    pub name: String,
    begun: AtomicU64,
    /// Every read that starts now sees this version or a later one.
    promised: AtomicU64,
}

/// What a read may have seen.
pub enum Seen {
    Version(u64),
    /// No such object.
    Nothing,
}

impl Key {
    pub fn new(name: String) -> Self {
        Self { name, begun: AtomicU64::new(0), promised: AtomicU64::new(0) }
    }

    /// The next version, which may be seen from now on.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn promise(&self, version: u64) {
        self.promised.fetch_max(version, Ordering::SeqCst);
    }

    pub fn promised(&self) -> u64 {
        self.promised.load(Ordering::SeqCst)
    }

    /// Panics unless a read that began when `promised` was promised, and ends now, may have seen
    /// that.
    pub fn check(&self, promised: u64, seen: &Seen, how: &str) {
        let begun = self.begun.load(Ordering::SeqCst);
        let name = &self.name;
        match *seen {
            Seen::Version(version) => {
                assert!(
                    version >= promised,
                    "{name}: STALE: version {version} after {promised} was acknowledged ({how})"
                );
                assert!(
                    version <= begun && !is_deletion(version),
                    "{name}: version {version} of {begun} never was ({how})"
                );
            }
            Seen::Nothing => {
                let may_be_absent = (promised..=begun).any(is_deletion);
                assert!(
                    may_be_absent,
                    "{name}: STALE: absent, though {promised} to {begun} are there ({how})"
                );
            }
        }
    }
}
