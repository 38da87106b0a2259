//! Leases: which opens are answered with one, and the polls by which holders hear that theirs are
//! recalled.

use std::time::Duration;

use tokio::time::timeout;
use verbs3_protocol::{
    Generation, KeyHash, LEASE_MS_MAX, Lease, RECALLS_WAIT_MS, Recalls, RefusalKind,
    Reply as Message,
};

use super::Refused;
use super::open::{Learnt, Opening};
use crate::attributes::{Age, Ungranted};
use crate::digest::AttributesKey;
use crate::worker::Worker;

/// A lease of less is worth no recall.
const LEASE_MIN: Duration = Duration::from_millis(50);

/// Of a lease, where there is one: nobody asks for it by its number.
const ID: u64 = 1;

impl Worker {
    /// With attributes that were known, of a key that is read often and was not written for a
    /// while.
    pub(super) fn lease_on(&self, opening: &Opening, learnt: &Learnt) -> Lease {
        let (none, subject) = (Lease::default(), &opening.subject);
        if self.leases.length.is_zero() || subject.version_id.is_some() {
            return none;
        }
        let times = self.clock.times();
        let now = times.now;
        let reads = opening.holder.map_or(0, |holder| holder.answered).saturating_add(1);
        // Whatever is known of it, it was read.
        if self.reads.count(subject.hash, reads, now) < self.leases.reads_min
            || !self.coherence.is_quiet(subject.hash, self.leases.quiet, now)
        {
            return none;
        }
        let Some(asked) = learnt.asked else { return none };
        // What the UFS said may be used no longer than as if it were asked for here.
        let old = match opening.attributes_age.at_most(self.coherence.doubted_age(subject.hash)) {
            Age::AlwaysAsk => return none,
            Age::UpTo(age) => Some(asked.after(age)),
            Age::Any => None,
        };
        let length = self.leases.length.min(Duration::from_millis(LEASE_MS_MAX.into()));
        let granted = self.standing.to_grant(opening.epoch, times, |own_end| {
            // Counted from when the question came, which its asker counts as later than it was
            // sent.
            let end = opening.arrived.after(length).min(own_end);
            let left = end.min(old.unwrap_or(end)).since(opening.arrived);
            if left < LEASE_MIN || now.since(opening.arrived) >= left {
                return None;
            }
            let milliseconds = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
            let Some(holder) =
                opening.holder.filter(|holder| self.grants.is_polled_by(holder.id, now))
            else {
                return Some(Lease { id: ID, milliseconds: 0 });
            };
            let valid = || {
                let voided = self.voids.since(&subject.object, now);
                self.coherence.holds(subject.hash, learnt.generation, now)
                    && self.attributes.is_still_known(subject.key, learnt.generation, asked)
                    && voided.is_none_or(|since| now.since(asked) <= since)
            };
            match self.grants.grant(
                subject.hash,
                (holder.id, opening.arrived.after(left)),
                now,
                valid,
            ) {
                Ok(()) => {
                    self.metrics.leases_granted.inc();
                    Some(Lease { id: ID, milliseconds })
                }
                Err(Ungranted::Full) => {
                    self.metrics.leases_full.inc();
                    None
                }
                Err(Ungranted::Void) => None,
            }
        });
        granted.unwrap_or(none)
    }

    /// Whether somebody may hold attributes of the key that are not known here any more: nothing can
    /// be held against them.
    pub(super) fn is_leased_unseen(
        &self,
        hash: KeyHash,
        key: AttributesKey,
        generation: Generation,
    ) -> bool {
        !self.attributes.knows(key, generation) && self.grants.is_granted(hash, self.clock.now())
    }

    /// Waits for a recall, but not for ever: the next poll says that the holder is there.
    pub(super) async fn recalls(&self, asked: Recalls) -> Result<Message, Refused> {
        self.metrics.recalls.inc();
        let Recalls { holder, life, through } = asked;
        // Another process has numbered its own recalls.
        let through = if life == self.life { through } else { 0 };
        let poll = self.grants.poll(holder, through, self.clock.now());
        let mut poll = poll.map_err(|_| {
            self.metrics.busy_holders.inc();
            Refused::new(
                RefusalKind::Busy,
                "no lease is granted to another gateway; raise worker.leases.holders_max",
            )
        })?;
        let _ = timeout(Duration::from_millis(RECALLS_WAIT_MS), poll.recalled()).await;
        Ok(Message::Recalled(poll.answer(self.life, self.clock.now())))
    }
}
