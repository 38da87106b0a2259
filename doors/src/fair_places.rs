//! Owns the places of a [`FairQueue`], and the tasks that wait for one. A place is taken under one
//! lock, and given back under one. Nothing is allocated unless somebody waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::fair_queue::{FairLimits, FairParty, FairQueue, QueueAnswer};

/// Places, or bytes, that several parties share.
#[derive(Debug)]
pub struct FairPlaces {
    queue: Mutex<FairQueue<TurnWaker>>,
    capacity: u64,
    wait_max: Duration,
}

/// What a party holds. Dropping it gives it back, and serves those who wait.
#[derive(Debug)]
pub struct FairPermit {
    places: Arc<FairPlaces>,
    party: FairParty,
    units: u64,
    has_waited: bool,
}

/// Why a party did not get what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing became free in time, or too many wait for it")]
pub struct FairRefusal {
    /// True if it holds its share or more already, or what is free is kept for others.
    pub is_above_share: bool,
}

/// How a waiting task gets its permit.
#[derive(Debug)]
struct TurnWaker {
    sender: oneshot::Sender<FairPermit>,
    party: FairParty,
    units: u64,
}

/// A task's place in the queue. Dropping it leaves the queue.
struct QueuedTurn<'a> {
    places: &'a Arc<FairPlaces>,
    party: FairParty,
    ticket: u64,
    turn: oneshot::Receiver<FairPermit>,
}

impl FairPlaces {
    /// Makes places that nobody holds. `wait_max` is how long one may wait for its turn.
    pub fn new(limits: FairLimits, wait_max: Duration) -> Arc<Self> {
        let capacity = limits.capacity.max(1);
        Arc::new(Self { queue: Mutex::new(FairQueue::new(limits)), capacity, wait_max })
    }

    /// Takes units if they are free now and it is nobody else's turn. More than there are count as
    /// all.
    pub fn try_take_permit(
        self: &Arc<Self>,
        party: FairParty,
        units: u64,
        now: Instant,
    ) -> Option<FairPermit> {
        let units = units.min(self.capacity);
        let is_taken = self.queue.lock().try_take(party, units, now);
        is_taken.then(|| self.make_permit(party, units, false))
    }

    /// Takes units, or waits for its turn. More than there are count as all. May be cancelled at
    /// any time.
    pub async fn take_permit(
        self: &Arc<Self>,
        party: FairParty,
        units: u64,
        now: Instant,
    ) -> Result<FairPermit, FairRefusal> {
        let units = units.min(self.capacity);
        let (mut waiting, displaced) = {
            let mut queue = self.queue.lock();
            if queue.try_take(party, units, now) {
                drop(queue);
                return Ok(self.make_permit(party, units, false));
            }
            let (sender, turn) = oneshot::channel();
            match queue.join_queue(party, units, TurnWaker { sender, party, units }) {
                QueueAnswer::Waits { ticket, displaced } => {
                    (QueuedTurn { places: self, party, ticket, turn }, displaced)
                }
                QueueAnswer::Full => {
                    let is_above_share = queue.is_above_share(party, now);
                    return Err(FairRefusal { is_above_share });
                }
            }
        };
        if displaced.is_some() {
            // Its task learns it from the sender's end. It may have kept others from their turn.
            drop(displaced);
            self.serve_waiting();
        }
        if let Ok(turn) = timeout(self.wait_max, &mut waiting.turn).await {
            return turn.map_err(|_| self.refuse_party(party));
        }
        // A party may have ceased to be active since, of which nobody tells.
        self.serve_waiting();
        waiting.turn.try_recv().map_err(|_| self.refuse_party(party))
    }

    /// Returns the units that all hold.
    pub fn used_units(&self) -> u64 {
        self.queue.lock().used_units()
    }

    /// Returns how many wait.
    pub fn waiting_count(&self) -> usize {
        self.queue.lock().waiting_count()
    }

    fn make_permit(self: &Arc<Self>, party: FairParty, units: u64, has_waited: bool) -> FairPermit {
        FairPermit { places: self.clone(), party, units, has_waited }
    }

    fn refuse_party(&self, party: FairParty) -> FairRefusal {
        let is_above_share = self.queue.lock().is_above_share(party, Instant::now());
        FairRefusal { is_above_share }
    }

    fn give_back(self: &Arc<Self>, party: FairParty, units: u64) {
        let mut queue = self.queue.lock();
        queue.give_back(party, units);
        let is_wanted = queue.waiting_count() > 0;
        drop(queue);
        if is_wanted {
            self.serve_waiting();
        }
    }

    /// Serves all whose turn it is. They are told outside of the lock.
    fn serve_waiting(self: &Arc<Self>) {
        let now = Instant::now();
        loop {
            let Some(waker) = self.queue.lock().serve_next(now) else { return };
            let TurnWaker { sender, party, units } = waker;
            // Whoever no longer waits gives it back by dropping it.
            drop(sender.send(self.make_permit(party, units, true)));
        }
    }
}

impl FairPermit {
    /// Returns what is held.
    pub fn held_units(&self) -> u64 {
        self.units
    }

    /// Returns whether its party had to wait for it.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Takes over what another permit of the same party and places holds.
    pub(crate) fn absorb_permit(&mut self, mut other: Self) {
        debug_assert!(
            Arc::ptr_eq(&self.places, &other.places) && self.party.number == other.party.number
        );
        // What is left of it gives nothing back.
        self.units += std::mem::take(&mut other.units);
    }

    /// Changes what is held to `units`: gives the rest back, or takes what is missing, if that is
    /// free now and nobody else's turn. Otherwise leaves it as it is. Returns whether it is so now.
    pub fn resize_permit(&mut self, units: u64, now: Instant) -> bool {
        let units = units.min(self.places.capacity);
        if units < self.units {
            let rest = std::mem::replace(&mut self.units, units) - units;
            self.places.give_back(self.party, rest);
        } else if units > self.units
            && let Some(mut more) = self.places.try_take_permit(self.party, units - self.units, now)
        {
            // What is left of it gives nothing back.
            self.units += std::mem::take(&mut more.units);
        }
        self.units == units
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if self.units > 0 {
            self.places.give_back(self.party, self.units);
        }
    }
}

impl Drop for QueuedTurn<'_> {
    fn drop(&mut self) {
        let left = self.places.queue.lock().leave_queue(self.party, self.ticket);
        // Whom it kept from being served may be next now.
        if left.is_some() {
            self.places.serve_waiting();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn places(capacity: u64, waiting_max: usize) -> Arc<FairPlaces> {
        let active_for = Duration::from_secs(60);
        let limits = FairLimits { capacity, reserve: 0, waiting_max, active_for };
        FairPlaces::new(limits, Duration::from_secs(5))
    }

    fn party(number: u32) -> FairParty {
        FairParty { number, weight: 1, is_alone: false }
    }

    async fn until_waiting(places: &FairPlaces, count: usize) {
        while places.waiting_count() != count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_served_when_a_place_is_given_back() {
        let (places, now) = (places(1, 8), Instant::now());
        let held = places.try_take_permit(party(1), 1, now).unwrap();
        assert!(places.try_take_permit(party(2), 1, now).is_none() && !held.has_waited());
        let (served, ()) = tokio::join!(places.take_permit(party(2), 1, now), async {
            until_waiting(&places, 1).await;
            drop(held);
        });
        let served = served.unwrap();
        assert!(served.has_waited() && served.held_units() == 1);
        drop(served);
        assert_eq!((places.used_units(), places.waiting_count()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_is_bounded_and_says_whether_the_share_is_held() {
        let (places, now) = (places(2, 8), Instant::now());
        let _held = places.take_permit(party(1), 2, now).await.unwrap();
        let refused = places.take_permit(party(2), 1, now).await.unwrap_err();
        assert!(!refused.is_above_share);
        let refused = places.take_permit(party(1), 1, now).await.unwrap_err();
        assert!(refused.is_above_share);
        assert_eq!(places.waiting_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn displaced_task_is_refused_at_once() {
        let (places, now) = (places(1, 2), Instant::now());
        let _held = places.try_take_permit(party(1), 1, now).unwrap();
        let begun = tokio::time::Instant::now();
        let greedy = || places.take_permit(party(1), 1, now);
        let (first, second, ()) = tokio::join!(
            async { tokio::time::timeout(Duration::from_secs(1), greedy()).await.is_err() },
            async { (greedy().await.unwrap_err(), begun.elapsed()) },
            async {
                until_waiting(&places, 2).await;
                let modest = places.take_permit(party(2), 1, now);
                assert!(tokio::time::timeout(Duration::from_secs(1), modest).await.is_err());
            }
        );
        let (refusal, after) = second;
        assert!(first && refusal.is_above_share && after.is_zero(), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_goes_away_leaves_the_queue_to_the_next() {
        let (places, now) = (places(4, 8), Instant::now());
        let _held = places.try_take_permit(party(1), 2, now).unwrap();
        let whole =
            tokio::time::timeout(Duration::from_secs(1), places.take_permit(party(2), 4, now));
        let (whole, small) = tokio::join!(whole, places.take_permit(party(3), 2, now));
        assert!(whole.is_err(), "2 are held all the time");
        assert!(small.unwrap().has_waited(), "it came later, and is served when that one goes");
        assert_eq!((places.used_units(), places.waiting_count()), (2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn permit_grows_only_into_what_is_free() {
        let (places, now) = (places(8, 8), Instant::now());
        let mut permit = places.try_take_permit(party(1), 8, now).unwrap();
        assert!(permit.resize_permit(1, now));
        assert_eq!(places.used_units(), 1);
        let _other = places.try_take_permit(party(2), 4, now).unwrap();
        assert!(!permit.resize_permit(5, now));
        assert_eq!(permit.held_units(), 1, "3 are free, 4 are missing");
        assert!(permit.resize_permit(4, now));
        assert_eq!(places.used_units(), 8);
        drop(permit);
        assert_eq!(places.used_units(), 4);
    }
}
