//! Prefixes that were invalidated because of changes behind the gateways' backs, or because a doubt
//! is over. Answers that were requested from the UFS before the invalidation are void.
//!
//! What a doubt leaves ends by itself: answers that were learnt in doubt say so, and count no longer
//! without one. It covers what was under way at the end.
//!
//! The list is bounded: when it is full, older prefixes grow to their volume, then to everything.
//! Then more is re-requested from the UFS than necessary, never less.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use verbs3_protocol::{ObjectKey, ObjectVolume};

use crate::clock::WorkerInstant;

/// Prefixes that are kept apart. Each request is compared with all of them.
const VOIDS_MAX: usize = 64;

/// How long the end of a doubt is remembered. No question to a store takes so long. And an answer
/// that was learnt in one doubt is not believed for so long in another: `doubt_age_max` is an hour
/// at most.
const PASSING_LENGTH: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, PartialEq, Eq)]
struct PrefixInvalidation {
    /// `None`: every volume.
    volume: Option<ObjectVolume>,
    prefix: String,
    /// Answers requested before this moment are void.
    at: WorkerInstant,
    /// When it is no longer needed; `None`: never.
    until: Option<WorkerInstant>,
}

#[derive(Default)]
pub(crate) struct InvalidationList {
    list: RwLock<Vec<PrefixInvalidation>>,
    /// Spares requests the lock while the list is empty, which is nearly always.
    any: AtomicBool,
}

impl PrefixInvalidation {
    fn covers_key(&self, volume: &ObjectVolume, key: &str) -> bool {
        self.volume
            .as_ref()
            .is_none_or(|own| own.means_name_of(volume) && key.starts_with(self.prefix.as_str()))
    }

    fn is_over(&self, now: WorkerInstant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Takes the place of all entries that this one covers and outlasts. Their moments may be later
    /// than its own.
    fn absorb_covered(mut self, list: &mut Vec<Self>) {
        list.retain(|old| {
            let outlasts = match (self.until, old.until) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(own), Some(old)) => own >= old,
            };
            let is_covered = outlasts
                && match &old.volume {
                    None => self.volume.is_none(),
                    Some(volume) => self.covers_key(volume, &old.prefix),
                };
            if is_covered {
                self.at = self.at.max(old.at);
            }
            !is_covered
        });
        list.push(self);
    }
}

impl InvalidationList {
    /// Voids answers that were requested before `at`, for objects whose names begin with `prefix`.
    pub(crate) fn add_prefix(&self, volume: &ObjectVolume, prefix: &str, at: WorkerInstant) {
        self.add_invalidation(volume, prefix, at, None);
    }

    /// The same for answers that were learnt in doubt, and say so.
    pub(crate) fn add_passing_prefix(
        &self,
        volume: &ObjectVolume,
        prefix: &str,
        at: WorkerInstant,
    ) {
        self.add_invalidation(volume, prefix, at, Some(at.saturating_add(PASSING_LENGTH)));
    }

    /// Forgets what is no longer needed.
    pub(crate) fn sweep_over(&self, now: WorkerInstant) {
        if self.any.load(Ordering::SeqCst) {
            let mut list = self.list.write();
            list.retain(|void| !void.is_over(now));
            self.any.store(!list.is_empty(), Ordering::SeqCst);
        }
    }

    #[cfg(test)]
    pub(crate) fn held_count(&self) -> usize {
        self.list.read().len()
    }

    fn add_invalidation(
        &self,
        volume: &ObjectVolume,
        prefix: &str,
        at: WorkerInstant,
        until: Option<WorkerInstant>,
    ) {
        let mut list = self.list.write();
        let (prefix, own) = (prefix.to_owned(), Some(volume.clone()));
        PrefixInvalidation { volume: own.clone(), prefix, at, until }.absorb_covered(&mut list);
        // What stands for several stays for ever: it absorbs all of them.
        for volume in [own, None] {
            if list.len() > VOIDS_MAX {
                let prefix = String::new();
                PrefixInvalidation { volume, prefix, at, until: None }.absorb_covered(&mut list);
            }
        }
        self.any.store(true, Ordering::SeqCst);
    }

    /// Returns how long ago this object was last invalidated. `None`: never.
    pub(crate) fn latest_age(&self, object: &ObjectKey, now: WorkerInstant) -> Option<Duration> {
        if !self.any.load(Ordering::SeqCst) {
            return None;
        }
        let list = self.list.read();
        let concerns = list.iter().filter(|void| void.covers_key(&object.volume, &object.key));
        concerns.map(|void| now.duration_since(void.at)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> ObjectVolume {
        ObjectVolume(name.into())
    }

    fn since(voids: &InvalidationList, of: &str, key: &str, now_s: u64) -> Option<u64> {
        let now = WorkerInstant::default().saturating_add(Duration::from_secs(now_s));
        voids
            .latest_age(&ObjectKey { volume: volume(of), key: key.into() }, now)
            .map(|since| since.as_secs())
    }

    fn at(seconds: u64) -> WorkerInstant {
        WorkerInstant::default().saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn a_prefix_concerns_what_begins_so_and_the_last_one_counts() {
        let voids = InvalidationList::default();
        voids.add_prefix(&volume("u/b"), "a/", at(10));
        voids.add_prefix(&volume("u/b"), "a/b", at(30));
        assert_eq!(since(&voids, "u/b", "a/x", 40), Some(30));
        assert_eq!(since(&voids, "u/b", "a/bc", 40), Some(10));
        assert_eq!(since(&voids, "u/b", "b", 40), None);
        assert_eq!(since(&voids, "u/c", "a/x", 40), None);
        // Whichever store the name means.
        assert_eq!(since(&voids, "u@0123abcd/b", "a/x", 40), Some(30));
        voids.add_prefix(&volume("u/b"), "", at(35));
        assert_eq!(since(&voids, "u/b", "a/bc", 40), Some(5));
        assert_eq!(voids.list.read().len(), 1, "what is covered is left out");
    }

    /// A doubt that ends is told of a moment after what is recorded meanwhile.
    #[test]
    fn an_older_moment_of_a_wider_prefix_does_not_undo_a_later_one() {
        let voids = InvalidationList::default();
        voids.add_prefix(&volume("u/b"), "p/x", at(30));
        voids.add_prefix(&volume("u/b"), "p/", at(20));
        assert_eq!(since(&voids, "u/b", "p/x", 40), Some(10));
        assert_eq!(voids.list.read().len(), 1);
        for number in 0..VOIDS_MAX as u64 {
            voids.add_prefix(&volume("u/b"), &format!("q{number}/"), at(1));
        }
        assert_eq!(since(&voids, "u/b", "p/x", 40), Some(10));
    }

    #[test]
    fn a_passing_invalidation_ends_and_a_lasting_one_below_it_stays() {
        let voids = InvalidationList::default();
        let hour = 3600;
        voids.add_prefix(&volume("u/b"), "p/x", at(10));
        voids.add_passing_prefix(&volume("u/b"), "p/", at(20));
        voids.sweep_over(at(19 + hour));
        assert_eq!(since(&voids, "u/b", "p/y", 30), Some(10));
        assert_eq!(since(&voids, "u/b", "p/x", 30), Some(10));
        voids.sweep_over(at(20 + hour));
        assert_eq!(since(&voids, "u/b", "p/y", 30 + hour), None);
        assert_eq!(since(&voids, "u/b", "p/x", 30 + hour), Some(20 + hour));
        // An invalidation by hand covers what a doubt left, and its moment.
        voids.add_passing_prefix(&volume("u/b"), "q/x", at(40));
        voids.add_prefix(&volume("u/b"), "q/", at(30));
        voids.sweep_over(at(50 + hour));
        assert_eq!(since(&voids, "u/b", "q/x", 60 + hour), Some(20 + hour));
        let passing = InvalidationList::default();
        passing.add_passing_prefix(&volume("u/b"), "p/", at(20));
        passing.sweep_over(at(20 + hour));
        assert!(passing.list.read().is_empty() && !passing.any.load(Ordering::SeqCst));
    }

    #[test]
    fn doubts_beyond_the_bound_void_more_and_never_less() {
        let voids = InvalidationList::default();
        for number in 0..200u64 {
            voids.add_passing_prefix(&volume("u/b"), &format!("p{number}/"), at(number));
            let first = since(&voids, "u/b", "p0/x", number);
            assert!(first.is_some_and(|since| since <= number), "{number}: {first:?}");
            assert!(voids.list.read().len() <= VOIDS_MAX);
        }
    }

    #[test]
    fn where_there_are_too_many_more_is_void_and_never_less() {
        let voids = InvalidationList::default();
        for number in 0..500u64 {
            voids.add_prefix(
                &volume(&format!("u/{}", number / 100)),
                &format!("p{number}/"),
                at(number),
            );
            for before in (0..=number).step_by(7) {
                let since =
                    since(&voids, &format!("u/{}", before / 100), &format!("p{before}/x"), number);
                assert!(
                    since.is_some_and(|since| since <= number - before),
                    "{before} of {number}: {since:?}"
                );
            }
            assert!(voids.list.read().len() <= VOIDS_MAX);
        }
        for number in 0..200u64 {
            voids.add_prefix(&volume(&format!("v/{number}")), "", at(500 + number));
        }
        assert!(since(&voids, "u/0", "p0/x", 700).is_some());
        assert!(since(&voids, "v/199", "x", 700).is_some_and(|since| since <= 1));
    }
}
