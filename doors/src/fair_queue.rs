//! Decides who gets what is scarce: places or bytes, several parties, one bound. Pure: takes the
//! time, wakes nobody, holds no lock. [`FairPlaces`](crate::FairPlaces) is it with tasks that wait.
//!
//! While there is room, whoever comes is served at once. When there is none, they wait, and what
//! becomes free goes to the party that holds least for its weight. The last part of the bound, the
//! reserve, is kept from parties that hold more than their share, as long as others are active.
//! Nobody else being active, the reserve is lent, too, but for a tenth: so a newcomer finds
//! something, whatever the others hold and for however long.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bounds of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FairLimits {
    /// What there is, in units of the caller.
    pub capacity: u64,
    /// The part of it that is kept from parties above their share.
    pub reserve: u64,
    /// Most who wait, over all parties.
    pub waiting_max: usize,
    /// How long a party counts as active after it asked last.
    pub active_for: Duration,
}

/// One party: who holds and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FairParty {
    /// Its number. Small: there is an account for each number up to the largest.
    pub number: u32,
    /// Its share, relative to the others' weights. 0 counts as 1.
    pub weight: u32,
    /// True if there is no other party, and so nothing to share.
    pub is_alone: bool,
}

/// What becomes of a party that waits: `W` is the caller's way to tell it.
#[derive(Debug, PartialEq, Eq)]
pub enum QueueAnswer<W> {
    /// It waits, under this ticket. Whoever was displaced has to be told that its wait is over.
    Waits { ticket: u64, displaced: Option<W> },
    /// The queue is full of others that wait for no more than it does.
    Full,
}

/// The queue; see the module.
#[derive(Debug)]
pub struct FairQueue<W> {
    limits: FairLimits,
    used: u64,
    accounts: Vec<PartyAccount<W>>,
    /// Over all accounts.
    waiting: usize,
    next_ticket: u64,
    next_turn: u64,
}

#[derive(Debug)]
struct PartyAccount<W> {
    weight: u32,
    is_alone: bool,
    held: u64,
    /// When it asked last.
    asked: Option<Instant>,
    /// The turn in which it was served last: of two that hold alike, the one served longer ago is
    /// next.
    turn: u64,
    queue: VecDeque<QueuedRequest<W>>,
}

#[derive(Debug)]
struct QueuedRequest<W> {
    ticket: u64,
    units: u64,
    waker: W,
}

/// A reserve is lent whole but for one part in this many.
const RESERVE_KEPT_PART: u64 = 10;

impl<W> PartyAccount<W> {
    fn new() -> Self {
        Self { weight: 1, is_alone: false, held: 0, asked: None, turn: 0, queue: VecDeque::new() }
    }

    /// Whether it holds less for its weight than another.
    fn precedes(&self, other: &Self) -> bool {
        let here = u128::from(self.held) * u128::from(other.weight);
        let there = u128::from(other.held) * u128::from(self.weight);
        (here, self.turn) < (there, other.turn)
    }

    fn is_active(&self, active_for: Duration, now: Instant) -> bool {
        let asked_lately = |asked: Instant| now.saturating_duration_since(asked) < active_for;
        self.held > 0 || !self.queue.is_empty() || self.asked.is_some_and(asked_lately)
    }
}

impl<W> FairQueue<W> {
    /// Makes a queue in which nothing is held. A capacity of 0 counts as 1; the reserve is at most
    /// half of it.
    pub fn new(limits: FairLimits) -> Self {
        let capacity = limits.capacity.max(1);
        let limits = FairLimits { capacity, reserve: limits.reserve.min(capacity / 2), ..limits };
        Self { limits, used: 0, accounts: Vec::new(), waiting: 0, next_ticket: 0, next_turn: 1 }
    }

    /// Returns what is held by all.
    pub fn used_units(&self) -> u64 {
        self.used
    }

    /// Returns how many wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting
    }

    /// Takes units, if nobody goes before this party and they are free. Returns whether they are
    /// taken. `units` must be at most the capacity.
    pub fn try_take(&mut self, party: FairParty, units: u64, now: Instant) -> bool {
        let account = self.account_of(party);
        account.asked = account.asked.max(Some(now));
        let is_next = self.waiting == 0 || self.goes_before_all(party);
        let takes = is_next && self.has_room(party, units, now);
        if takes {
            self.grant(party.number, units);
        }
        takes
    }

    /// Has a party wait for units. Where the queue is full, the last of the party that waits for
    /// most is displaced, if that is another one.
    pub fn join_queue(&mut self, party: FairParty, units: u64, waker: W) -> QueueAnswer<W> {
        self.account_of(party);
        let mut displaced = None;
        if self.waiting >= self.limits.waiting_max {
            let Some(longest) = self.longest_queue(party.number) else { return QueueAnswer::Full };
            displaced = self.accounts[longest].queue.pop_back().map(|request| request.waker);
            self.waiting -= usize::from(displaced.is_some());
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        let queue = &mut self.accounts[party.number as usize].queue;
        queue.push_back(QueuedRequest { ticket, units, waker });
        QueueAnswer::Waits { ticket, displaced }
    }

    /// Ends a wait. Returns the caller's waker, unless it has been served or displaced already.
    pub fn leave_queue(&mut self, party: FairParty, ticket: u64) -> Option<W> {
        let queue = &mut self.accounts.get_mut(party.number as usize)?.queue;
        let position = queue.binary_search_by_key(&ticket, |request| request.ticket).ok()?;
        let left = queue.remove(position)?;
        self.waiting -= 1;
        Some(left.waker)
    }

    /// Gives units back.
    pub fn give_back(&mut self, party: FairParty, units: u64) {
        self.used -= units;
        self.accounts[party.number as usize].held -= units;
    }

    /// Serves the next of those who wait. `None`: nobody waits, or the next one has to wait on.
    /// Call it again until then. Whoever is returned holds its units.
    pub fn serve_next(&mut self, now: Instant) -> Option<W> {
        if self.waiting == 0 {
            return None;
        }
        let next = self.first_of_queue()?;
        let account = &self.accounts[next];
        let PartyAccount { weight, is_alone, .. } = *account;
        let party = FairParty { number: next as u32, weight, is_alone };
        let units = account.queue.front()?.units;
        if !self.has_room(party, units, now) {
            return None;
        }
        self.grant(party.number, units);
        self.waiting -= 1;
        self.accounts[next].queue.pop_front().map(|request| request.waker)
    }

    /// Returns whether a party holds its share of all there is or more, or what is free is kept for
    /// others.
    pub fn is_above_share(&self, party: FairParty, now: Instant) -> bool {
        let held = self.accounts.get(party.number as usize).map_or(0, |account| account.held);
        let is_kept = self.used < self.limits.capacity;
        !party.is_alone && (is_kept || held >= self.share_of(party, now).0)
    }

    fn account_of(&mut self, party: FairParty) -> &mut PartyAccount<W> {
        let index = party.number as usize;
        if self.accounts.len() <= index {
            self.accounts.resize_with(index + 1, PartyAccount::new);
        }
        let account = &mut self.accounts[index];
        (account.weight, account.is_alone) = (party.weight.max(1), party.is_alone);
        account
    }

    fn grant(&mut self, number: u32, units: u64) {
        self.used += units;
        let account = &mut self.accounts[number as usize];
        account.held += units;
        account.turn = self.next_turn;
        self.next_turn += 1;
    }

    /// Whether units are free for a party, considering the reserve.
    fn has_room(&self, party: FairParty, units: u64, now: Instant) -> bool {
        let Some(left) = (self.limits.capacity - self.used).checked_sub(units) else {
            return false;
        };
        if left >= self.limits.reserve || party.is_alone {
            return true;
        }
        let held = self.accounts[party.number as usize].held;
        let (share, others_are_active) = self.share_of(party, now);
        if held == 0 || (others_are_active && held + units <= share) {
            return true;
        }
        let kept = self.limits.reserve.div_ceil(RESERVE_KEPT_PART);
        !others_are_active && left >= kept
    }

    /// Returns a party's share among those that are active, and whether there are others.
    fn share_of(&self, party: FairParty, now: Instant) -> (u64, bool) {
        let FairLimits { capacity, active_for, .. } = self.limits;
        let mut others = 0;
        for (index, account) in self.accounts.iter().enumerate() {
            if index != party.number as usize && account.is_active(active_for, now) {
                others += u128::from(account.weight);
            }
        }
        let weight = u128::from(party.weight.max(1));
        let share = u128::from(capacity) * weight / (weight + others);
        (u64::try_from(share).unwrap_or(capacity), others > 0)
    }

    /// Returns whose turn it is.
    fn first_of_queue(&self) -> Option<usize> {
        let mut first: Option<usize> = None;
        for (index, account) in self.accounts.iter().enumerate() {
            let precedes = || first.is_none_or(|first| account.precedes(&self.accounts[first]));
            if !account.queue.is_empty() && precedes() {
                first = Some(index);
            }
        }
        first
    }

    /// Whether a party has nobody waiting, and would be served before all who wait.
    fn goes_before_all(&self, party: FairParty) -> bool {
        let account = &self.accounts[party.number as usize];
        account.queue.is_empty()
            && self.first_of_queue().is_none_or(|first| account.precedes(&self.accounts[first]))
    }

    /// Returns the party of which most wait for its weight, if those are more than would be of
    /// `number` with one more.
    fn longest_queue(&self, number: u32) -> Option<usize> {
        let length = |index: usize, more: usize| (self.accounts[index].queue.len() + more) as u128;
        let mut longest = number as usize;
        for index in 0..self.accounts.len() {
            let more = usize::from(longest == number as usize);
            let here = length(index, 0) * u128::from(self.accounts[longest].weight);
            let there = length(longest, more) * u128::from(self.accounts[index].weight);
            if index != number as usize && here > there {
                longest = index;
            }
        }
        (longest != number as usize).then_some(longest)
    }
}

#[cfg(test)]
mod tests;
