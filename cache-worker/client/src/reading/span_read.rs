//! Owns the read of one span: verified bytes in order, from whichever worker gives them first.
//!
//! Asks the hot block's replica if one was drawn, then the owner, then the next owners, and then
//! says "ask the UFS". If the first worker shows no life within `hedge_after`, the next is asked as
//! well, with a landing of its own. The first to show life goes on alone. That a version is gone
//! counts from the owner alone, which may still hold all of it. After a failure, another worker
//! goes on from the next byte to hand out. If only the connection broke, the same worker goes on
//! over the next transport. The poller drives it: there is no task and no channel.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};
use verbs3_protocol::{
    CacheVerdict, ContentVersion, ObjectKey, ReadMessage, ReadSource, RefusalKind, WorkerRefusal,
    WorkerRequest,
};
use verbs3_rdma::landing::Landing;
use verbs3_rdma::transport::{LandingUse, TransportKind};

use crate::asking::piecewise_answer::{AttemptError, AttemptStep, TierAttempt};
use crate::asking::worker::REPEATS_MAX;
use crate::asking::worker_map::{CandidateQueue, CandidateRole, SpanCandidate};
use crate::metrics::{CallKind, CallOutcome, SpreadTarget};
use crate::reading::bypass_reason::BypassReason;
use crate::reading::kept_pages::SpanGathering;
use crate::reading::memory_wait::{MemoryVerdict, MemoryWait};
use crate::reading::object_landing::make_landing;
use crate::reading::span_reader::SpanReader;
use crate::reading::span_request::{ObjectBytesPlace, SpanItem, SpanRequest};

/// Most calls that only continue a short answer of the same worker.
const SHORT_ANSWERS_MAX: u8 = 8;

/// A poll this much after a deadline means that nobody drove the call (a slow client), not that the
/// worker is slow.
const LATE: Duration = Duration::from_millis(200);

/// The read of one span. Dropping it cancels its calls.
pub struct SpanRead {
    reader: Arc<SpanReader>,
    request: SpanRequest,
    candidates: CandidateQueue,
    /// The worker in use, and its hedge.
    legs: [Option<SpanReadLeg>; 2],
    hedged: bool,
    /// Next to ask: the worker that gave a short answer, or whose connection broke.
    again: Option<SpanCandidate>,
    /// The owner, which was silent while its hedge showed life.
    unheard_owner: Option<SpanCandidate>,
    short_answers: u8,
    repeats: u8,
    at: u32,
    reason: BypassReason,
    over: bool,
    timer: Option<Pin<Box<Sleep>>>,
    memory_wait: MemoryWait,
    lacks_memory: bool,
    origin: Option<(CacheVerdict, Option<TransportKind>)>,
    /// All bytes of the span, where pages that are kept have them.
    kept: Option<Vec<Bytes>>,
    /// What has come, if it is to be kept.
    gathering: Option<SpanGathering>,
}

struct SpanReadLeg {
    attempt: TierAttempt,
    role: CandidateRole,
    /// Time of the start, or of the last sign of life.
    since: Instant,
    live: bool,
}

impl SpanReadLeg {
    fn into_candidate(self) -> SpanCandidate {
        SpanCandidate { worker: self.attempt.worker, role: self.role }
    }
}

/// No memory for a landing.
pub(crate) struct NoMemory;

impl SpanRead {
    pub(crate) fn new(
        reader: Arc<SpanReader>,
        request: SpanRequest,
        candidates: CandidateQueue,
    ) -> Self {
        Self {
            reader,
            at: request.span.range.start,
            request,
            candidates,
            legs: [None, None],
            hedged: false,
            again: None,
            unheard_owner: None,
            short_answers: 0,
            repeats: 0,
            reason: BypassReason::Workers,
            over: false,
            timer: None,
            memory_wait: MemoryWait::default(),
            lacks_memory: false,
            origin: None,
            kept: None,
            gathering: None,
        }
    }

    /// Returns a read that pages answer which are kept here.
    pub(crate) fn of_kept_pages(
        reader: Arc<SpanReader>,
        request: SpanRequest,
        data: Vec<Bytes>,
    ) -> Self {
        Self { kept: Some(data), ..Self::new(reader, request, CandidateQueue::default()) }
    }

    /// Has the bytes kept, where `gathering` says so.
    pub(crate) fn gather_bytes(self, gathering: Option<SpanGathering>) -> Self {
        Self { gathering, ..self }
    }

    /// Continues a call that has already begun.
    pub(crate) fn with_attempt(mut self, attempt: TierAttempt) -> Self {
        let role = CandidateRole::Owner;
        self.legs[0] = Some(SpanReadLeg { attempt, role, since: Instant::now(), live: true });
        self
    }

    /// Has bytes that are asked for from now on land in `place`, where they can.
    #[must_use]
    pub fn land_in(mut self, place: Option<ObjectBytesPlace>) -> Self {
        self.request.place = place;
        self
    }

    /// Returns the next byte of the block to hand out.
    pub fn next_byte(&self) -> u32 {
        self.at
    }

    /// Returns what was asked for, unchanged. [`SpanRead::next_byte`] says how far it is.
    pub fn span_request(&self) -> &SpanRequest {
        &self.request
    }

    /// Returns how the first bytes were found, and over which transport they came (`None`: they
    /// were here). `None` before that.
    pub fn bytes_origin(&self) -> Option<(CacheVerdict, Option<TransportKind>)> {
        self.origin
    }

    /// Asks the first worker now. `false`: there was no memory for the reply, and nothing was
    /// asked; try again later.
    pub fn start(&mut self) -> bool {
        if self.legs[0].is_some() || self.kept.is_some() || self.over {
            return true;
        }
        let next = self.again.take().or_else(|| self.candidates.next(Instant::now()));
        let Some(candidate) = next else { return true };
        match self.launch_leg(candidate.clone()) {
            Ok(leg) => self.start_with(leg),
            Err(NoMemory) => self.lack_memory(candidate),
        }
        !self.lacks_memory
    }

    /// Returns the next bytes, or how the read ended.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<SpanItem> {
        loop {
            if self.at == self.request.span.range.end || self.over {
                self.legs = [None, None];
                self.over = true;
                return Poll::Ready(SpanItem::End);
            }
            if let Some(data) = self.kept.take() {
                self.at = self.request.span.range.end;
                self.origin = Some((CacheVerdict::Hit, None));
                self.reader.asker.metrics.kept_page_reads.inc();
                return Poll::Ready(SpanItem::Bytes(data));
            }
            if self.legs[0].is_none() {
                self.legs.swap(0, 1);
            }
            if self.legs[0].is_none() {
                let Some(candidate) =
                    self.again.take().or_else(|| self.candidates.next(Instant::now()))
                else {
                    return Poll::Ready(self.end_with(SpanItem::Bypass(self.reason)));
                };
                match self.launch_leg(candidate.clone()) {
                    Ok(leg) => self.start_with(leg),
                    Err(NoMemory) => {
                        self.lack_memory(candidate);
                        let pause = self.memory_wait.poll_pause(cx, &self.reader.shortage);
                        if ready!(pause) == MemoryVerdict::GiveUp {
                            let none = SpanItem::Bypass(BypassReason::Arena);
                            return Poll::Ready(self.end_with(none));
                        }
                        continue;
                    }
                }
            }
            match self.poll_legs(cx) {
                Poll::Ready(Some(item)) => return Poll::Ready(item),
                Poll::Ready(None) => continue,
                Poll::Pending => ready!(self.poll_timer(cx)),
            }
        }
    }

    /// Waits for [`SpanRead::poll_next`].
    pub async fn next(&mut self) -> SpanItem {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn lack_memory(&mut self, candidate: SpanCandidate) {
        self.again = Some(candidate);
        self.lacks_memory = true;
    }

    fn start_with(&mut self, leg: SpanReadLeg) {
        self.legs[0] = Some(leg);
        self.lacks_memory = false;
        self.memory_wait.end(&self.reader.shortage);
    }

    /// Returns whether nobody was asked for want of memory.
    pub fn lacks_memory(&self) -> bool {
        self.lacks_memory
    }

    fn end_with(&mut self, item: SpanItem) -> SpanItem {
        self.over = true;
        self.legs = [None, None];
        if let SpanItem::Bypass(reason) = item {
            self.reader.asker.metrics.count_bypass(reason);
        }
        item
    }

    fn launch_leg(
        &self,
        SpanCandidate { worker, role }: SpanCandidate,
    ) -> Result<SpanReadLeg, NoMemory> {
        let request = &self.request;
        let SpanRequest { span, place, .. } = request;
        let (geometry, range) = (self.reader.asker.options.geometry, self.at..span.range.end);
        let read = ReadMessage {
            object: ObjectKey::clone(&request.object),
            version: ContentVersion::clone(&request.version),
            geometry,
            block: span.block,
            start: range.start,
            end: range.end,
            ahead_bytes: request.ahead_bytes,
            request_range: request.request_range.clone(),
            from: match role {
                CandidateRole::Replica => ReadSource::Replica,
                _ => ReadSource::Owner,
            },
        };
        let message = WorkerRequest::Read(read).for_tenant(request.trace.as_ref(), request.tenant);
        let block_at = u64::from(span.block.0) * u64::from(geometry.block_bytes);
        let mut lands_in_place = false;
        let call = worker.peer.call_with(|landing_use| {
            let mut lend = || {
                let cuts: Vec<usize> = geometry.page_cuts(&range).collect();
                let place = place.as_ref().filter(|_| landing_use == LandingUse::Wholly);
                let at = block_at + u64::from(range.start);
                let landing = make_landing(&self.reader.arena, place, Some(at), &cuts, 0);
                lands_in_place = landing.as_ref().is_some_and(Landing::lies_in_foreign_memory);
                landing.ok_or(NoMemory)
            };
            Ok((message.encode(), landing_use.wants_landing().then(&mut lend).transpose()?))
        })?;
        let attempt = TierAttempt::read(worker, call, geometry, span.block, range)
            .landing_in_place(lands_in_place);
        Ok(SpanReadLeg { attempt, role, since: Instant::now(), live: false })
    }

    fn poll_legs(&mut self, cx: &mut Context<'_>) -> Poll<Option<SpanItem>> {
        for index in 0..2 {
            let Some(leg) = &mut self.legs[index] else { continue };
            if let Poll::Ready(step) = leg.attempt.poll_step(cx) {
                return Poll::Ready(self.on_step(index, step));
            }
        }
        Poll::Pending
    }

    fn on_step(
        &mut self,
        index: usize,
        step: Result<AttemptStep, AttemptError>,
    ) -> Option<SpanItem> {
        match step {
            Ok(AttemptStep::Progress) => {
                self.keep_only_leg(index);
                None
            }
            Ok(AttemptStep::Bytes { data, verdict, last }) => {
                self.keep_only_leg(index);
                self.on_bytes(data, verdict, last)
            }
            Ok(AttemptStep::Refused(refusal)) => self.on_refusal(index, refusal),
            Ok(AttemptStep::Opened { .. } | AttemptStep::Absent(_)) => {
                // The attempt rejects both in a read, so they never come.
                None
            }
            Err(error) => {
                self.on_failure(index, &error);
                None
            }
        }
    }

    /// Ends the other leg, because this one has shown life.
    fn keep_only_leg(&mut self, index: usize) {
        self.legs.swap(0, index);
        let other = self.legs[1].take().filter(|leg| leg.role == CandidateRole::Owner);
        if let Some(owner) = other {
            self.unheard_owner = Some(owner.into_candidate());
        }
        if let Some(leg) = &mut self.legs[0] {
            (leg.since, leg.live) = (Instant::now(), true);
            leg.attempt.worker.health.note_success();
        }
    }

    fn on_bytes(
        &mut self,
        data: Vec<Bytes>,
        verdict: CacheVerdict,
        last: bool,
    ) -> Option<SpanItem> {
        let bytes: usize = data.iter().map(Bytes::len).sum();
        let transport =
            self.legs[0].as_ref().map_or(TransportKind::Tcp, |leg| leg.attempt.transport_kind());
        self.reader.asker.metrics.bytes[transport].inc_by(bytes as u64);
        let arena = &self.reader.arena;
        self.gathering =
            self.gathering.take().and_then(|gathered| gathered.add_bytes(&data, transport, arena));
        // The attempt has checked that the piece ends within the span.
        self.at += bytes as u32;
        let missing = self.at < self.request.span.range.end;
        if last || !missing {
            let leg = self.legs[0].take();
            self.reader.asker.metrics.count_call(CallKind::Read, CallOutcome::Ok);
            if missing {
                self.reason = BypassReason::Busy;
                if bytes > 0 && self.short_answers < SHORT_ANSWERS_MAX {
                    self.short_answers += 1;
                    self.again = leg.map(SpanReadLeg::into_candidate);
                }
            }
        }
        if !missing && let Some(gathered) = self.gathering.take() {
            self.reader.kept_pages.keep_span(&self.request, gathered);
        }
        if data.is_empty() {
            return None;
        }
        self.origin.get_or_insert((verdict, Some(transport)));
        Some(SpanItem::Bytes(data))
    }

    fn on_refusal(&mut self, index: usize, refusal: WorkerRefusal) -> Option<SpanItem> {
        let leg = self.legs[index].take()?;
        let is_replica = leg.role == CandidateRole::Replica;
        // An answer proves that the worker lives.
        leg.attempt.worker.health.note_success();
        self.reader.asker.metrics.count_call(CallKind::Read, CallOutcome::Refused);
        // Others may have asked the UFS, but the owner has not. It may still hold the whole
        // version.
        if refusal.kind == RefusalKind::VersionGone && !is_replica {
            self.reader.leases.drop_keys([self.request.object.hash()]);
            self.again = self.again.take().or_else(|| self.unheard_owner.take());
            let asks_on = self.again.is_some() || self.legs.iter().any(Option::is_some);
            if leg.role == CandidateRole::Owner || !asks_on {
                return Some(self.end_with(SpanItem::VersionGone));
            }
        }
        let (worker, object) = (&leg.attempt.worker.id, &self.request.object);
        self.reason = BypassReason::of_read_refusal(&refusal, worker, object, is_replica);
        // A replica's refusal says nothing of the others.
        let elsewhere = is_replica
            || matches!(
                self.reason,
                BypassReason::Busy | BypassReason::Misconfigured | BypassReason::Epoch
            );
        if is_replica {
            self.reader.asker.metrics.spread[SpreadTarget::Back].inc();
        }
        let alone = self.legs.iter().all(Option::is_none);
        (alone && !elsewhere).then(|| self.end_with(SpanItem::Bypass(self.reason)))
    }

    fn on_failure(&mut self, index: usize, error: &AttemptError) {
        let Some(leg) = self.legs[index].take() else { return };
        if let AttemptError::Unsure { .. } = error {
            // A place is claimed once, so the next answer lands in memory of this process.
            self.again = Some(leg.into_candidate());
            return;
        }
        if let AttemptError::Transport(error) = error
            && self.repeats < REPEATS_MAX
            && leg.attempt.worker.may_be_asked_again(error)
        {
            self.repeats += 1;
            self.reader.asker.note_repeat(CallKind::Read, &leg.attempt.worker, error);
            self.again = Some(leg.into_candidate());
            return;
        }
        self.reader.asker.note_call_failure(
            CallKind::Read,
            &leg.attempt.worker,
            &self.request.object,
            error,
        );
        self.reason = BypassReason::Workers;
        if self.legs.iter().all(Option::is_none) && !self.candidates.is_empty() {
            self.reader.asker.metrics.failovers.inc();
        }
    }

    fn hedge_at(&self) -> Option<Instant> {
        let leg = self.legs[0].as_ref().filter(|leg| !leg.live)?;
        let possible = self.legs[1].is_none() && !self.hedged && !self.candidates.is_empty();
        possible.then(|| leg.since + self.reader.asker.options.settings.hedge_after.0)
    }

    fn silent_at(&self, leg: &SpanReadLeg) -> Instant {
        leg.since
            + if leg.live {
                self.reader.asker.options.settings.idle.0
            } else {
                self.reader.asker.options.settings.first_progress.0
            }
    }

    /// Returns ready when a deadline has changed something.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let legs = self.legs.iter().flatten().map(|leg| self.silent_at(leg));
        let Some(deadline) = legs.chain(self.hedge_at()).min() else { return Poll::Ready(()) };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        ready!(timer.as_mut().poll(cx));
        let now = Instant::now();
        if now > deadline + LATE {
            for leg in self.legs.iter_mut().flatten() {
                leg.since = now;
            }
            return Poll::Ready(());
        }
        if self.hedge_at().is_some_and(|at| now >= at) {
            self.launch_hedge(now);
        }
        for index in [1, 0] {
            if let Some(leg) = &self.legs[index]
                && now >= self.silent_at(leg)
            {
                let silent = leg.attempt.silence_error();
                self.on_failure(index, &silent);
            }
        }
        Poll::Ready(())
    }

    fn launch_hedge(&mut self, now: Instant) {
        self.hedged = true;
        if let Some(candidate) = self.candidates.next(now)
            && let Ok(leg) = self.launch_leg(candidate)
        {
            self.reader.asker.metrics.hedges.inc();
            self.legs[1] = Some(leg);
        }
    }
}
