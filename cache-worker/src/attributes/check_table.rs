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
use verbs3_protocol::{ContentVersion, KeyGeneration, ListedAttributes};

use super::attribute_cache::{AnswerRequirements, ObjectPresence};
use super::{AttributeCheckOutcome, AttributeMaxAge};
use crate::clock::WorkerInstant;
use crate::digest::{AttributesKey, DigestState};

/// What is asked of the UFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttributeCheckPlan {
    /// Page-aligned bytes of block 0 to get with the attributes; `None`: only the attributes.
    pub(crate) get: Option<RangeInclusive<u64>>,
    /// The object is likely to have so many bytes, all of them in `get`: to be asked for as a
    /// whole.
    pub(crate) whole: Option<u64>,
    pub(crate) needs: AnswerRequirements,
}

/// A check that someone waits for. `None` until it is answered.
pub(crate) type CheckAnswerReceiver = watch::Receiver<Option<Arc<AttributeCheckOutcome>>>;
pub(crate) type CheckAnswerSender = watch::Sender<Option<Arc<AttributeCheckOutcome>>>;

/// A check to be sent now.
pub(crate) struct OutgoingCheck {
    pub(crate) plan: AttributeCheckPlan,
    pub(crate) began: WorkerInstant,
    pub(crate) generation: KeyGeneration,
    pub(crate) answer: CheckAnswerSender,
}

/// A read that needs an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingAttributeRead {
    pub(crate) arrived: WorkerInstant,
    pub(crate) age: AttributeMaxAge,
    /// The key's generation now.
    pub(crate) generation: KeyGeneration,
}

/// What became of a read that needs an answer.
pub(crate) enum CheckAdmission {
    /// It waits for a check of someone else.
    Waits(CheckAnswerReceiver),
    /// It has to send the check.
    Sends(CheckAnswerReceiver, OutgoingCheck),
    /// The bound on checks is met.
    Full,
}

struct RunningCheck {
    plan: AttributeCheckPlan,
    began: WorkerInstant,
    generation: KeyGeneration,
    waiting: CheckAnswerReceiver,
    /// What was said of the key since it was sent.
    news: Vec<CheckNews>,
    /// More was said than is remembered.
    has_lost_news: bool,
}

/// What somebody has seen of a key while it was being asked about: the answer may be older.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CheckNews {
    /// A listing has shown that (`None`: no object).
    Listed(Option<ListedAttributes>),
    /// The UFS has this version no more.
    Gone(ContentVersion),
}

/// Different news that are remembered for one check: each answer is held against all of them.
/// Nobody lists or loses as many versions of a key within one question to a UFS; if so, it is asked
/// again.
const NEWS_MAX: usize = 8;

struct QueuedCheck {
    plan: AttributeCheckPlan,
    answer: CheckAnswerSender,
}

struct CheckTableEntry {
    running: RunningCheck,
    next: Option<QueuedCheck>,
}

/// The checks under way.
pub(crate) struct AttributeCheckTable {
    slots: Mutex<HashMap<AttributesKey, CheckTableEntry, DigestState>>,
    slots_max: usize,
}

impl AttributeCheckPlan {
    fn meets_requirements(&self, needs: AnswerRequirements) -> bool {
        (self.needs.checksums || !needs.checksums) && (self.needs.error_body || !needs.error_body)
    }

    fn merge_plan(&mut self, other: Self) {
        self.needs.checksums |= other.needs.checksums;
        self.needs.error_body |= other.needs.error_body;
        if self.get.is_none() {
            (self.get, self.whole) = (other.get, other.whole);
        }
    }
}

impl RunningCheck {
    fn may_answer(&self, asking: &PendingAttributeRead, needs: AnswerRequirements) -> bool {
        self.generation == asking.generation
            && self.plan.meets_requirements(needs)
            && asking.age.accepts_age(asking.arrived.duration_since(self.began))
    }

    fn note(&mut self, news: CheckNews) {
        if self.news.contains(&news) {
            return;
        }
        if self.news.len() < NEWS_MAX {
            self.news.push(news);
        } else {
            self.has_lost_news = true;
        }
    }

    /// All news count, whatever their order: a listing may be older than the one before it.
    fn is_contradicted(&self, found: &ObjectPresence) -> bool {
        let contradicts = |news: &CheckNews| match news {
            CheckNews::Listed(shown) => found.is_contradicted(shown.as_ref()),
            CheckNews::Gone(version) => found.is_of(version),
        };
        self.has_lost_news || self.news.iter().any(contradicts)
    }
}

impl AttributeCheckTable {
    pub(crate) fn new(slots_max: usize) -> Self {
        Self { slots: Mutex::default(), slots_max }
    }

    /// Joins a check that may answer, or the next one, or makes one.
    pub(crate) fn join_check(
        &self,
        key: AttributesKey,
        plan: AttributeCheckPlan,
        asking: &PendingAttributeRead,
        now: WorkerInstant,
    ) -> CheckAdmission {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.get_mut(&key) else {
            if slots.len() >= self.slots_max {
                return CheckAdmission::Full;
            }
            let (sent, running) = create_check(plan, now, asking.generation, None);
            let waiting = running.waiting.clone();
            slots.insert(key, CheckTableEntry { running, next: None });
            return CheckAdmission::Sends(waiting, sent);
        };
        if slot.running.may_answer(asking, plan.needs) {
            return CheckAdmission::Waits(slot.running.waiting.clone());
        }
        match &mut slot.next {
            Some(next) => {
                next.plan.merge_plan(plan);
                CheckAdmission::Waits(next.answer.subscribe())
            }
            None => {
                let (answer, waiting) = watch::channel(None);
                slot.next = Some(QueuedCheck { plan, answer });
                CheckAdmission::Waits(waiting)
            }
        }
    }

    /// A listing has shown that (`None`: no object). A check that is under way may be older.
    pub(crate) fn note_listed(&self, key: AttributesKey, shown: Option<&ListedAttributes>) {
        self.note(key, CheckNews::Listed(shown.cloned()));
    }

    /// The UFS has this version no more. A check that is under way may have seen it.
    pub(crate) fn note_gone(&self, key: AttributesKey, version: &ContentVersion) {
        self.note(key, CheckNews::Gone(version.clone()));
    }

    fn note(&self, key: AttributesKey, news: CheckNews) {
        if let Some(slot) = self.slots.lock().get_mut(&key) {
            slot.running.note(news);
        }
    }

    /// Has what the running check found kept, unless anything contradicts it that was noted since it
    /// was sent: nothing is noted in between.
    pub(crate) fn settle_check(
        &self,
        key: AttributesKey,
        found: &ObjectPresence,
        keep: impl FnOnce(),
    ) -> bool {
        let slots = self.slots.lock();
        let is_late = slots.get(&key).is_some_and(|slot| slot.running.is_contradicted(found));
        if !is_late {
            keep();
        }
        !is_late
    }

    /// The running check is answered: the next one, if anyone waits for it. `generation` is asked
    /// under the lock, so that no read joins the new check under another one.
    pub(crate) fn next(
        &self,
        key: AttributesKey,
        now: WorkerInstant,
        generation: impl Fn() -> KeyGeneration,
    ) -> Option<OutgoingCheck> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(&key)?;
        let next = slot.next.take().filter(|next| next.answer.receiver_count() > 0);
        let Some(QueuedCheck { plan, answer }) = next else {
            slots.remove(&key);
            return None;
        };
        let (sent, running) = create_check(plan, now, generation(), Some(answer));
        slot.running = running;
        Some(sent)
    }

    /// The sender of this key's checks is gone: all who wait learn it by their channels.
    pub(crate) fn abandon_checks(&self, key: AttributesKey) {
        self.slots.lock().remove(&key);
    }
}

fn create_check(
    plan: AttributeCheckPlan,
    began: WorkerInstant,
    generation: KeyGeneration,
    answer: Option<CheckAnswerSender>,
) -> (OutgoingCheck, RunningCheck) {
    let answer = answer.unwrap_or_else(|| watch::channel(None).0);
    let running = RunningCheck {
        plan: plan.clone(),
        began,
        generation,
        waiting: answer.subscribe(),
        news: Vec::new(),
        has_lost_news: false,
    };
    (OutgoingCheck { plan, began, generation, answer }, running)
}

#[cfg(test)]
mod tests;
