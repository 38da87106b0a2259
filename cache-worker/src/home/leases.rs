//! Leases: decides which opens get one, and answers the polls by which holders learn of recalls.

use std::time::Duration;

use tokio::time::timeout;
use verbs3_protocol::{
    AttributeLease, KeyGeneration, KeyHash, LEASE_MS_MAX, RECALLS_WAIT_MS, RecallPollMessage,
    RecallReply,
};

use super::AttributeHome;
use super::open_operation::{LearnedAttributes, OpenOperation};
use crate::attributes::{AttributeMaxAge, LeaseGrantError, NewLease, ObjectPresence};
use crate::digest::AttributesKey;
use crate::metrics::{BusyReason, CountedRequest, LeaseGrantEvent};
use crate::serve_refusal::ServeRefusal;

/// A shorter lease is not worth its recall.
const LEASE_MIN: Duration = Duration::from_millis(50);

/// The id of every lease that is granted. Nothing looks a lease up by its id.
const ID: u64 = 1;

impl AttributeHome {
    /// Grants a lease on the attributes, or on the absence, if that was cached, and if the key is
    /// read often and was not written for a while.
    pub(crate) fn decide_lease(
        &self,
        opening: &OpenOperation,
        learnt: &LearnedAttributes,
    ) -> AttributeLease {
        let (none, subject) = (AttributeLease::default(), &opening.subject);
        if self.leases.length.is_zero() || subject.version_id.is_some() {
            return none;
        }
        let times = self.clock.read_times();
        let now = times.now;
        // Who asks for each of many keys once, before it writes them, makes none of them hot.
        let is_new = matches!(learnt.found, ObjectPresence::Absent(_)) && !learnt.cached;
        let answered = opening.holder.map_or(0, |holder| holder.answered);
        let reads = answered.saturating_add(u32::from(!is_new));
        if reads == 0 {
            return none;
        }
        // The read counts, whether or not the answer can be leased.
        if self.reads.count_reads(subject.hash, reads, now) < self.leases.reads_min
            || !self.coherence.is_quiet(subject.hash, self.leases.quiet, now)
        {
            return none;
        }
        let (Some(asked), Some(asked_own)) = (learnt.asked, learnt.asked_own) else { return none };
        // What the UFS said may be used no longer than as if it were asked for here.
        let doubted = self.coherence.doubted_age(&subject.object, subject.hash);
        let age_max = match learnt.found {
            ObjectPresence::Present(_) => opening.attributes_age,
            ObjectPresence::Absent(_) => opening.absence_age,
        };
        let old = match age_max.at_most(doubted) {
            AttributeMaxAge::AlwaysAsk => return none,
            AttributeMaxAge::UpTo(age) => Some(asked.saturating_add(age)),
            AttributeMaxAge::Any => None,
        };
        let length = self.leases.length.min(Duration::from_millis(LEASE_MS_MAX.into()));
        let granted = self.standing.to_grant(opening.epoch, times, |own_end| {
            // The lease counts from the arrival of the request. The gateway counts from when it
            // sent it, so its lease ends first.
            let end = opening.arrived.saturating_add(length).min(own_end);
            let left = end.min(old.unwrap_or(end)).duration_since(opening.arrived);
            if left < LEASE_MIN || now.duration_since(opening.arrived) >= left {
                return None;
            }
            let milliseconds = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
            let Some(holder) =
                opening.holder.filter(|holder| self.grants.is_polled_by(holder.id, now))
            else {
                return Some(AttributeLease { id: ID, milliseconds: 0 });
            };
            let valid = || {
                let voided = self.voids.latest_age(&subject.object, now);
                self.coherence.is_generation_valid(subject.hash, learnt.generation, now)
                    && self.attributes.is_still_known(subject.key, learnt.generation, asked_own)
                    && voided.is_none_or(|since| now.duration_since(asked) <= since)
            };
            let lease = NewLease {
                hash: subject.hash,
                holder: holder.id,
                end: opening.arrived.saturating_add(left),
                in_doubt: doubted.is_some(),
            };
            match self.grants.grant_lease(lease, now, valid) {
                Ok(()) => {
                    self.metrics.leases[LeaseGrantEvent::Granted].inc();
                    Some(AttributeLease { id: ID, milliseconds })
                }
                Err(LeaseGrantError::Full) => {
                    self.metrics.leases[LeaseGrantEvent::Full].inc();
                    None
                }
                Err(LeaseGrantError::Void) => None,
            }
        });
        granted.unwrap_or(none)
    }

    /// Returns whether a gateway may hold attributes of the key that are no longer cached here.
    /// There is then nothing to compare with.
    pub(crate) fn is_leased_unseen(
        &self,
        hash: KeyHash,
        key: AttributesKey,
        generation: KeyGeneration,
    ) -> bool {
        !self.attributes.has_entry(key, generation)
            && self.grants.is_granted(hash, self.clock.now())
    }

    /// Waits for a recall, but not for ever: the next poll shows that the holder is alive. A holder
    /// that polls for the first time, or again, is answered at once: only then does it ask for
    /// leases.
    pub(crate) async fn answer_recalls(
        &self,
        asked: RecallPollMessage,
    ) -> Result<RecallReply, ServeRefusal> {
        self.metrics.requests[CountedRequest::Recalls].inc();
        let RecallPollMessage { holder, life, through } = asked;
        // Another process has numbered its own recalls.
        let through = if life == self.life { through } else { 0 };
        let now = self.clock.now();
        let is_first = life != self.life || !self.grants.is_polled_by(holder, now);
        let poll = self.grants.poll(holder, through, now);
        let mut poll = poll.map_err(|_| {
            self.metrics.busy[BusyReason::LeaseHolders].inc();
            ServeRefusal::TooManyHolders
        })?;
        if !is_first {
            let wait = Duration::from_millis(RECALLS_WAIT_MS);
            let _ = timeout(wait, poll.wait_for_recall()).await;
        }
        Ok(poll.build_answer(self.life, self.clock.now()))
    }
}
