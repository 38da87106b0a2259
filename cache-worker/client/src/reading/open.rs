//! Opens an object: attributes, and in the same round trip the first bytes.
//!
//! Asks the home alone: a second worker that answered for attributes would not hear of writes. The
//! bytes of a hot first block may come from a replica, by a read of their own, once the home has
//! named the version. Where the home has leased its answer, it is not asked at all: see
//! `leased_open`.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, timeout};
use verbs3_protocol::{
    BlockGeometry, BlockIndex, BlockSpan, ByteRange, Epoch, ObjectKey, OpenMessage,
    OpenObjectReply, RefusalKind, SPREAD_BYTES_MIN, WorkerRefusal, WorkerRequest,
};
use verbs3_rdma::transport::{LandingUse, TransportKind};

use crate::asking::piecewise_answer::{AttemptError, AttemptStep, OpenExpectation, TierAttempt};
use crate::asking::worker::{REPEATS_MAX, TierWorker};
use crate::asking::worker_asker::WorkerAsker;
use crate::asking::worker_map::{HotBlockDraw, TierWorkerMap};
use crate::metrics::{CallKind, CallOutcome, SpreadTarget};
use crate::reading::bypass_reason::{BypassReason, MISCONFIGURED};
use crate::reading::lease_table::{AnsweredPresence, GrantedAnswer, LeaseQuestion, TierLeaseTable};
use crate::reading::map_agreement::{MapAgreement, MapAgreementWait};
use crate::reading::memory_wait::{MemoryVerdict, MemoryWait};
use crate::reading::object_landing::{landing_cut, make_landing};
use crate::reading::open_patience::OpenPatience;
use crate::reading::open_request::OpenRequest;
use crate::reading::opened_object::{LeaseAnswer, OpenOutcome, OpenedObject};
use crate::reading::recalls::RecallFollower;
use crate::reading::span_read::NoMemory;
use crate::reading::span_reader::SpanReader;
use crate::reading::span_request::SpanRequest;

/// Tries of an open whose object keeps changing between its attributes and its bytes.
const CHANGES_MAX: usize = 3;

/// Opens objects, and owns what an open may wait for or answer from.
pub(crate) struct ObjectOpener {
    pub(crate) asker: Arc<WorkerAsker>,
    pub(crate) spans: Arc<SpanReader>,
    pub(crate) leases: Arc<TierLeaseTable>,
    pub(crate) recalls: Arc<RecallFollower>,
    pub(crate) agreement: MapAgreement,
}

impl ObjectOpener {
    /// Opens an object at its home, or by a lease.
    pub(crate) async fn open_object(&self, request: &OpenRequest) -> OpenOutcome {
        match self.open_leased(request).await {
            LeaseAnswer::Known(outcome) => return outcome,
            LeaseAnswer::AskWhole(bytes) => {
                if let Some(outcome) = self.open_whole(request, bytes).await {
                    return outcome;
                }
            }
            LeaseAnswer::AskHome => {}
        }
        self.open_at_home(request).await
    }

    pub(super) async fn open_at_home(&self, request: &OpenRequest) -> OpenOutcome {
        let mut wait = MapAgreementWait::new();
        loop {
            // One map serves the whole try. Another map's home must not be asked under this map's
            // epoch.
            let map = self.asker.placement.current_map();
            let home = map
                .home_worker(&request.object)
                .filter(|home| home.health.admit_call(Instant::now()));
            let Some(home) = home else {
                return self.count_bypass(BypassReason::Workers);
            };
            let recipients =
                OpenRecipients { home, replica: self.replica_of(&map, request), map: &map };
            match self.open_under_map(&recipients, request).await {
                Ok(outcome) => {
                    self.agreement.note_agreement(&wait);
                    return outcome;
                }
                Err(theirs) => {
                    let ours = map.placement.map_epoch();
                    if !self.agreement.may_agree_soon(&mut wait, &home.id, ours, theirs).await {
                        return self.count_bypass(BypassReason::Epoch);
                    }
                }
            }
        }
    }

    /// Returns the wanted bytes of the first block of an object with `object_bytes` bytes. May be
    /// empty.
    pub(super) fn of_first_block(&self, request: &OpenRequest, object_bytes: u64) -> Range<u64> {
        let wanted = wanted_bytes(request, object_bytes);
        wanted.start..wanted.end.min(u64::from(self.asker.options.geometry.block_bytes))
    }

    /// Opens an object at its home by one map. `Err`: the home has a map of this epoch instead. 0:
    /// it is between two maps.
    async fn open_under_map(
        &self,
        recipients: &OpenRecipients<'_>,
        request: &OpenRequest,
    ) -> Result<OpenOutcome, Epoch> {
        let home = recipients.home;
        let (mut changes, mut repeats) = (0, 0);
        while changes < CHANGES_MAX {
            match self.try_open_once(recipients, request).await {
                Ok(outcome) => return Ok(outcome),
                Err(OpenTryError::OtherMap(theirs)) => return Err(theirs),
                Err(OpenTryError::Changed) => changes += 1,
                // A place is claimed once, so the next answer lands in memory of this process.
                Err(OpenTryError::Attempt(AttemptError::Unsure { .. })) => {}
                Err(OpenTryError::Attempt(AttemptError::Transport(error)))
                    if repeats < REPEATS_MAX && home.may_be_asked_again(&error) =>
                {
                    repeats += 1;
                    self.asker.note_repeat(CallKind::Open, home, &error);
                }
                Err(OpenTryError::Attempt(error)) => {
                    self.asker.note_call_failure(CallKind::Open, home, &request.object, &error);
                    return Ok(self.count_bypass(BypassReason::Workers));
                }
            }
        }
        Ok(self.count_bypass(BypassReason::Changing))
    }

    /// Returns the replica that gives the bytes of the first block instead of the home, if the
    /// block is hot and enough bytes are wanted.
    fn replica_of(&self, map: &TierWorkerMap, request: &OpenRequest) -> Option<Arc<TierWorker>> {
        let bytes = match request.want? {
            ByteRange::All => u64::MAX,
            want @ ByteRange::From { first, last }
                if touches_first_block(self.asker.options.geometry, want) =>
            {
                last.map_or(u64::MAX, |last| last.saturating_sub(first).saturating_add(1))
            }
            // A suffix of most objects lies in another block.
            ByteRange::From { .. } | ByteRange::Suffix { .. } => return None,
        };
        if bytes < u64::from(SPREAD_BYTES_MIN) {
            return None;
        }
        match map.draw_worker(&request.object, BlockIndex(0))? {
            HotBlockDraw::Replica(replica) => Some(replica),
            HotBlockDraw::Owner => {
                self.asker.metrics.spread[SpreadTarget::Owner].inc();
                None
            }
        }
    }

    /// Sends one open and waits for its outcome.
    async fn try_open_once(
        &self,
        recipients: &OpenRecipients<'_>,
        request: &OpenRequest,
    ) -> Result<OpenOutcome, OpenTryError> {
        let OpenRecipients { home, replica, map } = recipients;
        let mut lease_question = self.leases.begin_question(home, request).await;
        let mut memory_wait = MemoryWait::default();
        let mut attempt = loop {
            match self.send_open(recipients, request, lease_question.as_ref()) {
                Some(attempt) => {
                    memory_wait.end(&self.spans.shortage);
                    break attempt;
                }
                None => {
                    let pause = memory_wait.pause(&self.spans.shortage).await;
                    if pause == MemoryVerdict::GiveUp {
                        return Ok(self.count_bypass(BypassReason::Arena));
                    }
                }
            }
        };
        let mut patience = OpenPatience::new(&self.asker, home, request);
        loop {
            let step = timeout(patience.next_wait(), poll_fn(|cx| attempt.poll_step(cx))).await;
            let Ok(step) = step else {
                match patience.note_silence() {
                    true => continue,
                    false => return Err(attempt.silence_error().into()),
                }
            };
            patience.note_life();
            let step = step?;
            home.health.note_success();
            let (transport, epoch) = (attempt.transport_kind(), map.placement.map_epoch());
            match step {
                AttemptStep::Progress => {}
                // The attempt rejects bytes before attributes.
                AttemptStep::Bytes { .. } => {}
                AttemptStep::Opened { reply, data, last } => {
                    self.asker.metrics.count_call(CallKind::Open, CallOutcome::Ok);
                    let found = AnsweredPresence::Present(&reply, &data);
                    let answer = GrantedAnswer { home, epoch, found, transport };
                    self.note_lease(lease_question.take(), request, answer).await;
                    let found = match replica {
                        Some(replica) => {
                            let drawn = Some(HotBlockDraw::Replica(replica.clone()));
                            self.found_by_span(request, *reply, transport, map, drawn)
                        }
                        None => self.build_opened(request, attempt, *reply, data, last),
                    };
                    return Ok(OpenOutcome::Found(Box::new(found)));
                }
                AttemptStep::Absent(absent) => {
                    self.asker.metrics.count_call(CallKind::Open, CallOutcome::Ok);
                    let found = AnsweredPresence::Absent(&absent);
                    let answer = GrantedAnswer { home, epoch, found, transport };
                    self.note_lease(lease_question.take(), request, answer).await;
                    return Ok(OpenOutcome::Absent(absent));
                }
                AttemptStep::Refused(refusal) => {
                    self.asker.metrics.count_call(CallKind::Open, CallOutcome::Refused);
                    return self.judge_refusal(home, request, refusal);
                }
            }
        }
    }

    fn send_open(
        &self,
        recipients: &OpenRecipients<'_>,
        request: &OpenRequest,
        lease_question: Option<&LeaseQuestion>,
    ) -> Option<TierAttempt> {
        let (options, home) = (&self.asker.options, recipients.home);
        let geometry = options.geometry;
        // `request.want` is sent even if no bytes are. It marks a GET, and a GET needs the UFS's
        // errors with their bodies; a HEAD does not.
        let gives =
            |&want: &ByteRange| recipients.replica.is_none() && touches_first_block(geometry, want);
        let want = request.want.filter(gives);
        let mut bytes_max = 0;
        let mut lands_in_place = false;
        let call = home.peer.call_with(|landing_use| {
            let mut landing = None;
            if let Some(want) = want {
                bytes_max = geometry.block_bytes;
                if landing_use.wants_landing() {
                    let cut = landing_cut(geometry, want, options.settings.open_landing_bytes());
                    bytes_max = cut.iter().sum::<usize>() as u32;
                    let held_max = self.leases.held_object_bytes_max();
                    let place = request.place.as_ref();
                    let place = place.filter(|_| landing_use == LandingUse::Wholly);
                    let at = want.first_byte();
                    let made = make_landing(&self.spans.arena, place, at, &cut, held_max);
                    let made = made.ok_or(NoMemory)?;
                    lands_in_place = made.lies_in_foreign_memory();
                    landing = Some(made);
                }
            }
            let open = OpenMessage {
                object: ObjectKey::clone(&request.object),
                version_id: request.version_id.clone(),
                epoch: recipients.map.placement.map_epoch(),
                geometry,
                attributes_age_ms_max: request.attributes_age_ms_max,
                absence_age_ms_max: request.absence_age_ms_max,
                checksums: request.checksums,
                want: request.want,
                piece_bytes_max: bytes_max,
                holder: lease_question.and_then(|question| question.holder),
            };
            let message =
                WorkerRequest::Open(open).for_tenant(request.trace.as_ref(), request.tenant);
            Ok::<_, NoMemory>((message.encode(), landing))
        });
        let call = call.ok()?;
        let expected = OpenExpectation { want, bytes_max };
        let attempt = TierAttempt::for_open(home.clone(), call, geometry, expected);
        Some(attempt.landing_in_place(lands_in_place))
    }

    async fn note_lease(
        &self,
        lease_question: Option<LeaseQuestion>,
        request: &OpenRequest,
        answer: GrantedAnswer<'_>,
    ) {
        let Some(lease_question) = lease_question else { return };
        let (home, metrics) = (answer.home, &self.asker.metrics);
        if self.leases.record_grant(lease_question, request, answer, metrics).await {
            self.recalls.follow_recalls(home);
        }
    }

    fn build_opened(
        &self,
        request: &OpenRequest,
        attempt: TierAttempt,
        reply: OpenObjectReply,
        data: Vec<Bytes>,
        last: bool,
    ) -> OpenedObject {
        let bytes: usize = data.iter().map(Bytes::len).sum();
        let (transport, at, end) = (attempt.transport_kind(), attempt.at, attempt.end);
        self.asker.metrics.bytes[transport].inc_by(bytes as u64);
        let covered = u64::from(at) - bytes as u64..u64::from(end);
        let request_range = wanted_bytes(request, reply.attributes.version.bytes);
        let rest = (at < end).then(|| {
            let rest = SpanRequest {
                object: request.object.clone(),
                version: Arc::new(reply.attributes.version.clone()),
                span: BlockSpan { block: BlockIndex(0), range: at..end },
                ahead_bytes: 0,
                request_range,
                trace: request.trace.clone(),
                tenant: request.tenant,
                place: request.place.clone(),
            };
            match last {
                true => self.spans.read_span(rest),
                // Its bytes are on their way, perhaps into the place of the body.
                false => self.spans.ask_span(rest).with_attempt(attempt),
            }
        });
        OpenedObject { reply, data, transport: Some(transport), rest, covered }
    }

    /// Returns an object whose attributes are there. The bytes of the first block come from the
    /// `drawn` worker, or else from the owner.
    pub(super) fn found_by_span(
        &self,
        request: &OpenRequest,
        reply: OpenObjectReply,
        transport: TransportKind,
        map: &TierWorkerMap,
        drawn: Option<HotBlockDraw>,
    ) -> OpenedObject {
        let version = &reply.attributes.version;
        let covered = self.of_first_block(request, version.bytes);
        let rest = (!covered.is_empty()).then(|| {
            // Both are within the first block.
            let range = covered.start as u32..covered.end as u32;
            let request = SpanRequest {
                object: request.object.clone(),
                version: Arc::new(version.clone()),
                span: BlockSpan { block: BlockIndex(0), range },
                ahead_bytes: 0,
                request_range: wanted_bytes(request, version.bytes),
                trace: request.trace.clone(),
                tenant: request.tenant,
                place: request.place.clone(),
            };
            self.spans.read_span_at(request, map, drawn)
        });
        let covered = if rest.is_some() { covered } else { 0..0 };
        OpenedObject { reply, data: Vec::new(), transport: Some(transport), rest, covered }
    }

    /// Judges what a home's refusal means for an open.
    fn judge_refusal(
        &self,
        home: &TierWorker,
        request: &OpenRequest,
        refusal: WorkerRefusal,
    ) -> Result<OpenOutcome, OpenTryError> {
        let reason = match refusal.kind {
            RefusalKind::Ufs(answer) => return Ok(OpenOutcome::Ufs(answer)),
            RefusalKind::VersionGone => return Err(OpenTryError::Changed),
            RefusalKind::Uncertain => BypassReason::Uncertain,
            RefusalKind::Busy => BypassReason::Busy,
            RefusalKind::Uncacheable => BypassReason::Uncacheable,
            RefusalKind::UfsUnreachable => BypassReason::UfsUnreachable,
            // A new map is on its way: the worker, or this process, follows within a moment.
            RefusalKind::WrongEpoch(theirs) if self.asker.options.coordinated => {
                return Err(OpenTryError::OtherMap(theirs));
            }
            RefusalKind::WrongEpoch(_) => {
                tracing::warn!(
                    worker = %home.id, object = %request.object, reason = %refusal.reason,
                    "a worker has another placement map"
                );
                BypassReason::Epoch
            }
            // Workers say this of writes alone.
            RefusalKind::NoLease => BypassReason::Epoch,
            // Replicas say this of blocks alone.
            RefusalKind::NotHeld => BypassReason::Busy,
            RefusalKind::UnknownVolume
            | RefusalKind::GeometryMismatch(_)
            | RefusalKind::Malformed => {
                if MISCONFIGURED.may_warn(std::time::Instant::now()) {
                    tracing::warn!(worker = %home.id, object = %request.object, kind = ?refusal.kind, reason = %refusal.reason,
                        "a worker refused to open an object; gateway and worker must have the same \
                        ufs table, block and page size, and version");
                }
                BypassReason::Misconfigured
            }
            RefusalKind::Denied => {
                tracing::warn!(
                    worker = %home.id, reason = %refusal.reason,
                    "a worker takes this process for one of another role; give it a certificate of \
                    its own"
                );
                BypassReason::Misconfigured
            }
        };
        Ok(self.count_bypass(reason))
    }

    fn count_bypass(&self, reason: BypassReason) -> OpenOutcome {
        OpenOutcome::Bypass(self.asker.metrics.count_bypass(reason))
    }
}

/// Reason why one try of an open has no outcome.
enum OpenTryError {
    Attempt(AttemptError),
    /// The object changed between its attributes and its bytes.
    Changed,
    /// The home has a map of this epoch instead. 0: it is between two maps.
    OtherMap(Epoch),
}

impl From<AttemptError> for OpenTryError {
    fn from(error: AttemptError) -> Self {
        Self::Attempt(error)
    }
}

/// The workers that an open asks, and the map that named them.
struct OpenRecipients<'a> {
    home: &'a Arc<TierWorker>,
    /// The worker that gives the bytes; `None`: the home does.
    replica: Option<Arc<TierWorker>>,
    map: &'a TierWorkerMap,
}

/// Returns the wanted bytes of an object with `object_bytes` bytes. May be empty.
fn wanted_bytes(request: &OpenRequest, object_bytes: u64) -> Range<u64> {
    request.want.and_then(|want| want.resolve_range(object_bytes)).unwrap_or_default()
}

/// Returns whether a range may have bytes in block 0. A suffix may, as long as the length is
/// unknown.
fn touches_first_block(geometry: BlockGeometry, want: ByteRange) -> bool {
    match want {
        ByteRange::All | ByteRange::Suffix { .. } => true,
        ByteRange::From { first, .. } => first < u64::from(geometry.block_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: BlockGeometry = BlockGeometry::DEFAULT;

    #[test]
    fn ranges_of_later_blocks_ask_for_no_bytes() {
        assert!(!touches_first_block(GEOMETRY, ByteRange::From { first: 4 << 20, last: None }));
        assert!(touches_first_block(GEOMETRY, ByteRange::Suffix { bytes: 1 }));
    }
}
