//! Guesses whether an object fits one block, or one request, before anybody has said its length:
//! objects of one folder are mostly alike. A wrong guess costs time, and never a byte: what is
//! asked for is checked against what the answer says.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};

use verbs3_protocol::ObjectKey;

/// Folders that are kept apart. Beyond it some share their guess.
const FOLDERS: usize = 4096;
/// Objects in a row that have fitted before the next one is guessed to fit. A wrong guess costs a
/// connection to the UFS, so one in nine is the most.
const STREAK_MIN: u8 = 8;

/// Marks a folder whose last large object is less than [`STREAK_MIN`] objects ago.
const HAS_LARGER: u8 = 0x80;

/// How the last objects of each folder were.
pub(crate) struct ObjectSizeGuess {
    /// The lengths that objects may fit, ascending: a block's, and the longest request's.
    limits: [u64; 2],
    /// How many in a row have fitted each limit, up to [`STREAK_MIN`], and [`HAS_LARGER`].
    streaks: Vec<[AtomicU8; 2]>,
}

impl ObjectSizeGuess {
    pub(crate) fn new(limits: [u64; 2]) -> Self {
        Self { limits, streaks: (0..FOLDERS).map(|_| Default::default()).collect() }
    }

    /// Returns the smallest limit that the object probably fits.
    pub(crate) fn expected_limit(&self, object: &ObjectKey) -> Option<u64> {
        let limits = self.limits.iter().zip(self.streaks_of(object));
        let fits = |streak: &AtomicU8| streak.load(Ordering::Relaxed) == STREAK_MIN;
        limits.filter(|(_, streak)| fits(streak)).map(|(limit, _)| *limit).next()
    }

    /// Returns the largest limit that the object may fit, for all that is known of its folder.
    pub(crate) fn possible_limit(&self, object: &ObjectKey) -> u64 {
        let [_, streak] = self.streaks_of(object);
        let [block_bytes, request_bytes] = self.limits;
        match streak.load(Ordering::Relaxed) & HAS_LARGER {
            0 => request_bytes,
            _ => block_bytes,
        }
    }

    /// Notes the length of an object.
    pub(crate) fn note_length(&self, object: &ObjectKey, bytes: u64) {
        for (limit, streak) in self.limits.iter().zip(self.streaks_of(object)) {
            let before = streak.load(Ordering::Relaxed);
            let next = match before & !HAS_LARGER {
                _ if bytes > *limit => HAS_LARGER,
                fitted if fitted + 1 >= STREAK_MIN => STREAK_MIN,
                _ => before + 1,
            };
            streak.store(next, Ordering::Relaxed);
        }
    }

    fn streaks_of(&self, object: &ObjectKey) -> &[AtomicU8; 2] {
        let folder = object.key.rfind('/').map_or("", |end| &object.key[..end]);
        let mut hasher = DefaultHasher::new();
        (&object.volume, folder).hash(&mut hasher);
        &self.streaks[hasher.finish() as usize % FOLDERS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs3_protocol::ObjectVolume;

    fn object(key: &str) -> ObjectKey {
        ObjectKey { volume: ObjectVolume::new("u", "b"), key: key.into() }
    }

    #[test]
    fn eight_small_objects_make_a_folder_trusted_until_a_large_one() {
        let sizes = ObjectSizeGuess::new([10, 100]);
        for number in 0..STREAK_MIN {
            assert_eq!(sizes.expected_limit(&object("a/b/new")), None, "{number}");
            sizes.note_length(&object(&format!("a/b/{number}")), 10);
        }
        assert_eq!(sizes.expected_limit(&object("a/b/new")), Some(10));
        assert_eq!(sizes.expected_limit(&object("a/new")), None);
        assert_eq!(sizes.expected_limit(&object("new")), None);
        sizes.note_length(&object("a/b/large"), 101);
        assert_eq!(sizes.expected_limit(&object("a/b/new")), None);
    }

    #[test]
    fn a_large_object_limits_its_folder_until_eight_small_ones() {
        let sizes = ObjectSizeGuess::new([10, 100]);
        assert_eq!(sizes.possible_limit(&object("a/new")), 100);
        sizes.note_length(&object("a/b"), 101);
        for _ in 0..STREAK_MIN {
            assert_eq!(sizes.possible_limit(&object("a/new")), 10);
            sizes.note_length(&object("a/b"), 99);
        }
        assert_eq!(sizes.possible_limit(&object("a/new")), 100);
        assert_eq!(sizes.expected_limit(&object("a/new")), Some(100));
        sizes.note_length(&object("a/b"), 99);
        assert_eq!(sizes.expected_limit(&object("a/new")), Some(100));
    }

    #[test]
    fn objects_too_large_for_a_block_may_still_fit_a_request() {
        let sizes = ObjectSizeGuess::new([10, 100]);
        for number in 0..u64::from(STREAK_MIN) {
            sizes.note_length(&object("a/b"), 4 + 2 * number);
        }
        assert_eq!(sizes.expected_limit(&object("a/new")), Some(100));
        for _ in 0..STREAK_MIN {
            sizes.note_length(&object("a/b"), 3);
        }
        assert_eq!(sizes.expected_limit(&object("a/new")), Some(10));
    }
}
