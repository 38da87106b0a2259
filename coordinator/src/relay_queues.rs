//! Owns the queues of write notices to workers which their writers can't reach. A notice stays
//! until its worker has fetched and answered it. Pure: knows neither time nor leadership.
//!
//! A notice goes to its worker with the answer to a renewal; the next renewal carries the worker's
//! answer. If it does not, a message was lost, and the notice is handed out again: a worker may
//! hear it twice without harm. The answer is the worker's own judgement. So nothing here can make a
//! notice count that the worker has not noted.

use std::collections::BTreeMap;

use verbs3_coordinator_client::api::{HeardWord, RelayedWord};
use verbs3_protocol::{NoticeAnswer, TenantNotice, WorkerId};

use crate::settings::CoordinatorSettings;

/// Most notices in one answer to a renewal; the others come with the next.
const WORDS_PER_ANSWER_MAX: usize = 256;
const BYTES_PER_ANSWER_MAX: usize = 1 << 20;

/// Error: as many notices wait as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelayQueueFull;

/// Queues of notices, by worker. `A` is the handle of whoever waits for an answer.
pub(crate) struct RelayQueues<A> {
    /// Notices that wait at once; 0: none is relayed.
    words_max: usize,
    /// Memory for them.
    bytes_max: usize,
    queues: BTreeMap<WorkerId, BTreeMap<u64, WaitingWord<A>>>,
    words: usize,
    bytes: usize,
    next: u64,
}

struct WaitingWord<A> {
    notice: TenantNotice,
    handed: bool,
    asker: A,
}

impl<A> RelayQueues<A> {
    /// Creates empty queues. Ids start at `first`, which must keep them apart from other
    /// coordinators' ids.
    pub(crate) fn new(settings: &CoordinatorSettings, first: u64) -> Self {
        Self {
            words_max: settings.relays_max as usize,
            bytes_max: settings.relays_memory.as_usize(),
            queues: BTreeMap::new(),
            words: 0,
            bytes: 0,
            next: first,
        }
    }

    /// Queues a notice and returns its id.
    pub(crate) fn enqueue_word(
        &mut self,
        worker: &WorkerId,
        notice: TenantNotice,
        asker: A,
    ) -> Result<u64, RelayQueueFull> {
        let bytes = notice.word.memory_bytes();
        if self.words >= self.words_max || self.bytes + bytes > self.bytes_max {
            return Err(RelayQueueFull);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        (self.words, self.bytes) = (self.words + 1, self.bytes + bytes);
        self.queues
            .entry(worker.clone())
            .or_default()
            .insert(id, WaitingWord { notice, handed: false, asker });
        Ok(id)
    }

    /// Drops a notice whose sender no longer waits.
    pub(crate) fn withdraw_word(&mut self, worker: &WorkerId, id: u64) -> Option<A> {
        let queue = self.queues.get_mut(worker)?;
        let WaitingWord { notice, asker, .. } = queue.remove(&id)?;
        if queue.is_empty() {
            self.queues.remove(worker);
        }
        (self.words, self.bytes) = (self.words - 1, self.bytes - notice.word.memory_bytes());
        Some(asker)
    }

    /// Takes the answers that came with a renewal. Returns each waiting sender with its answer.
    pub(crate) fn take_answers(
        &mut self,
        worker: &WorkerId,
        heard: Vec<HeardWord>,
    ) -> Vec<(A, NoticeAnswer)> {
        let told = heard
            .into_iter()
            .filter_map(|HeardWord { id, heard }| Some((self.withdraw_word(worker, id)?, heard)));
        let told = told.collect();
        for waiting in self.queues.get_mut(worker).into_iter().flat_map(BTreeMap::values_mut) {
            waiting.handed = false;
        }
        told
    }

    /// Returns the notices that go to the worker with this answer.
    pub(crate) fn hand_out(&mut self, worker: &WorkerId) -> Vec<RelayedWord> {
        let (mut words, mut bytes) = (Vec::new(), 0);
        let Some(queue) = self.queues.get_mut(worker) else { return words };
        for (&id, waiting) in queue.iter_mut().filter(|(_, waiting)| !waiting.handed) {
            bytes += waiting.notice.word.memory_bytes();
            if words.len() == WORDS_PER_ANSWER_MAX
                || (bytes > BYTES_PER_ANSWER_MAX && !words.is_empty())
            {
                break;
            }
            waiting.handed = true;
            words.push(RelayedWord { id, notice: waiting.notice.clone() });
        }
        words
    }

    /// Drops all notices: their senders are gone, or must ask another coordinator.
    pub(crate) fn clear(&mut self) {
        self.queues.clear();
        (self.words, self.bytes) = (0, 0);
    }

    /// Returns the number of waiting notices and the bytes that they take.
    pub(crate) fn queued_size(&self) -> (usize, usize) {
        (self.words, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_protocol::{
        Epoch, ObjectVolume, ReportMessage, TenantTag, WriteId, WriteNotice, WriteOutcome,
    };

    fn word(sequence: u64, key: &str) -> TenantNotice {
        let (volume, keys) = (ObjectVolume("store/bucket".into()), vec![key.to_owned()]);
        let write = WriteId { gateway: 1, sequence };
        let (epoch, outcome) = (Epoch(1), WriteOutcome::Done);
        let report = ReportMessage { volume, keys, write, epoch, outcome };
        let tenant = TenantTag::new("vision", 3);
        TenantNotice { word: WriteNotice::Report(report), tenant }
    }

    fn relays(words_max: usize, bytes_max: usize) -> RelayQueues<&'static str> {
        let settings = CoordinatorSettings::default();
        RelayQueues { words_max, bytes_max, ..RelayQueues::new(&settings, u64::MAX) }
    }

    fn id(id: &str) -> WorkerId {
        WorkerId(id.into())
    }

    fn done(id: u64) -> HeardWord {
        HeardWord { id, heard: NoticeAnswer::Done }
    }

    fn ids(words: &[RelayedWord]) -> Vec<u64> {
        words.iter().map(|word| word.id).collect()
    }

    #[test]
    fn a_notice_is_handed_out_at_each_renewal_until_it_is_answered() {
        let mut relays = relays(10, 10_000);
        let first = relays.enqueue_word(&id("a"), word(1, "k"), "asker").unwrap();
        assert_eq!(relays.hand_out(&id("b")), []);
        let handed = relays.hand_out(&id("a"));
        assert_eq!(handed, [RelayedWord { id: first, notice: word(1, "k") }], "with its tenant");
        assert_eq!(relays.hand_out(&id("a")), [], "it is on its way");
        // The answer was lost, or the worker started again.
        assert_eq!(relays.take_answers(&id("a"), Vec::new()), []);
        assert_eq!(ids(&relays.hand_out(&id("a"))), [first]);
        assert_eq!(
            relays.take_answers(&id("a"), vec![done(first)]),
            [("asker", NoticeAnswer::Done)]
        );
        assert_eq!(relays.take_answers(&id("a"), vec![done(first)]), [], "answered twice");
        assert_eq!((relays.hand_out(&id("a")), relays.queued_size()), (vec![], (0, 0)));
    }

    #[test]
    fn an_answer_counts_only_from_its_worker_and_while_awaited() {
        let mut relays = relays(10, 10_000);
        let first = relays.enqueue_word(&id("a"), word(1, "k"), "asker").unwrap();
        relays.hand_out(&id("a"));
        assert_eq!(relays.take_answers(&id("b"), vec![done(first)]), []);
        assert_eq!(relays.withdraw_word(&id("a"), first), Some("asker"));
        assert_eq!(relays.take_answers(&id("a"), vec![done(first)]), []);
        let second = relays.enqueue_word(&id("a"), word(1, "k"), "asker").unwrap();
        assert_ne!(first, second, "the same word on another way");
        relays.clear();
        assert_eq!(
            (relays.take_answers(&id("a"), vec![done(second)]), relays.queued_size()),
            (vec![], (0, 0))
        );
    }

    #[test]
    fn words_and_bytes_that_wait_are_bounded() {
        let mut few = relays(2, 10_000);
        let first = few.enqueue_word(&id("a"), word(1, "k"), "1").unwrap();
        few.enqueue_word(&id("b"), word(2, "k"), "2").unwrap();
        assert_eq!(few.enqueue_word(&id("c"), word(3, "k"), "3"), Err(RelayQueueFull));
        few.withdraw_word(&id("a"), first);
        assert!(few.enqueue_word(&id("c"), word(3, "k"), "3").is_ok());
        let mut small = relays(100, 3000);
        assert!(small.enqueue_word(&id("a"), word(1, &"k".repeat(2000)), "1").is_ok());
        assert_eq!(
            small.enqueue_word(&id("a"), word(2, &"k".repeat(2000)), "2"),
            Err(RelayQueueFull)
        );
        assert!(small.enqueue_word(&id("a"), word(3, "k"), "3").is_ok());
        assert_eq!(
            relays(0, 3000).enqueue_word(&id("a"), word(1, "k"), "1"),
            Err(RelayQueueFull),
            "switched off"
        );
    }

    #[test]
    fn what_is_too_much_for_one_answer_comes_with_the_next() {
        let mut relays = relays(1000, 100 << 20);
        for sequence in 0..300 {
            relays.enqueue_word(&id("a"), word(sequence, "k"), "asker").unwrap();
        }
        for _ in 0..2 {
            relays.enqueue_word(&id("b"), word(1, &"k".repeat(2 << 20)), "asker").unwrap();
        }
        let first = relays.hand_out(&id("a"));
        assert_eq!(first.len(), WORDS_PER_ANSWER_MAX);
        let heard = first.iter().map(|word| done(word.id)).collect();
        assert_eq!(relays.take_answers(&id("a"), heard).len(), WORDS_PER_ANSWER_MAX);
        assert_eq!(relays.hand_out(&id("a")).len(), 300 - WORDS_PER_ANSWER_MAX);
        assert_eq!(relays.hand_out(&id("b")).len(), 1, "one goes, however long it is");
        assert_eq!(relays.hand_out(&id("b")).len(), 1);
    }
}
