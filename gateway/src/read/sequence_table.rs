//! Detects readers that go through an object from front to back in many requests, over any
//! connections.
//!
//! A bounded table with one entry per hash of an object version. Two versions that share an entry
//! only cost each other readahead.

use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use verbs3_protocol::{ContentVersion, ObjectKey};

#[derive(Clone, Copy, Default)]
struct SequenceEntry {
    tag: u64,
    /// End of the furthest read so far.
    next: u64,
    in_order: u8,
}

/// The object versions that are read sequentially.
pub(super) struct SequenceTable {
    entries: Box<[Mutex<SequenceEntry>]>,
    hasher: RandomState,
    slack_bytes_max: u64,
}

/// Reads in order before readahead begins.
const IN_ORDER_MIN: u8 = 1;
/// How many reads of its length a read may be before or behind the expected byte: connections that
/// share a sequence overtake each other. Each read more takes more random reads for a sequence, and
/// each of these is read ahead in vain.
const OVERTAKEN_READS: u64 = 8;

impl SequenceTable {
    /// Makes a table. `slack_bytes_max`: how far from the expected byte a read may begin at most.
    pub(super) fn new(entries: usize, slack_bytes_max: u64) -> Self {
        let entries = (0..entries.max(1)).map(|_| Mutex::default()).collect();
        Self { entries, hasher: RandomState::new(), slack_bytes_max }
    }

    /// Notes a read. Returns `true` if it goes on where others stopped.
    pub(super) fn note_read(
        &self,
        object: &ObjectKey,
        version: &ContentVersion,
        range: &std::ops::Range<u64>,
    ) -> bool {
        let tag = self.hasher.hash_one((object, &version.etag));
        let mut entry = self.entries[(tag % self.entries.len() as u64) as usize].lock();
        if entry.tag != tag {
            *entry = SequenceEntry { tag, next: range.end, in_order: 0 };
            return false;
        }
        let read_bytes = range.end - range.start;
        let slack_bytes = self.slack_bytes_max.min(OVERTAKEN_READS.saturating_mul(read_bytes));
        if entry.next.abs_diff(range.start) > slack_bytes {
            (entry.next, entry.in_order) = (range.end, 0);
            return false;
        }
        entry.next = entry.next.max(range.end);
        entry.in_order = entry.in_order.saturating_add(1);
        entry.in_order >= IN_ORDER_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs3_protocol::ObjectVolume;

    fn object(key: &str) -> ObjectKey {
        ObjectKey { volume: ObjectVolume::new("a", "b"), key: key.into() }
    }

    fn version(etag: &str) -> ContentVersion {
        ContentVersion { etag: etag.into(), bytes: 1 << 30, version_id: None }
    }

    #[test]
    fn the_second_read_in_order_is_known_as_such() {
        let sequences = SequenceTable::new(8, 100);
        let note = |range| sequences.note_read(&object("k"), &version("\"e\""), &range);
        assert!(!note(0..1000));
        assert!(note(1000..2000));
        assert!(note(2050..3000));
        assert!(note(2950..3050));
        assert!(!note(50_000..51_000));
        assert!(note(51_000..52_000));
    }

    #[test]
    fn small_reads_far_from_each_other_are_no_sequence() {
        let sequences = SequenceTable::new(8, 4 << 20);
        let note = |start: u64, bytes: u64| {
            sequences.note_read(&object("k"), &version("\"e\""), &(start..start + bytes))
        };
        assert!(!note(0, 64 << 10));
        assert!(!note(1 << 20, 64 << 10), "within the most, and 15 reads away");
        assert!(note((1 << 20) + (320 << 10), 64 << 10), "others are on their way");
        assert!(note(4 << 20, 1 << 20), "a longer one may have overtaken more");
        assert!(!note(20 << 20, 1 << 20));
    }

    #[test]
    fn another_version_begins_anew() {
        let sequences = SequenceTable::new(1, 100);
        assert!(!sequences.note_read(&object("k"), &version("\"e\""), &(0..1000)));
        assert!(!sequences.note_read(&object("k"), &version("\"f\""), &(1000..2000)));
    }
}
