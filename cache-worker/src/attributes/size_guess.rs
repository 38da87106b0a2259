//! Guesses whether an object fits one block before anybody has said its length: objects of one
//! folder are mostly alike. A wrong guess costs time, and never a byte: what is asked for is held
//! against what the answer says.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};

use verbs3_protocol::ObjectKey;

/// Folders that are kept apart. Beyond it some share their guess.
const FOLDERS: usize = 4096;
/// Objects in a row that have fitted before the next one is guessed to fit. A wrong guess costs a
/// connection to the UFS, so one in nine is the most.
const STREAK_MIN: u8 = 8;

/// How the last objects of each folder were.
pub(crate) struct ObjectSizeGuess {
    /// How many in a row have fitted, up to [`STREAK_MIN`].
    streaks: Vec<AtomicU8>,
}

impl ObjectSizeGuess {
    pub(crate) fn new() -> Self {
        Self { streaks: (0..FOLDERS).map(|_| AtomicU8::new(0)).collect() }
    }

    /// Returns whether the object probably fits one block.
    pub(crate) fn expects_fit(&self, object: &ObjectKey) -> bool {
        self.streak_of(object).load(Ordering::Relaxed) >= STREAK_MIN
    }

    /// Notes whether an object has fitted one block.
    pub(crate) fn note_fit(&self, object: &ObjectKey, fits: bool) {
        let streak = self.streak_of(object);
        let next = if fits { streak.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        streak.store(next.min(STREAK_MIN), Ordering::Relaxed);
    }

    fn streak_of(&self, object: &ObjectKey) -> &AtomicU8 {
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

    #[test]
    fn a_folder_is_trusted_after_eight_in_a_row_and_no_longer_after_one_that_is_large() {
        let object = |key: &str| ObjectKey { volume: ObjectVolume::new("u", "b"), key: key.into() };
        let sizes = ObjectSizeGuess::new();
        for number in 0..STREAK_MIN {
            assert!(!sizes.expects_fit(&object("a/b/new")), "{number}");
            sizes.note_fit(&object(&format!("a/b/{number}")), true);
        }
        assert!(sizes.expects_fit(&object("a/b/new")));
        assert!(!sizes.expects_fit(&object("a/new")) && !sizes.expects_fit(&object("new")));
        sizes.note_fit(&object("a/b/large"), false);
        assert!(!sizes.expects_fit(&object("a/b/new")));
    }
}
