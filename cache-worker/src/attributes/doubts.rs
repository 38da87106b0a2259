//! Keys with a write that was lost sight of, after the time in which reads ask the UFS: a store may
//! complete it later yet. What is learnt of such a key is believed for a short time only, also
//! where attributes are believed for ever. When the doubt is over, what was learnt in its shadow is
//! void.
//!
//! Not handed over with the map, and lost with the process: a home that knows nothing of a write
//! can't doubt it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use verbs3_protocol::KeyHash;

use crate::clock::Moment;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DoubtOptions {
    /// How long after its uncertain time a write may still complete; zero: never.
    pub(crate) length: Duration,
    /// How long what is learnt meanwhile is believed.
    pub(crate) age_max: Duration,
    /// Keys that are remembered; beyond, all keys are in doubt.
    pub(crate) keys_max: usize,
}

/// What is in doubt, and until when.
#[derive(Default)]
struct DoubtTable {
    keys: HashMap<KeyHash, Moment>,
    /// There was no place for some.
    all: Option<Moment>,
}

/// Doubts that are over. What was learnt under them has to be made void before [`Doubts::forget`].
pub(super) enum Over {
    Keys(Vec<KeyHash>),
    All,
}

pub(super) struct Doubts {
    options: DoubtOptions,
    table: Mutex<DoubtTable>,
    /// How many there are, so that nobody locks to find none.
    count: AtomicUsize,
}

impl Doubts {
    pub(super) fn new(options: DoubtOptions) -> Self {
        Self { options, table: Mutex::default(), count: AtomicUsize::new(0) }
    }

    pub(super) fn note(&self, hash: KeyHash, now: Moment) {
        if self.options.length.is_zero() {
            return;
        }
        let until = now.after(self.options.length);
        let mut table = self.table.lock();
        if table.keys.len() >= self.options.keys_max && !table.keys.contains_key(&hash) {
            table.all = Some(until);
        } else {
            table.keys.insert(hash, until);
        }
        self.count_again(&table);
    }

    /// How old what is known of the key may be; `None`: there is no doubt. Holds until the doubt is
    /// forgotten, however late.
    pub(super) fn age_max(&self, hash: KeyHash) -> Option<Duration> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let table = self.table.lock();
        (table.all.is_some() || table.keys.contains_key(&hash)).then_some(self.options.age_max)
    }

    pub(super) fn over(&self, now: Moment) -> Option<Over> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let table = self.table.lock();
        if table.all.is_some_and(|until| until <= now) {
            return Some(Over::All);
        }
        let keys: Vec<KeyHash> =
            table.keys.iter().filter(|(_, until)| **until <= now).map(|(&hash, _)| hash).collect();
        (!keys.is_empty()).then_some(Over::Keys(keys))
    }

    /// Forgets what was over by `now`.
    pub(super) fn forget(&self, now: Moment) {
        let mut table = self.table.lock();
        table.keys.retain(|_, until| *until > now);
        table.all = table.all.filter(|until| *until > now);
        self.count_again(&table);
    }

    /// Keys in doubt, and one for all others where they are.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn count_again(&self, table: &DoubtTable) {
        self.count.store(table.keys.len() + usize::from(table.all.is_some()), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    fn doubts(keys_max: usize) -> Doubts {
        Doubts::new(DoubtOptions {
            length: Duration::from_secs(60),
            age_max: Duration::from_secs(5),
            keys_max,
        })
    }

    const AGE: Option<Duration> = Some(Duration::from_secs(5));

    #[test]
    fn a_doubt_lasts_until_it_is_forgotten() {
        let doubts = doubts(10);
        doubts.note(KeyHash(1), at(0));
        assert_eq!((doubts.age_max(KeyHash(1)), doubts.age_max(KeyHash(2))), (AGE, None));
        assert!(doubts.over(at(59)).is_none());
        assert!(matches!(doubts.over(at(60)), Some(Over::Keys(keys)) if keys == [KeyHash(1)]));
        assert_eq!(doubts.age_max(KeyHash(1)), AGE, "what was learnt under it is not void yet");
        doubts.forget(at(60));
        assert_eq!((doubts.age_max(KeyHash(1)), doubts.len()), (None, 0));
    }

    #[test]
    fn where_there_is_no_place_every_key_is_in_doubt() {
        let doubts = doubts(1);
        doubts.note(KeyHash(1), at(0));
        doubts.note(KeyHash(1), at(1));
        assert_eq!(doubts.age_max(KeyHash(3)), None);
        doubts.note(KeyHash(2), at(10));
        assert_eq!((doubts.age_max(KeyHash(2)), doubts.age_max(KeyHash(3))), (AGE, AGE));
        doubts.forget(at(61));
        assert_eq!(doubts.age_max(KeyHash(3)), AGE);
        assert!(matches!(doubts.over(at(70)), Some(Over::All)));
        doubts.forget(at(70));
        assert_eq!(doubts.age_max(KeyHash(3)), None);
    }

    #[test]
    fn nothing_is_in_doubt_where_that_is_switched_off() {
        let doubts = Doubts::new(DoubtOptions { length: Duration::ZERO, ..doubts(10).options });
        doubts.note(KeyHash(1), at(0));
        assert_eq!(doubts.age_max(KeyHash(1)), None);
    }
}
