//! When each resource may be worked at next. Pure: takes the time. Bounds how often the endpoint is
//! asked, whatever events come: a status that is written is an event itself.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The first pause after a failure; each further one is twice as long.
const RETRY_MIN: Duration = Duration::from_secs(2);

/// The pace of all resources whose job is not over.
#[derive(Debug, Default)]
pub(super) struct PreloadPaces {
    /// By the resources' uids.
    paces: HashMap<String, PreloadPace>,
}

#[derive(Debug)]
struct PreloadPace {
    due: Instant,
    failures: u32,
}

impl PreloadPaces {
    /// Returns whether a resource may be worked at.
    pub fn is_due(&self, uid: &str, now: Instant) -> bool {
        self.paces.get(uid).is_none_or(|pace| pace.due <= now)
    }

    /// Notes that it was looked at.
    pub fn note_success(&mut self, uid: &str, now: Instant, every: Duration) {
        self.paces.insert(uid.to_owned(), PreloadPace { due: now + every, failures: 0 });
    }

    /// Notes that something failed. Returns the pause until it is tried again.
    pub fn note_failure(&mut self, uid: &str, now: Instant, pause_max: Duration) -> Duration {
        let pace =
            self.paces.entry(uid.to_owned()).or_insert(PreloadPace { due: now, failures: 0 });
        let pause = RETRY_MIN.saturating_mul(1 << pace.failures.min(16)).min(pause_max);
        pace.failures = pace.failures.saturating_add(1);
        pace.due = now + pause;
        pause
    }

    /// Forgets a resource: its job is over, or it is gone.
    pub fn forget(&mut self, uid: &str) {
        self.paces.remove(uid);
    }

    /// Forgets all but these: the others are gone.
    pub fn retain_known(&mut self, uids: &HashSet<String>) {
        self.paces.retain(|uid, _| uids.contains(uid));
    }

    /// Returns how many are known.
    pub fn count(&self) -> usize {
        self.paces.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_resource_waits_for_its_turn() {
        let (mut paces, now) = (PreloadPaces::default(), Instant::now());
        assert!(paces.is_due("a", now));
        paces.note_success("a", now, 5 * SECOND);
        assert!(!paces.is_due("a", now + 4 * SECOND) && paces.is_due("b", now));
        assert!(paces.is_due("a", now + 5 * SECOND));
        paces.note_success("b", now, SECOND);
        paces.retain_known(&HashSet::from(["b".to_owned()]));
        assert!(paces.is_due("a", now) && !paces.is_due("b", now));
        paces.forget("b");
        assert_eq!(paces.count(), 0);
    }

    #[test]
    fn pauses_double_up_to_their_bound() {
        let (mut paces, now) = (PreloadPaces::default(), Instant::now());
        let pauses: Vec<u64> =
            (0..7).map(|_| paces.note_failure("a", now, 60 * SECOND).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        for _ in 0..100 {
            paces.note_failure("a", now, 60 * SECOND);
        }
        paces.note_success("a", now, SECOND);
        assert_eq!(paces.note_failure("a", now, 60 * SECOND), 2 * SECOND);
    }
}
