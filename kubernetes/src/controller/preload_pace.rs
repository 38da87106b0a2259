//! When each resource may be worked at next. Pure: takes the time. Bounds how often the endpoint is
//! asked, whatever events come: a status that is written is an event itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use verbs3_pacing::doubled_pause;

/// The first pause after a failure; each further one is twice as long.
const RETRY_MIN: Duration = Duration::from_secs(2);

/// The pace of all resources whose job is not over.
#[derive(Debug, Default)]
pub(super) struct PreloadPaces {
    /// By the resources' uids.
    paces: HashMap<String, PreloadPace>,
    round: u64,
}

#[derive(Debug)]
struct PreloadPace {
    due: Instant,
    failures: u32,
    /// Round in which the resource was there last.
    round: u64,
}

impl PreloadPaces {
    /// Begins a round, in which every resource is asked for once.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Returns whether a resource, which is there, may be worked at.
    pub fn is_due(&mut self, uid: &str, now: Instant) -> bool {
        let round = self.round;
        self.paces.get_mut(uid).is_none_or(|pace| {
            pace.round = round;
            pace.due <= now
        })
    }

    /// Notes that it was looked at.
    pub fn note_success(&mut self, uid: &str, now: Instant, every: Duration) {
        let round = self.round;
        self.paces.insert(uid.to_owned(), PreloadPace { due: now + every, failures: 0, round });
    }

    /// Notes that something failed. Returns the pause until it is tried again.
    pub fn note_failure(&mut self, uid: &str, now: Instant, pause_max: Duration) -> Duration {
        let first = PreloadPace { due: now, failures: 0, round: self.round };
        let pace = self.paces.entry(uid.to_owned()).or_insert(first);
        let pause = doubled_pause(RETRY_MIN, pace.failures.min(16), pause_max);
        pace.failures = pace.failures.saturating_add(1);
        pace.due = now + pause;
        pause
    }

    /// Forgets a resource: its job is over, or it is gone.
    pub fn forget(&mut self, uid: &str) {
        self.paces.remove(uid);
    }

    /// Forgets all that were not asked for in this round: they are gone.
    pub fn forget_gone(&mut self) {
        let round = self.round;
        self.paces.retain(|_, pace| pace.round == round);
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
        paces.begin_round();
        assert!(!paces.is_due("b", now));
        paces.forget_gone();
        assert!(paces.is_due("a", now) && !paces.is_due("b", now));
        paces.forget("b");
        assert!(paces.paces.is_empty());
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
