//! Owns bytes a second that several parties share: a token bucket over the places of a
//! [`FairPlaces`]. What a party took stays taken, and comes back at the rate, from each party in
//! proportion to what it took. So whose turn it is follows the same rules as for all that is scarce.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::fair_places::{FairPermit, FairPlaces};
use crate::fair_queue::{FairLimits, FairParty};

/// Bytes a second, shared by parties. At most one second's are saved up.
#[derive(Debug)]
pub struct FairRate {
    places: Arc<FairPlaces>,
    bytes_per_second: u64,
    taken: Mutex<TakenBytes>,
    /// Held by the one of those who wait that gives back what is due.
    clock: tokio::sync::Mutex<()>,
}

/// What was taken and has not come back.
#[derive(Debug)]
struct TakenBytes {
    by_party: BTreeMap<u32, FairPermit>,
    /// What was taken at once beyond a second's bytes. It comes back first.
    debt: u64,
    /// Until when bytes have come back.
    at: Instant,
}

/// How often bytes come back to those who wait.
const STEP: Duration = Duration::from_millis(10);

/// Waits are bounded by the callers.
const WAIT_MAX: Duration = Duration::from_secs(3600);

const NANOS: u128 = 1_000_000_000;

impl FairRate {
    /// Makes a rate of which nothing is taken. 0 counts as 1.
    pub fn new(bytes_per_second: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        let limits = FairLimits {
            capacity: bytes_per_second,
            // Something comes back in each step.
            reserve: 0,
            // The callers bound how many they are.
            waiting_max: usize::MAX,
            active_for: Duration::from_secs(1),
        };
        let taken = TakenBytes { by_party: BTreeMap::new(), debt: 0, at: Instant::now() };
        Self {
            places: FairPlaces::new(limits, WAIT_MAX),
            bytes_per_second,
            taken: Mutex::new(taken),
            clock: tokio::sync::Mutex::default(),
        }
    }

    /// Takes bytes if they are free now and it is nobody else's turn. For more than a second's, a
    /// second's have to be free; the others are then owed.
    pub fn try_take_bytes(&self, party: FairParty, bytes: u64) -> bool {
        let now = Instant::now();
        self.give_back_due(now);
        let permit = self.places.try_take_permit(party, bytes.max(1), now.into_std());
        permit.map(|permit| self.note_taken(party, permit, bytes)).is_some()
    }

    /// Takes bytes, or waits for the party's turn, for as long as it takes: bound the wait. May be
    /// cancelled at any time. Returns whether it waited.
    pub async fn take_bytes(&self, party: FairParty, bytes: u64) -> bool {
        if self.try_take_bytes(party, bytes) {
            return false;
        }
        let take = async {
            loop {
                let now = Instant::now().into_std();
                if let Ok(permit) = self.places.take_permit(party, bytes.max(1), now).await {
                    return permit;
                }
            }
        };
        let permit = tokio::select! {
            biased;
            permit = take => permit,
            never = self.give_back_in_time() => match never {},
        };
        self.note_taken(party, permit, bytes);
        true
    }

    /// Returns how many wait.
    pub fn waiting_count(&self) -> usize {
        self.places.waiting_count()
    }

    fn note_taken(&self, party: FairParty, permit: FairPermit, bytes: u64) {
        let mut taken = self.taken.lock();
        taken.debt = taken.debt.saturating_add(bytes.saturating_sub(self.bytes_per_second));
        match taken.by_party.get_mut(&party.number) {
            Some(before) => before.absorb_permit(permit),
            None => drop(taken.by_party.insert(party.number, permit)),
        }
    }

    /// Gives back what is due, and so serves those who wait.
    fn give_back_due(&self, now: Instant) {
        let mut taken = self.taken.lock();
        let passed = now.saturating_duration_since(taken.at).as_nanos();
        let due = u64::try_from(passed * u128::from(self.bytes_per_second) / NANOS);
        let due = due.unwrap_or(u64::MAX);
        if due == 0 {
            return;
        }
        let nanos = u128::from(due) * NANOS / u128::from(self.bytes_per_second);
        taken.at += Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let paid = taken.debt.min(due);
        taken.debt -= paid;
        let mut left = due - paid;
        let sum: u64 = taken.by_party.values().map(FairPermit::held_units).sum();
        let share = left.min(sum);
        for permit in taken.by_party.values_mut() {
            let held = permit.held_units();
            // Rounded up, so that all of it comes back.
            let part = (u128::from(share) * u128::from(held)).div_ceil(u128::from(sum.max(1)));
            let part = u64::try_from(part).unwrap_or(held).min(left).min(held);
            left -= part;
            permit.resize_permit(held - part, now.into_std());
        }
        taken.by_party.retain(|_, permit| permit.held_units() > 0);
    }

    /// Gives back what is due when it is, for ever. One of those who wait does so for all.
    async fn give_back_in_time(&self) -> Infallible {
        let _clock = self.clock.lock().await;
        loop {
            sleep_until(Instant::now() + STEP).await;
            self.give_back_due(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::future::join_all;

    use super::*;

    fn party(number: u32, weight: u32) -> FairParty {
        FairParty { number, weight, is_alone: false }
    }

    /// Takes pieces for a party until the deadline. Returns when each was taken.
    async fn take_pieces(
        rate: &FairRate,
        party: FairParty,
        bytes: u64,
        until: Instant,
    ) -> Vec<Instant> {
        let mut taken = Vec::new();
        while tokio::time::timeout_at(until, rate.take_bytes(party, bytes)).await.is_ok()
            && Instant::now() < until
        {
            taken.push(Instant::now());
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn no_span_of_time_takes_more_than_the_rate_and_the_savings() {
        let (rate, began) = (FairRate::new(1000), Instant::now());
        let until = began + Duration::from_secs(10);
        let sizes = [7, 30, 110].map(|bytes| (bytes, party(bytes as u32, 1)));
        let all = sizes.map(|(bytes, party)| take_pieces(&rate, party, bytes, until));
        let taken: Vec<(Instant, u64)> = join_all(all)
            .await
            .into_iter()
            .zip(sizes)
            .flat_map(|(times, (bytes, _))| times.into_iter().map(move |at| (at, bytes)))
            .collect();
        let mut times: Vec<Instant> = taken.iter().map(|&(at, _)| at).collect();
        times.dedup();
        for &from in &times {
            for &to in &times {
                let within = taken.iter().filter(|(at, _)| *at >= from && *at <= to);
                let sum: u64 = within.map(|(_, bytes)| bytes).sum();
                let allowed = 1000.0 * (1.0 + to.saturating_duration_since(from).as_secs_f64());
                assert!(sum as f64 <= allowed + 1.0 || to < from, "{sum} of {allowed}");
            }
        }
        let sum: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
        assert!(sum >= 10_500, "{sum} in ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_shared_by_weight_and_who_is_alone_has_all() {
        let (rate, began) = (FairRate::new(4000), Instant::now());
        let alone = take_pieces(&rate, party(1, 1), 10, began + Duration::from_secs(4)).await.len();
        assert!((1900..=2000).contains(&alone), "{alone}");
        let until = Instant::now() + Duration::from_secs(40);
        // Many streams of one against one of the other.
        let light = (0..20).map(|_| take_pieces(&rate, party(1, 1), 10, until));
        let heavy = (0..5).map(|_| take_pieces(&rate, party(2, 3), 10, until));
        let (light, heavy) = tokio::join!(join_all(light), join_all(heavy));
        let [light, heavy] = [light, heavy].map(|all| all.iter().map(Vec::len).sum::<usize>());
        assert!(heavy as f64 / light as f64 > 2.5, "{heavy} : {light}");
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_a_seconds_bytes_come_back_later() {
        let (rate, began) = (FairRate::new(100), Instant::now());
        assert!(!rate.take_bytes(party(1, 1), 1000).await);
        assert!(!rate.try_take_bytes(party(2, 1), 1));
        assert!(rate.take_bytes(party(2, 1), 1).await);
        let waited = began.elapsed();
        assert!(waited >= Duration::from_secs(9), "{waited:?}");
        assert!(waited < Duration::from_secs(10), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_leaves_the_clock_and_the_queue_to_others() {
        let rate = FairRate::new(100);
        assert!(rate.try_take_bytes(party(1, 1), 100));
        let short = Duration::from_millis(300);
        let first = tokio::time::timeout(short, rate.take_bytes(party(2, 1), 100));
        let (first, second) = tokio::join!(first, rate.take_bytes(party(3, 1), 100));
        assert!(first.is_err() && second);
        assert_eq!(rate.places.waiting_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_of_a_party_are_kept_together() {
        let rate = FairRate::new(1 << 20);
        (0..10_000).for_each(|_| assert!(rate.try_take_bytes(party(1, 1), 1)));
        assert_eq!(rate.taken.lock().by_party.len(), 1);
        assert_eq!(rate.places.used_units(), 10_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        rate.give_back_due(Instant::now());
        assert!(rate.taken.lock().by_party.is_empty());
        assert_eq!(rate.places.used_units(), 0);
    }
}
