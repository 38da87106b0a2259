//! Answers `OpenMessage`: sends attributes, and the wanted bytes of block 0 with them.

use std::ops::Range;
use std::sync::Arc;

use verbs3_protocol::{
    AbsentReply, AttributeLease, BlockIndex, ByteRange, Epoch, HeadAttributes, KeyGeneration,
    LeaseHolder, OpenMessage, OpenObjectReply, UfsAnswer, WorkerReply as Message,
};
use verbs3_rdma::transport::ReplySender;

use super::{
    BlockSpanReader, ServeRefusal, SpanReplyChunk, bound_message, open_plan, send_last_part,
    send_message, while_alive,
};
use crate::attributes::{
    AnswerAgeLimits, AnswerRequirements, AttributeCheckOutcome, AttributeCheckPlan,
    AttributeMaxAge, AttributeQuery, ObjectPresence, PendingAttributeRead,
};
use crate::clock::WorkerInstant;
use crate::fill::{FillTarget, PageFillError, RunInterest};
use crate::metrics::{AttributesFound, CountedRequest};
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

/// Checks and fills tried for one open while writes pass. An object that changes more often than
/// that within one read is read at the UFS.
pub(super) const ATTEMPTS_MAX: usize = 4;

/// An open that is being answered.
pub(super) struct OpenOperation {
    want: Option<ByteRange>,
    pub(super) subject: AttributeQuery,
    pub(super) epoch: Epoch,
    /// The gateway that would get a lease with the answer.
    pub(super) holder: Option<LeaseHolder>,
    /// The age limit of the request, before this worker's own limit.
    pub(super) attributes_age: AttributeMaxAge,
    needs: AnswerRequirements,
    ages: AnswerAgeLimits,
    pub(super) arrived: WorkerInstant,
    /// Most bytes to answer with.
    bytes_max: u64,
    /// The length of the object in a listing.
    pub(super) listed: Option<u64>,
}

/// The answer to an open.
enum OpenObjectAnswer<'a> {
    Present(PresentObjectAnswer<'a>),
    Absent { answer: Arc<UfsAnswer>, generation: KeyGeneration, cached: bool },
}

struct PresentObjectAnswer<'a> {
    attributes: Arc<HeadAttributes>,
    generation: KeyGeneration,
    cached: bool,
    lease: AttributeLease,
    /// The first bytes, and the reader of the others.
    bytes: Option<(SpanReplyChunk, BlockSpanReader<'a>)>,
}

/// The answer about an object, and its source.
pub(super) struct LearnedAttributes {
    pub(super) found: ObjectPresence,
    pub(super) generation: KeyGeneration,
    pub(super) cached: bool,
    /// When the UFS was asked, if it was not asked for this open.
    pub(super) asked: Option<WorkerInstant>,
    /// The same moment by the worker's own clock, which counts no pause. It names the cached answer.
    pub(super) asked_own: Option<WorkerInstant>,
    /// Keeps the pages coming that were asked together with the attributes.
    outcome: Option<Arc<AttributeCheckOutcome>>,
}

impl LearnedAttributes {
    pub(super) fn page_interest(&self) -> Option<&RunInterest> {
        match self.outcome.as_deref() {
            Some(AttributeCheckOutcome::Present { coming, .. }) => coming.as_ref(),
            _ => None,
        }
    }
}

/// The reason why an attempt gave no answer.
pub(super) enum OpenAttemptError {
    /// Another attempt may succeed.
    Again(ServeRefusal),
    Refused(ServeRefusal),
}

impl From<ServeRefusal> for OpenAttemptError {
    fn from(refused: ServeRefusal) -> Self {
        Self::Refused(refused)
    }
}

impl CacheWorker {
    pub(super) async fn serve_open(
        &self,
        open: OpenMessage,
        account: TenantAccount,
        landing_bytes: u64,
        mut reply: ReplySender,
    ) {
        self.metrics.requests[CountedRequest::Open].inc();
        let answer = match self.begin_open(open, account, landing_bytes) {
            Ok(opening) => match while_alive(&mut reply, self.answer_open(&opening)).await {
                Some(answer) => answer,
                None => return,
            },
            Err(refused) => Err(refused),
        };
        match answer {
            Ok(OpenObjectAnswer::Present(present)) => self.send_opened(present, reply).await,
            Ok(OpenObjectAnswer::Absent { answer, generation, cached }) => {
                self.metrics.absences.inc();
                let absent = AbsentReply { answer: UfsAnswer::clone(&answer), generation, cached };
                send_message(reply, &Message::Absent(absent)).await;
            }
            Err(refused) => self.refuse_request(reply, refused).await,
        }
    }

    pub(super) fn begin_open(
        &self,
        open: OpenMessage,
        account: TenantAccount,
        landing_bytes: u64,
    ) -> Result<OpenOperation, ServeRefusal> {
        let times = self.clock.read_times();
        let arrived = times.now;
        let right = self.standing.to_answer(open.epoch, open.object.home_slot(), times);
        let right = right.map_err(|denied| ServeRefusal::for_denial(denied, open.epoch))?;
        let right = right.limit_to_age(self.voids.latest_age(&open.object, arrived));
        self.check_geometry(open.geometry)?;
        let source = self.volume_source(&open.object.volume)?;
        if open.version_id.as_deref() == Some("null") {
            return Err(ServeRefusal::NullVersion);
        }
        let subject = AttributeQuery {
            hash: open.object.hash(),
            key: self.digests.attributes_key(&open.object, open.version_id.as_deref()),
            version_id: open.version_id,
            object: open.object,
            source,
            account,
        };
        let bytes_max = u64::from(open.piece_bytes_max).min(landing_bytes);
        let needs =
            AnswerRequirements { checksums: open.checksums, error_body: open.want.is_some() };
        let (epoch, attributes_age) =
            (open.epoch, AttributeMaxAge::from_ms(open.attributes_age_ms_max));
        let ages = AnswerAgeLimits {
            attributes: attributes_age.limit_to_right(right),
            absence: AttributeMaxAge::from_ms(open.absence_age_ms_max).limit_to_right(right),
        };
        let (want, holder, listed) = (open.want, open.holder, None);
        Ok(OpenOperation {
            want,
            subject,
            epoch,
            holder,
            attributes_age,
            needs,
            ages,
            arrived,
            bytes_max,
            listed,
        })
    }

    async fn answer_open(
        &self,
        opening: &OpenOperation,
    ) -> Result<OpenObjectAnswer<'_>, ServeRefusal> {
        let mut last = ServeRefusal::Changing;
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt_open(opening).await {
                Ok(answer) => return Ok(answer),
                Err(OpenAttemptError::Refused(refused)) => return Err(refused),
                Err(OpenAttemptError::Again(refused)) => last = refused,
            }
        }
        Err(last)
    }

    async fn attempt_open(
        &self,
        opening: &OpenOperation,
    ) -> Result<OpenObjectAnswer<'_>, OpenAttemptError> {
        let learnt = self.learn_attributes(opening).await?;
        let attributes = match &learnt.found {
            ObjectPresence::Present(attributes) => attributes.clone(),
            ObjectPresence::Absent(answer) => {
                return Ok(OpenObjectAnswer::Absent {
                    answer: answer.clone(),
                    generation: learnt.generation,
                    cached: learnt.cached,
                });
            }
        };
        let span = open_plan::answer_span(
            opening.want,
            attributes.version.bytes,
            self.geometry,
            opening.bytes_max,
        );
        let bytes = match span {
            Some(span) => Some(self.first_bytes(opening, &attributes, span, &learnt).await?),
            None => None,
        };
        let (generation, cached, lease) =
            (learnt.generation, learnt.cached, self.lease_on(opening, &learnt));
        Ok(OpenObjectAnswer::Present(PresentObjectAnswer {
            attributes,
            generation,
            cached,
            lease,
            bytes,
        }))
    }

    /// Returns the answer about the object, from the cache or from the UFS.
    pub(super) async fn learn_attributes(
        &self,
        opening: &OpenOperation,
    ) -> Result<LearnedAttributes, OpenAttemptError> {
        let subject = &opening.subject;
        let times = self.clock.read_times();
        let Ok(generation) = self.coherence.admit_key(subject.hash, times.now) else {
            return Err(ServeRefusal::WriteUnderWay.into());
        };
        let ages = opening.ages.at_most(self.coherence.doubted_age(subject.hash));
        let (key, needs) = (subject.key, opening.needs);
        if let Some(known) = self.attributes.get(key, generation, times, ages, needs) {
            self.metrics.attributes[AttributesFound::Cached].inc();
            let asked = known.asked_by(times);
            return Ok(LearnedAttributes {
                found: known.found,
                generation,
                cached: true,
                asked,
                asked_own: Some(known.asked),
                outcome: None,
            });
        }
        // An absence may need a fresher answer than attributes do. A read that joins a check must
        // accept the age of either.
        let age = if accepts_less(ages) { ages.absence } else { ages.attributes };
        let asking = PendingAttributeRead { arrived: opening.arrived, age, generation };
        let plan = self.plan_check(opening, generation);
        let Some(mut waiting) = self.asker.request_check(subject, plan, &asking) else {
            return Err(ServeRefusal::TooManyChecks.into());
        };
        // An error means that the checking task was dropped, which only a shutdown does.
        let outcome = match waiting.wait_for(Option::is_some).await {
            Ok(answered) => answered.clone(),
            Err(_) => None,
        };
        let Some(outcome) = outcome else {
            return Err(ServeRefusal::from(PageFillError::Stopping).into());
        };
        let (found, generation) = match &*outcome {
            AttributeCheckOutcome::Present { attributes, generation, .. } => {
                (ObjectPresence::Present(attributes.clone()), *generation)
            }
            AttributeCheckOutcome::Absent { answer, generation } => {
                (ObjectPresence::Absent(answer.clone()), *generation)
            }
            AttributeCheckOutcome::Moved => {
                return Err(OpenAttemptError::Again(ServeRefusal::WriteUnderWay));
            }
            AttributeCheckOutcome::Uncertain => return Err(ServeRefusal::WriteUnderWay.into()),
            AttributeCheckOutcome::Refused(refusal) => {
                return Err(ServeRefusal::Check(refusal.clone()).into());
            }
        };
        Ok(LearnedAttributes {
            found,
            generation,
            cached: false,
            asked: None,
            asked_own: None,
            outcome: Some(outcome),
        })
    }

    /// Plans a check with the pages, unless they seem to be here already. Then only the attributes
    /// have to be renewed.
    fn plan_check(&self, opening: &OpenOperation, generation: KeyGeneration) -> AttributeCheckPlan {
        let get = open_plan::get(opening.want, self.geometry)
            .filter(|_| opening.bytes_max > 0)
            .filter(|range| {
                let page = (range.start() / u64::from(self.geometry.page_bytes)) as u16;
                let Some(known) = self.attributes.peek_attributes(opening.subject.key, generation)
                else {
                    // Pages survive a restart, attributes don't. A HEAD tells whether the pages are
                    // still of use.
                    return !self.filler.may_hold(&opening.subject.object, page);
                };
                let digest = self.digests.digest_version(&opening.subject.object, &known.version);
                known.version.bytes > *range.start() && !self.filler.holds_first_page(digest, page)
            });
        let fits = |bytes: &u64| {
            get.as_ref().is_some_and(|get| *get.start() == 0 && *bytes <= get.end() + 1)
        };
        AttributeCheckPlan { whole: opening.listed.filter(fits), get, needs: opening.needs }
    }

    /// Waits for the first bytes of the span. Until then nothing is sent, so an answer of a
    /// vanished version can still be dropped.
    async fn first_bytes(
        &self,
        opening: &OpenOperation,
        attributes: &HeadAttributes,
        span: Range<u32>,
        learnt: &LearnedAttributes,
    ) -> Result<(SpanReplyChunk, BlockSpanReader<'_>), OpenAttemptError> {
        let version = &attributes.version;
        let target = Arc::new(FillTarget {
            source: opening.subject.source.clone(),
            object: opening.subject.object.clone(),
            version: version.clone(),
            digest: self.digests.digest_version(&opening.subject.object, version),
            account: opening.subject.account,
        });
        let got = async {
            let mut reading = BlockSpanReader::start_read(self, target, BlockIndex(0), span, 0)?;
            reading.verdict = reading.page_claim().cache_verdict(learnt.page_interest());
            // A version that was checked for this open is current, and an object that never changes
            // needs no proof.
            if learnt.cached && opening.attributes_age != AttributeMaxAge::Any {
                reading.confirm_version().await?;
            }
            let chunk = reading.next().await?;
            Ok((chunk, reading))
        };
        match got.await {
            Ok(got) => Ok(got),
            Err(failure @ PageFillError::VersionGone(_)) => {
                self.recall_version(&opening.subject.object, version).await;
                Err(OpenAttemptError::Again(failure.into()))
            }
            Err(failure) => Err(OpenAttemptError::Refused(failure.into())),
        }
    }

    async fn send_opened(&self, present: PresentObjectAnswer<'_>, mut reply: ReplySender) {
        let PresentObjectAnswer { attributes, generation, cached, lease, bytes } = present;
        let opened = |piece| {
            let attributes = HeadAttributes::clone(&attributes);
            Message::Opened(Box::new(OpenObjectReply {
                attributes,
                generation,
                lease,
                attributes_cached: cached,
                piece,
            }))
            .encode()
        };
        let Some((chunk, reading)) = bytes else {
            return send_last_part(
                reply,
                bound_message(opened(None)).unwrap_or_else(|refusal| refusal),
                0,
                Vec::new(),
            )
            .await;
        };
        self.count_served(&chunk);
        let SpanReplyChunk { piece, offset, data } = chunk;
        let message = match bound_message(opened(Some(piece))) {
            Ok(message) => message,
            Err(refusal) => return send_last_part(reply, refusal, 0, Vec::new()).await,
        };
        if reading.is_done() {
            return send_last_part(reply, message, offset, data).await;
        }
        match reply.send_part(message, offset, data).await {
            Ok(()) => self.send_rest(reading, reply).await,
            Err(error) => tracing::debug!(%error, "a reader has gone"),
        }
    }
}

/// Returns whether the age limit of an absence is stricter than that of attributes.
fn accepts_less(AnswerAgeLimits { attributes, absence }: AnswerAgeLimits) -> bool {
    match (absence, attributes) {
        (AttributeMaxAge::AlwaysAsk, _) | (AttributeMaxAge::UpTo(_), AttributeMaxAge::Any) => true,
        (AttributeMaxAge::UpTo(absence), AttributeMaxAge::UpTo(attributes)) => absence < attributes,
        (AttributeMaxAge::UpTo(_), AttributeMaxAge::AlwaysAsk) | (AttributeMaxAge::Any, _) => false,
    }
}
