//! The single-flight table of checks: one check under way per object, and one more for reads that
//! may not use its answer.
//!
//! A read may use the answer of a check under two conditions: no write has passed since the check
//! began, and the answer is not older than the read accepts. Other reads share the next check,
//! which is sent when this one is answered. Decides only: it sends nothing itself.
//!
//! Tenants share the places of checks under way, and a check takes the turn at the store of any tenant
//! that waits for it.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use verbs3_protocol::{ContentVersion, KeyGeneration, ListedAttributes};

use super::account_places::{AccountPlaces, PlaceReserve};
use super::attribute_cache::{AnswerRequirements, ObjectPresence};
use super::{AttributeCheckOutcome, AttributeMaxAge};
use crate::clock::WorkerInstant;
use crate::digest::{AttributesKey, DigestState};
use crate::tenants::{TenantAccount, TenantAccounts, WaitingAccounts};

/// The bytes to get together with the attributes, up to the borders of pages, or of parts of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FirstBytesPlan {
    /// They begin in block 0, and go on over its border if the reader has named an end behind it.
    pub(crate) range: RangeInclusive<u64>,
    /// The reader wants all bytes behind them, too.
    pub(crate) to_end: bool,
}

/// The content of a request to the UFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttributeCheckPlan {
    /// Bytes to get with the attributes; `None`: only the attributes.
    pub(crate) get: Option<FirstBytesPlan>,
    /// The object probably has this many bytes, all of them in `get`. It is then requested as a
    /// whole.
    pub(crate) whole: Option<u64>,
    pub(crate) needs: AnswerRequirements,
}

/// The answer of a check. `None` until it arrives.
pub(crate) type CheckAnswerReceiver = watch::Receiver<Option<Arc<AttributeCheckOutcome>>>;
pub(crate) type CheckAnswerSender = watch::Sender<Option<Arc<AttributeCheckOutcome>>>;

/// A check to be sent now.
pub(crate) struct OutgoingCheck {
    pub(crate) plan: AttributeCheckPlan,
    pub(crate) began: WorkerInstant,
    pub(crate) generation: KeyGeneration,
    /// For whom it is sent.
    pub(crate) askers: CheckAskers,
    pub(crate) answer: CheckAnswerSender,
}

/// For whom a check is sent.
#[derive(Clone)]
pub(crate) struct CheckAskers {
    /// Who asked first. Its pages and its place count for this one.
    pub(crate) first: TenantAccount,
    pub(crate) waiting: Arc<WaitingAccounts>,
}

impl CheckAskers {
    fn new(first: TenantAccount) -> Self {
        Self { first, waiting: Arc::new(WaitingAccounts::new()) }
    }
}

/// A read that needs an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingAttributeRead {
    pub(crate) arrived: WorkerInstant,
    pub(crate) age: AttributeMaxAge,
    /// The key's generation now.
    pub(crate) generation: KeyGeneration,
    /// For whom it reads.
    pub(crate) account: TenantAccount,
}

/// The outcome of admitting a read that needs an answer.
pub(crate) enum CheckAdmission {
    /// The read waits for another read's check.
    Waits(CheckAnswerReceiver),
    /// The read has to send the check.
    Sends(CheckAnswerReceiver, OutgoingCheck),
    /// The bound on checks is met, or what is free is kept for other tenants.
    Full,
}

struct RunningCheck {
    plan: AttributeCheckPlan,
    began: WorkerInstant,
    generation: KeyGeneration,
    askers: CheckAskers,
    waiting: CheckAnswerReceiver,
    /// News about the key since the check was sent.
    news: Vec<CheckNews>,
    /// There was more news than is remembered.
    has_lost_news: bool,
}

/// An observation of a key during its check. The check's answer may be older.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CheckNews {
    /// A listing showed this state (`None`: no object).
    Listed(Option<ListedAttributes>),
    /// The UFS no longer has this version.
    Gone(ContentVersion),
}

/// Distinct news that are remembered for one check. Each answer is compared with all of them. More
/// versions of one key are hardly ever listed or lost within one check; in that case the check is
/// repeated.
const NEWS_MAX: usize = 8;

struct QueuedCheck {
    plan: AttributeCheckPlan,
    askers: CheckAskers,
    answer: CheckAnswerSender,
}

struct CheckTableEntry {
    running: RunningCheck,
    next: Option<QueuedCheck>,
}

/// A table of the checks under way.
pub(crate) struct AttributeCheckTable {
    slots: Mutex<HashMap<AttributesKey, CheckTableEntry, DigestState>>,
    /// Each entry has one, for who asked for its running check first. Changed under the lock of
    /// `slots`.
    places: AccountPlaces,
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
    /// Returns whether it has ended without a turn. Who comes now was not asked for.
    fn has_no_turn(&self) -> bool {
        matches!(self.waiting.borrow().as_deref(), Some(AttributeCheckOutcome::NoTurn { .. }))
    }

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
    pub(crate) fn new(slots_max: usize, tenants: Arc<TenantAccounts>) -> Self {
        Self { slots: Mutex::default(), places: AccountPlaces::new(slots_max, tenants) }
    }

    /// Joins a check whose answer the read may use, or the next check, or creates one.
    pub(crate) fn join_check(
        &self,
        key: AttributesKey,
        plan: AttributeCheckPlan,
        asking: &PendingAttributeRead,
        now: WorkerInstant,
    ) -> CheckAdmission {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.get_mut(&key) else {
            if !self.places.try_take(asking.account, 1, PlaceReserve::StaysFree, now) {
                return CheckAdmission::Full;
            }
            let (answer, askers) = (watch::channel(None).0, CheckAskers::new(asking.account));
            let queued = QueuedCheck { plan, askers, answer };
            let (sent, running) = queued.start_check(now, asking.generation);
            let waiting = running.waiting.clone();
            slots.insert(key, CheckTableEntry { running, next: None });
            return CheckAdmission::Sends(waiting, sent);
        };
        if slot.running.may_answer(asking, plan.needs) && !slot.running.has_no_turn() {
            slot.running.askers.waiting.note_joined(asking.account);
            return CheckAdmission::Waits(slot.running.waiting.clone());
        }
        match &mut slot.next {
            Some(next) => {
                next.plan.merge_plan(plan);
                next.askers.waiting.note_joined(asking.account);
                CheckAdmission::Waits(next.answer.subscribe())
            }
            None => {
                let (answer, waiting) = watch::channel(None);
                let askers = CheckAskers::new(asking.account);
                slot.next = Some(QueuedCheck { plan, askers, answer });
                CheckAdmission::Waits(waiting)
            }
        }
    }

    /// Records that a listing showed this state (`None`: no object). A check under way may be
    /// older.
    pub(crate) fn note_listed(&self, key: AttributesKey, shown: Option<&ListedAttributes>) {
        self.note(key, CheckNews::Listed(shown.cloned()));
    }

    /// Records that the UFS no longer has this version. A check under way may have seen it.
    pub(crate) fn note_gone(&self, key: AttributesKey, version: &ContentVersion) {
        self.note(key, CheckNews::Gone(version.clone()));
    }

    fn note(&self, key: AttributesKey, news: CheckNews) {
        if let Some(slot) = self.slots.lock().get_mut(&key) {
            slot.running.note(news);
        }
    }

    /// Keeps the running check's answer, unless news recorded since the check was sent contradict
    /// it. No news can be recorded in between.
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

    /// Ends the running check, and returns the next one if anyone waits for it. `generation` is
    /// read under the lock, so that no read joins the new check under another one.
    pub(crate) fn next(
        &self,
        key: AttributesKey,
        now: WorkerInstant,
        generation: impl Fn() -> KeyGeneration,
    ) -> Option<OutgoingCheck> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(&key)?;
        let next = slot.next.take().filter(|next| next.answer.receiver_count() > 0);
        self.places.give_back(slot.running.askers.first, 1);
        let Some(next) = next else {
            slots.remove(&key);
            return None;
        };
        // The place that was just given back, whatever is kept: its readers were let in already.
        let first = next.askers.first;
        if !self.places.try_take(first, 1, PlaceReserve::MayBeUsed, now) {
            slots.remove(&key);
            return None;
        }
        let (sent, running) = next.start_check(now, generation());
        slot.running = running;
        Some(sent)
    }

    /// Removes this key's checks because their sender is gone. All waiters see their channels
    /// close.
    pub(crate) fn abandon_checks(&self, key: AttributesKey) {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.remove(&key) {
            self.places.give_back(slot.running.askers.first, 1);
        }
    }
}

impl QueuedCheck {
    fn start_check(
        self,
        began: WorkerInstant,
        generation: KeyGeneration,
    ) -> (OutgoingCheck, RunningCheck) {
        let Self { plan, askers, answer } = self;
        let running = RunningCheck {
            plan: plan.clone(),
            began,
            generation,
            askers: askers.clone(),
            waiting: answer.subscribe(),
            news: Vec::new(),
            has_lost_news: false,
        };
        (OutgoingCheck { plan, began, generation, askers, answer }, running)
    }
}

#[cfg(test)]
mod tests;
