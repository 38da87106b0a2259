//! The gateways that hold leases: the recalls for each, and how many of them it has dropped.
//!
//! Recalls are numbered over all holders, and no number is used twice in the life of a process. A
//! holder's confirmation of an earlier number can't be taken for a later one, even if the holder
//! was forgotten meanwhile.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use verbs3_protocol::{HolderId, KeyHash, RECALLED_KEYS_MAX, RecallReply};

use crate::clock::WorkerInstant;

/// Recalls that wait for one holder. Beyond that, it is told to drop all leases.
const PENDING_MAX: usize = 4 * RECALLED_KEYS_MAX;
/// Longest time between two polls of a live holder.
const BETWEEN_POLLS: Duration = Duration::from_secs(1);
/// A holder that is silent for this long is forgotten: every lease is shorter.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The bound on gateways that hold leases is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

struct HolderRecallState {
    /// All recalls up to this number are dropped.
    dropped: u64,
    pending: VecDeque<(u64, KeyHash)>,
    /// Drop all leases, in place of the pending recalls up to this number.
    all: Option<u64>,
    /// Polls under way.
    polls: usize,
    /// When the holder last polled.
    seen: WorkerInstant,
    /// The number of the holder's last recall.
    news: watch::Sender<u64>,
}

pub(super) struct LeaseHolderTable {
    known: HashMap<HolderId, HolderRecallState>,
    holders_max: usize,
    /// The number of the last recall.
    number: u64,
    closed: bool,
}

impl LeaseHolderTable {
    pub(super) fn new(holders_max: usize) -> Self {
        Self { known: HashMap::new(), holders_max, number: 0, closed: false }
    }

    /// Numbers the recall of this key by the holder, and returns the number. An unknown holder gets
    /// no recall: its lease expires.
    pub(super) fn recall_key(&mut self, holder: HolderId, hash: KeyHash) -> u64 {
        self.number += 1;
        if let Some(known) = self.known.get_mut(&holder) {
            if known.pending.len() < PENDING_MAX {
                known.pending.push_back((self.number, hash));
            } else {
                known.pending.clear();
                known.all = Some(self.number);
            }
            known.news.send_replace(self.number);
        }
        self.number
    }

    pub(super) fn recall_all(&mut self, holder: HolderId) -> u64 {
        self.number += 1;
        if let Some(known) = self.known.get_mut(&holder) {
            known.pending.clear();
            known.all = Some(self.number);
            known.news.send_replace(self.number);
        }
        self.number
    }

    pub(super) fn has_dropped(&self, holder: HolderId, recall: u64) -> bool {
        self.known.get(&holder).is_some_and(|known| known.dropped >= recall)
    }

    /// Returns the number up to which the holder has dropped recalls, and a receiver of new ones. A
    /// holder that starts polling again knows no recall number. It is not sent recalls that it
    /// dropped long ago, or it would poll forever.
    pub(super) fn poll(
        &mut self,
        holder: HolderId,
        through: u64,
        now: WorkerInstant,
    ) -> Result<(u64, watch::Receiver<u64>), TooMany> {
        if self.closed
            || (!self.known.contains_key(&holder) && self.known.len() >= self.holders_max)
        {
            return Err(TooMany);
        }
        let known = self.known.entry(holder).or_insert_with(|| HolderRecallState {
            dropped: 0,
            pending: VecDeque::new(),
            all: None,
            polls: 0,
            seen: now,
            news: watch::channel(0).0,
        });
        // A number that this process never gave is ignored.
        if through <= self.number {
            known.dropped = known.dropped.max(through);
        }
        while known.pending.front().is_some_and(|(number, _)| *number <= known.dropped) {
            known.pending.pop_front();
        }
        known.all = known.all.filter(|&number| number > known.dropped);
        (known.polls, known.seen) = (known.polls + 1, now);
        Ok((known.dropped, known.news.subscribe()))
    }

    pub(super) fn is_polling(&self, holder: HolderId, now: WorkerInstant) -> bool {
        let polls = |known: &HolderRecallState| {
            known.polls > 0 || now.duration_since(known.seen) < BETWEEN_POLLS
        };
        !self.closed && self.known.get(&holder).is_some_and(polls)
    }

    pub(super) fn close_polls(&mut self) {
        self.closed = true;
        for known in self.known.values() {
            known.news.send_replace(u64::MAX);
        }
    }

    pub(super) fn sweep_silent(&mut self, now: WorkerInstant) {
        self.known
            .retain(|_, known| known.polls > 0 || now.duration_since(known.seen) < FORGET_AFTER);
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    fn collect_recalls(
        &mut self,
        holder: HolderId,
        through: u64,
        now: WorkerInstant,
    ) -> (u64, Vec<KeyHash>, bool) {
        let Some(known) = self.known.get_mut(&holder) else { return (through, Vec::new(), false) };
        known.seen = now;
        if let Some(number) = known.all {
            return (number, Vec::new(), true);
        }
        let told = known.pending.iter().take(RECALLED_KEYS_MAX);
        let (last, keys) = told.fold((through, Vec::new()), |(_, mut keys), &(number, hash)| {
            keys.push(hash);
            (number, keys)
        });
        (last, keys, false)
    }
}

/// A poll for recalls that is under way.
pub(crate) struct LeaseRecallPoll<'a> {
    holders: &'a Mutex<LeaseHolderTable>,
    holder: HolderId,
    through: u64,
    news: watch::Receiver<u64>,
}

impl<'a> LeaseRecallPoll<'a> {
    pub(super) fn new(
        holders: &'a Mutex<LeaseHolderTable>,
        holder: HolderId,
        through: u64,
        news: watch::Receiver<u64>,
    ) -> Self {
        Self { holders, holder, through, news }
    }

    /// Waits for a recall that the holder has not dropped.
    pub(crate) async fn wait_for_recall(&mut self) {
        let through = self.through;
        // An error means that the holder was forgotten, which can't happen while it polls.
        let _ = self.news.wait_for(|&number| number > through).await;
    }

    /// Builds the answer of the process `life` to this poll.
    pub(crate) fn build_answer(&self, life: u64, now: WorkerInstant) -> RecallReply {
        let (through, keys, all) =
            self.holders.lock().collect_recalls(self.holder, self.through, now);
        RecallReply { life, through, keys, all }
    }
}

impl Drop for LeaseRecallPoll<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.holders.lock().known.get_mut(&self.holder) {
            known.polls -= 1;
        }
    }
}
