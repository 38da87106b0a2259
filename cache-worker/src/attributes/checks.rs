//! Who asks the UFS for whom: one check under way per object, and one more for those who may not
//! have its answer.
//!
//! A read may take the answer of a check only if no write has passed since that began, and if it is
//! not older than the read accepts. Others share the next one, which is sent when this one is
//! answered. Decides; asks nobody itself.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use verbs3_protocol::{Generation, Shown};

use super::cache::Needs;
use super::{Age, Outcome};
use crate::clock::Moment;
use crate::digest::{AttributesKey, DigestState};

/// What is asked of the UFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Page-aligned bytes of block 0 to get with the attributes; `None`: only the attributes.
    pub(crate) get: Option<RangeInclusive<u64>>,
    /// The object is likely to have so many bytes, all of them in `get`: to be asked for as a
    /// whole.
    pub(crate) whole: Option<u64>,
    pub(crate) needs: Needs,
}

/// A check that someone waits for. `None` until it is answered.
pub(crate) type Waiting = watch::Receiver<Option<Arc<Outcome>>>;
pub(crate) type Answering = watch::Sender<Option<Arc<Outcome>>>;

/// A check to be sent now.
pub(crate) struct Sent {
    pub(crate) plan: Plan,
    pub(crate) began: Moment,
    pub(crate) generation: Generation,
    pub(crate) answer: Answering,
}

/// A read that needs an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking {
    pub(crate) arrived: Moment,
    pub(crate) age: Age,
    /// The key's generation now.
    pub(crate) generation: Generation,
}

/// What became of a read that needs an answer.
pub(crate) enum Joined {
    /// It waits for a check of someone else.
    Waits(Waiting),
    /// It has to send the check.
    Sends(Waiting, Sent),
    /// The bound on checks is met.
    Full,
}

struct Running {
    plan: Plan,
    began: Moment,
    generation: Generation,
    waiting: Waiting,
    /// What a listing has shown since it was sent, the last of them.
    shown: Option<Option<Shown>>,
}

struct Queued {
    plan: Plan,
    answer: Answering,
}

struct Slot {
    running: Running,
    next: Option<Queued>,
}

/// The checks under way.
pub(crate) struct Checks {
    slots: Mutex<HashMap<AttributesKey, Slot, DigestState>>,
    slots_max: usize,
}

impl Plan {
    fn answers(&self, needs: Needs) -> bool {
        (self.needs.checksums || !needs.checksums) && (self.needs.error_body || !needs.error_body)
    }

    fn merge(&mut self, other: Self) {
        self.needs.checksums |= other.needs.checksums;
        self.needs.error_body |= other.needs.error_body;
        if self.get.is_none() {
            (self.get, self.whole) = (other.get, other.whole);
        }
    }
}

impl Running {
    fn may_answer(&self, asking: &Asking, needs: Needs) -> bool {
        self.generation == asking.generation
            && self.plan.answers(needs)
            && asking.age.accepts(asking.arrived.since(self.began))
    }
}

impl Checks {
    pub(crate) fn new(slots_max: usize) -> Self {
        Self { slots: Mutex::default(), slots_max }
    }

    /// Joins a check that may answer, or the next one, or makes one.
    pub(crate) fn join(
        &self,
        key: AttributesKey,
        plan: Plan,
        asking: &Asking,
        now: Moment,
    ) -> Joined {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.get_mut(&key) else {
            if slots.len() >= self.slots_max {
                return Joined::Full;
            }
            let (sent, running) = send(plan, now, asking.generation, None);
            let waiting = running.waiting.clone();
            slots.insert(key, Slot { running, next: None });
            return Joined::Sends(waiting, sent);
        };
        if slot.running.may_answer(asking, plan.needs) {
            return Joined::Waits(slot.running.waiting.clone());
        }
        match &mut slot.next {
            Some(next) => {
                next.plan.merge(plan);
                Joined::Waits(next.answer.subscribe())
            }
            None => {
                let (answer, waiting) = watch::channel(None);
                slot.next = Some(Queued { plan, answer });
                Joined::Waits(waiting)
            }
        }
    }

    /// A listing has shown that (`None`: no object). A check that is under way may be older.
    pub(crate) fn note_listed(&self, key: AttributesKey, shown: Option<&Shown>) {
        if let Some(slot) = self.slots.lock().get_mut(&key) {
            slot.running.shown = Some(shown.cloned());
        }
    }

    /// Keeps what the running check came to, with what a listing has shown since it was sent: no
    /// listing comes in between.
    pub(crate) fn settle<T>(
        &self,
        key: AttributesKey,
        settle: impl FnOnce(Option<&Option<Shown>>) -> T,
    ) -> T {
        let slots = self.slots.lock();
        settle(slots.get(&key).and_then(|slot| slot.running.shown.as_ref()))
    }

    /// The running check is answered: the next one, if anyone waits for it. `generation` is asked
    /// under the lock, so that no read joins the new check under another one.
    pub(crate) fn next(
        &self,
        key: AttributesKey,
        now: Moment,
        generation: impl Fn() -> Generation,
    ) -> Option<Sent> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(&key)?;
        let next = slot.next.take().filter(|next| next.answer.receiver_count() > 0);
        let Some(Queued { plan, answer }) = next else {
            slots.remove(&key);
            return None;
        };
        let (sent, running) = send(plan, now, generation(), Some(answer));
        slot.running = running;
        Some(sent)
    }

    /// The sender of this key's checks is gone: all who wait learn it by their channels.
    pub(crate) fn abandon(&self, key: AttributesKey) {
        self.slots.lock().remove(&key);
    }
}

fn send(
    plan: Plan,
    began: Moment,
    generation: Generation,
    answer: Option<Answering>,
) -> (Sent, Running) {
    let answer = answer.unwrap_or_else(|| watch::channel(None).0);
    let running =
        Running { plan: plan.clone(), began, generation, waiting: answer.subscribe(), shown: None };
    (Sent { plan, began, generation, answer }, running)
}

#[cfg(test)]
mod tests;
