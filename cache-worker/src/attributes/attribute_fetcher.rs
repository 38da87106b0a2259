//! Sends the checks to the UFS. If the wanted bytes begin in block 0, one GET brings attributes and
//! first pages in one round trip, and all that the reader wants where its end is named or guessed.
//! Otherwise a HEAD is sent. The GET is ranged, unless the object is known or guessed to fit: only
//! the answer to a full GET shows by itself that the object has no checksums. Where a ranged GET is
//! sent and checksums are wanted, a HEAD is sent beside it.
//!
//! Each request has a turn at its store, which tenants share: that of any tenant whose reads wait
//! for the answer. A check whose GET is under way never waits for a second turn: a HEAD beside a
//! GET takes a turn that is free, or comes after it.
//!
//! Tasks belong to the worker: a reader that leaves does not cancel the check for its other
//! waiters.

mod store_answers;

use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;

use futures::future::{OptionFuture, maybe_done};
use tokio_util::sync::CancellationToken;
use verbs3_protocol::{HeadAttributes, KeyGeneration, RefusalKind};
use verbs3_ufs::{ObjectHead, ObjectStream, ReadObject, UfsError};

use super::attribute_cache::{
    AnswerRequirements, AttributeCache, AttributeCacheEntry, ObjectPresence,
};
use super::check_table::{
    AttributeCheckPlan, AttributeCheckTable, CheckAdmission, CheckAnswerReceiver, CheckAskers,
    FirstBytesPlan, OutgoingCheck, PendingAttributeRead,
};
use super::coherence_table::CoherenceTable;
use super::lease_grants::{LeaseGrantTable, RecallScope};
use super::size_guess::ObjectSizeGuess;
use super::{AttributeCheckOutcome, AttributeQuery, kept_answers};
use crate::call_trace::ask_ufs;
use crate::clock::WorkerClock;
use crate::digest::{AttributesKey, KeyedDigester};
use crate::fill::{
    CheckPermit, PageFillError, PageFiller, RunInterest, UfsReadPermit, to_ufs_answer,
};
use crate::metrics::{AttributesFound, BusyReason, UfsRequestKind, WorkerMetrics};
use crate::tasks::WorkerTaskSet;
use crate::tenants::{TenantAccounts, TurnsRefused};
use store_answers::{
    UfsAttributeAnswer, add_checksums, answer_from_head, beyond_ranges, refused_by_ufs,
};

/// A check as its requests to the store need it.
#[derive(Clone, Copy)]
struct StoreCheck<'a> {
    subject: &'a AttributeQuery,
    askers: &'a CheckAskers,
    needs: AnswerRequirements,
}

/// The single-flight fetcher of attributes from a UFS.
pub(crate) struct AttributeFetcher {
    pub(crate) coherence: Arc<CoherenceTable>,
    pub(crate) cache: Arc<AttributeCache>,
    pub(crate) checks: AttributeCheckTable,
    pub(crate) grants: Arc<LeaseGrantTable>,
    pub(crate) filler: Arc<PageFiller>,
    pub(crate) digests: KeyedDigester,
    pub(crate) tenants: Arc<TenantAccounts>,
    pub(crate) sizes: ObjectSizeGuess,
    pub(crate) clock: Arc<dyn WorkerClock>,
    pub(crate) tasks: WorkerTaskSet,
    pub(crate) stop: CancellationToken,
    pub(crate) metrics: WorkerMetrics,
}

impl AttributeFetcher {
    /// Joins a check that is under way, or sends a new one. Returns `None` when too many checks are
    /// under way.
    pub(crate) fn request_check(
        self: &Arc<Self>,
        subject: &AttributeQuery,
        plan: AttributeCheckPlan,
        asking: &PendingAttributeRead,
    ) -> Option<CheckAnswerReceiver> {
        match self.checks.join_check(subject.key, plan, asking, self.clock.now()) {
            CheckAdmission::Waits(waiting) => {
                self.metrics.attributes[AttributesFound::Joined].inc();
                Some(waiting)
            }
            CheckAdmission::Sends(waiting, sent) => {
                self.metrics.attributes[AttributesFound::Checked].inc();
                self.tasks.spawn(self.clone().send_all(subject.clone(), sent));
                Some(waiting)
            }
            CheckAdmission::Full => {
                self.metrics.busy[BusyReason::Checks].inc();
                self.tenants.metrics_of(asking.account).fill_refusals.inc();
                None
            }
        }
    }

    /// Sends a check, then further ones as long as anyone waits for one. The task may be cancelled:
    /// its waiters then see a closed channel.
    async fn send_all(self: Arc<Self>, mut subject: AttributeQuery, sent: OutgoingCheck) {
        self.metrics.checks_in_flight.inc();
        let mut sending = CheckTaskGuard { asker: &self, key: subject.key, finished: false };
        let mut sent = Some(sent);
        while let Some(now) = sent.take() {
            // Those who wait for a later check need not be those who waited for the first.
            subject.account = now.askers.first;
            let outcome = self.run_check(&subject, &now).await;
            now.answer.send_replace(Some(Arc::new(outcome)));
            sent = self.checks.next(subject.key, self.clock.now(), || {
                self.coherence.current_generation(subject.hash)
            });
        }
        sending.finished = true;
    }

    async fn run_check(
        &self,
        subject: &AttributeQuery,
        sent: &OutgoingCheck,
    ) -> AttributeCheckOutcome {
        let times = self.clock.read_times();
        match self.coherence.admit_key(subject.hash, times.now) {
            Ok(generation) if generation == sent.generation => {}
            Ok(_) => return AttributeCheckOutcome::Moved,
            Err(_) => return AttributeCheckOutcome::Uncertain,
        }
        // If the doubt ends before the store is asked, more is asked again than necessary.
        let in_doubt = self.coherence.doubted_age(&subject.object, subject.hash).is_some();
        let answered = tokio::select! {
            biased;
            () = self.stop.cancelled() => UfsAttributeAnswer::stopping(),
            answered = self.query_ufs(subject, sent) => answered,
        };
        if !self.coherence.is_generation_valid(subject.hash, sent.generation, self.clock.now()) {
            self.metrics.checks_moved.inc();
            return AttributeCheckOutcome::Moved;
        }
        let (found, is_worth_it, coming) = match answered {
            UfsAttributeAnswer::Present(attributes, coming) => {
                (ObjectPresence::Present(Arc::new(attributes)), true, coming)
            }
            UfsAttributeAnswer::Absent(raw) => {
                let is_worth_it = kept_answers::names_an_absence(&raw);
                (ObjectPresence::Absent(Arc::new(to_ufs_answer(&raw))), is_worth_it, None)
            }
            UfsAttributeAnswer::Changing => return AttributeCheckOutcome::Moved,
            UfsAttributeAnswer::Refused(refusal) => return AttributeCheckOutcome::Refused(refusal),
            UfsAttributeAnswer::NoTurn(refusal, asked) => {
                return AttributeCheckOutcome::NoTurn { refusal, asked };
            }
        };
        // Returns false if the answer is older than what a listing or a reader saw meanwhile.
        let keep = |generation: KeyGeneration| {
            self.checks.settle_check(subject.key, &found, || {
                if is_worth_it {
                    let found = found.clone();
                    let (asked, missed) = (sent.began, times.missed());
                    let known = AttributeCacheEntry { generation, asked, missed, in_doubt, found };
                    self.cache.insert(subject.key, known);
                }
            })
        };
        let recalled = self.recall_older(subject, sent.generation, &found).await;
        let Some(generation) = recalled.filter(|&generation| keep(generation)) else {
            self.metrics.checks_moved.inc();
            return AttributeCheckOutcome::Moved;
        };
        match found {
            ObjectPresence::Present(attributes) => {
                AttributeCheckOutcome::Present { attributes, generation, coming }
            }
            ObjectPresence::Absent(answer) => AttributeCheckOutcome::Absent { answer, generation },
        }
    }

    /// Recalls leases on an older state before an answer is given to anyone, so that no gateway
    /// reads on from it. Returns the generation under which the answer may be kept; the older state
    /// is void under it. Returns `None` if something else invalidated the answer.
    async fn recall_older(
        &self,
        subject: &AttributeQuery,
        generation: KeyGeneration,
        found: &ObjectPresence,
    ) -> Option<KeyGeneration> {
        // Leases cover the current version only, never one that a client named.
        if subject.version_id.is_some() {
            return Some(generation);
        }
        let now = self.clock.now();
        // What is no longer cached here may still be leased. Whoever recalled a lease
        // waits for it.
        let is_leased_unseen = || self.grants.is_unrecalled(subject.hash, now);
        let replaced = self.cache.is_replaced(subject.key, generation, found);
        if !replaced.unwrap_or_else(is_leased_unseen) {
            return Some(generation);
        }
        self.metrics.generations_raised.inc();
        let raised = self.coherence.raise_generations(&[subject.hash], now);
        let concerned = RecallScope::Keys(vec![subject.hash]);
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return None,
            () = self.grants.wait_for_recalls(&concerned, &*self.clock) => {}
        }
        let is_alone = raised.0 == generation.0 + 1;
        (is_alone && self.coherence.is_generation_valid(subject.hash, raised, self.clock.now()))
            .then_some(raised)
    }

    async fn query_ufs(
        &self,
        subject: &AttributeQuery,
        sent: &OutgoingCheck,
    ) -> UfsAttributeAnswer {
        let OutgoingCheck { plan, askers, .. } = sent;
        let check = StoreCheck { subject, askers, needs: plan.needs };
        match &plan.get {
            // If a former owner has the pages, only a HEAD is sent. The pages then come from that
            // owner.
            Some(get) if !self.filler.former_holds(subject, *get.range.start()).await => {
                let guessed = || self.guess_length(subject, get).filter(|_| plan.needs.checksums);
                let range = get.range.clone();
                match plan.whole.or_else(guessed) {
                    Some(bytes) => self.ask_whole(check, range, bytes).await,
                    // All that there is of these bytes is wanted, so no guess asks for too much.
                    None if get.to_end && !self.filler.turns_wait() => {
                        let last = self.sizes.possible_limit(&subject.object) - 1;
                        let range = *range.start()..=last.max(*range.end());
                        self.ask_get(check, range).await
                    }
                    None => self.ask_get(check, range).await,
                }
            }
            _ => self.ask_head(check).await,
        }
    }

    /// Takes a turn to ask for attributes alone, for any of those who wait. Call it only while
    /// holding none.
    async fn take_check_turn(
        &self,
        check: StoreCheck<'_>,
    ) -> Result<CheckPermit, TurnsRefused<PageFillError>> {
        let CheckAskers { first, waiting } = check.askers;
        let ufs = &check.subject.source.ufs;
        let take_turn = |account| self.filler.acquire_check_permit(ufs, account);
        waiting.take_any_turn(*first, take_turn).await
    }

    /// Takes a turn to read `bytes`, for any of those who wait.
    async fn take_read_turn(
        &self,
        check: StoreCheck<'_>,
        bytes: u64,
    ) -> Result<UfsReadPermit, TurnsRefused<PageFillError>> {
        let CheckAskers { first, waiting } = check.askers;
        let ufs = &check.subject.source.ufs;
        let take_turn = |account| self.filler.acquire_read_permit(ufs, bytes, account);
        waiting.take_any_turn(*first, take_turn).await
    }

    /// Returns the length that the object probably has at most, if no more than all of it is wanted.
    fn guess_length(&self, subject: &AttributeQuery, get: &FirstBytesPlan) -> Option<u64> {
        let limit = self.sizes.expected_limit(&subject.object)?;
        let wants_all = *get.range.start() == 0 && (get.to_end || get.range.end() + 1 >= limit);
        wants_all.then_some(limit)
    }

    /// Requests the whole object, which probably has at most `bytes` bytes.
    async fn ask_whole(
        &self,
        check: StoreCheck<'_>,
        range: RangeInclusive<u64>,
        bytes: u64,
    ) -> UfsAttributeAnswer {
        let StoreCheck { subject, needs, .. } = check;
        let ufs = &subject.source.ufs;
        // A request that goes on to further blocks asks for their bytes then.
        let first = bytes.min(self.filler.block_bytes());
        let turn = match self.take_read_turn(check, first).await {
            Ok(turn) => turn,
            Err(refused) => return UfsAttributeAnswer::no_turn(refused),
        };
        self.metrics.ufs_requests[UfsRequestKind::Get].inc();
        let stream =
            match ask_ufs(ufs, "GetObject", ufs.read(build_read_request(subject, needs.checksums)))
                .await
            {
                Ok(stream) => stream,
                Err(error) => return refused_by_ufs(error),
            };
        self.note_size(subject, &stream.head);
        let wanted = range.end() + 1;
        if stream.head.bytes > bytes && wanted > bytes {
            // The object has grown. The rest of this answer's body is not read.
            drop((stream, turn));
            return self.ask_get(check, range).await;
        }
        if let Some(refused) = beyond_ranges(subject, &stream.head) {
            return refused;
        }
        let version = match kept_answers::stated_version(&stream.head)
            .cacheable_version(subject.version_id.as_deref())
        {
            Ok(version) => version,
            Err(error) => return UfsAttributeAnswer::refused(RefusalKind::Uncacheable, &error),
        };
        let attributes = kept_answers::build_attributes(&stream.head, version, needs.checksums);
        let fits = stream.head.bytes <= bytes;
        let stream = if fits { stream } else { stream.cut_at(wanted) };
        let coming = self.fill_from_answer(subject, &attributes, stream, turn);
        UfsAttributeAnswer::Present(attributes, coming)
    }

    fn note_size(&self, subject: &AttributeQuery, head: &ObjectHead) {
        self.sizes.note_length(&subject.object, head.bytes);
    }

    async fn ask_get(
        &self,
        check: StoreCheck<'_>,
        range: RangeInclusive<u64>,
    ) -> UfsAttributeAnswer {
        let StoreCheck { subject, needs, .. } = check;
        // Of further blocks, the fill asks for the bytes when it gets there.
        let block_bytes = self.filler.block_bytes();
        let bytes =
            (range.end() - range.start() + 1).min(block_bytes - range.start() % block_bytes);
        let ufs = &subject.source.ufs;
        let turn = match self.take_read_turn(check, bytes).await {
            Ok(turn) => turn,
            Err(refused) => return UfsAttributeAnswer::no_turn(refused),
        };
        self.metrics.ufs_requests[UfsRequestKind::Get].inc();
        let read =
            ReadObject { range: Some(range), ..build_read_request(subject, needs.checksums) };
        let mut get = pin!(ask_ufs(ufs, "GetObject", ufs.read(read)));
        let free_turn = || self.filler.try_check_permit(ufs, subject.account);
        let head_turn = needs.checksums.then(free_turn).flatten();
        let head = head_turn.map(|turn| self.ask_checksums(subject, turn));
        let mut head = pin!(maybe_done(OptionFuture::from(head)));
        let answered = tokio::select! {
            answered = get.as_mut() => answered,
            () = head.as_mut() => get.await,
        };
        let stream = match answered {
            Ok(stream) => stream,
            // The object is empty, or ends before the first wanted byte: only its attributes can be
            // requested.
            Err(UfsError::Answer { answer, .. }) if answer.status.as_u16() == 416 => {
                // Both turns are given back before another one is waited for.
                drop(turn);
                head.set(maybe_done(OptionFuture::from(None)));
                return self.ask_head(check).await;
            }
            Err(error) => return refused_by_ufs(error),
        };
        self.note_size(subject, &stream.head);
        if let Some(refused) = beyond_ranges(subject, &stream.head) {
            return refused;
        }
        let version = match kept_answers::stated_version(&stream.head)
            .cacheable_version(subject.version_id.as_deref())
        {
            Ok(version) => version,
            Err(error) => return UfsAttributeAnswer::refused(RefusalKind::Uncacheable, &error),
        };
        let covers_all = stream.range == (0..stream.head.bytes);
        let own_checksums = kept_answers::has_own_checksums(&stream.head, covers_all);
        let attributes = kept_answers::build_attributes(&stream.head, version, own_checksums);
        let coming = self.fill_from_answer(subject, &attributes, stream, turn);
        if !needs.checksums || own_checksums {
            return UfsAttributeAnswer::Present(attributes, coming);
        }
        head.as_mut().await;
        let head = match head.take_output().flatten() {
            Some(head) => head,
            // The pages are on their way, with a turn that does not wait for this one.
            None => match self.take_check_turn(check).await {
                Ok(turn) => self.ask_checksums(subject, turn).await,
                Err(refused) => return UfsAttributeAnswer::no_turn(refused),
            },
        };
        add_checksums(subject.version_id.as_deref(), head, attributes, coming)
    }

    /// Asks for the checksums of the version that is there now. It need not be that of a GET beside
    /// it: versions have to be compared.
    async fn ask_checksums(
        &self,
        subject: &AttributeQuery,
        _turn: CheckPermit,
    ) -> Result<ObjectHead, UfsError> {
        self.metrics.ufs_requests[UfsRequestKind::Head].inc();
        let ufs = &subject.source.ufs;
        let head = ufs.head_object(build_read_request(subject, true));
        ask_ufs(ufs, "HeadObject", head).await.inspect_err(|error| {
            tracing::debug!(object = %subject.object, %error, "no checksums for this object");
        })
    }

    fn fill_from_answer(
        &self,
        subject: &AttributeQuery,
        attributes: &HeadAttributes,
        stream: ObjectStream,
        turn: UfsReadPermit,
    ) -> Option<RunInterest> {
        let target = subject.fill_target(&attributes.version, &self.digests);
        self.filler.start_answered(target, stream, turn)
    }

    async fn ask_head(&self, check: StoreCheck<'_>) -> UfsAttributeAnswer {
        let StoreCheck { subject, needs, .. } = check;
        let ufs = &subject.source.ufs;
        let _turn = match self.take_check_turn(check).await {
            Ok(turn) => turn,
            Err(refused) => return UfsAttributeAnswer::no_turn(refused),
        };
        self.metrics.ufs_requests[UfsRequestKind::Head].inc();
        let head = ufs.head_object(build_read_request(subject, needs.checksums));
        let error = match ask_ufs(ufs, "HeadObject", head).await {
            Ok(head) => return answer_from_head(subject, &head, needs.checksums),
            Err(error) => error,
        };
        let Some(raw) = error.raw_answer() else { return refused_by_ufs(error) };
        // An error to a HEAD has no body, but the client of a GET needs one. Only its code tells a
        // missing key, which may be cached, from a missing bucket.
        let absent = raw.status.as_u16() == 404 && !kept_answers::is_delete_marker(raw);
        if !needs.error_body && (!absent || kept_answers::names_an_absence(raw)) {
            return refused_by_ufs(error);
        }
        self.metrics.ufs_requests[UfsRequestKind::Get].inc();
        let read = ReadObject { range: Some(0..=0), ..build_read_request(subject, false) };
        match ask_ufs(ufs, "GetObject", ufs.read(read)).await {
            Ok(_) => UfsAttributeAnswer::Changing,
            Err(UfsError::Answer { answer, .. }) if answer.status.as_u16() == 416 => {
                UfsAttributeAnswer::Changing
            }
            Err(UfsError::Answer { answer, .. }) if answer.status.as_u16() == 404 => {
                UfsAttributeAnswer::Absent(*answer)
            }
            // The client of a HEAD needs no more than the HEAD's own answer, which is not cached.
            Err(_) if !needs.error_body => refused_by_ufs(error),
            Err(error) => refused_by_ufs(error),
        }
    }
}

fn build_read_request(subject: &AttributeQuery, checksums: bool) -> ReadObject {
    ReadObject {
        bucket: subject.source.bucket.clone(),
        key: subject.object.key.clone(),
        version_id: subject.version_id.clone(),
        if_match: None,
        range: None,
        checksums,
    }
}

/// The guard of a task that sends an object's checks. When the task ends, for any reason, the
/// object has no check under way.
struct CheckTaskGuard<'a> {
    asker: &'a AttributeFetcher,
    key: AttributesKey,
    finished: bool,
}

impl Drop for CheckTaskGuard<'_> {
    fn drop(&mut self) {
        self.asker.metrics.checks_in_flight.dec();
        if !self.finished {
            self.asker.checks.abandon_checks(self.key);
        }
    }
}

#[cfg(test)]
mod tests;
