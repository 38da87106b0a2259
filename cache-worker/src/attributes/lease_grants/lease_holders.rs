//! The gateways that hold leases: what is recalled of each, and how much of that it has dropped.
//!
//! Recalls are numbered over all holders, and never anew in the life of a process: what a holder
//! says of an earlier number can't be taken for a later one, whatever was forgotten of it
//! meanwhile.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use verbs3_protocol::{HolderId, KeyHash, RECALLED_KEYS_MAX, RecallReply};

use crate::clock::WorkerInstant;

/// Recalls that wait for one holder; beyond, it is told to drop all.
const PENDING_MAX: usize = 4 * RECALLED_KEYS_MAX;
/// Time between two polls of a holder that is there.
const BETWEEN_POLLS: Duration = Duration::from_secs(1);
/// A holder that is silent for as long is forgotten: no lease is as long.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Enough gateways hold leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

struct HolderRecallState {
    /// All up to this number is dropped.
    dropped: u64,
    pending: VecDeque<(u64, KeyHash)>,
    /// Instead of what was pending up to this number.
    all: Option<u64>,
    /// Under way now.
    polls: usize,
    /// When it polled last.
    seen: WorkerInstant,
    /// The number of its last recall.
    news: watch::Sender<u64>,
}

pub(super) struct LeaseHolderTable {
    known: HashMap<HolderId, HolderRecallState>,
    holders_max: usize,
    /// The last recall's.
    number: u64,
    closed: bool,
}

impl LeaseHolderTable {
    pub(super) fn new(holders_max: usize) -> Self {
        Self { known: HashMap::new(), holders_max, number: 0, closed: false }
    }

    /// The number under which the holder is to drop this key. One that is not known is never told:
    /// its lease ends.
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

    /// How far it has dropped what was recalled, and the news. One that polls anew knows of no
    /// number, and is not told again what it has dropped long ago: it would ask without end.
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
        // A number that was never given says nothing.
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

/// A poll under way.
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

    /// Waits for something to be recalled that the holder has not dropped.
    pub(crate) async fn wait_for_recall(&mut self) {
        let through = self.through;
        // An error: the holder was forgotten, which none is that polls.
        let _ = self.news.wait_for(|&number| number > through).await;
    }

    /// What is to be said now, by the process `life`.
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
