//! Answers `OpenMessage`: sends attributes, and the wanted bytes of block 0 with them.

use std::ops::Range;
use std::sync::Arc;

use verbs3_protocol::{
    AbsentReply, AttributeLease, BlockIndex, HeadAttributes, KeyGeneration, OpenMessage,
    OpenObjectReply, UfsAnswer, WorkerReply as Message,
};
use verbs3_rdma::transport::ReplySender;

use super::{bound_message, send_last_part, send_message, with_signs_of_life};
use crate::attributes::{AttributeMaxAge, ObjectPresence};
use crate::fill::PageFillError;
use crate::home::{LearnedAttributes, OpenAttemptError, OpenOperation, open_plan};
use crate::metrics::CountedRequest;
use crate::pages::{BlockSpanReader, BlockSpanWant, SpanReplyChunk};
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

/// Checks and fills tried for one open while writes pass. An object that changes more often than
/// that within one read is read at the UFS.
pub(super) const ATTEMPTS_MAX: usize = 4;

/// The answer to an open, before it is sent.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each open, mostly the large one; a box would be an allocation each"
)]
enum PreparedOpenAnswer<'a> {
    Present(PresentObjectAnswer<'a>),
    Absent(AbsentReply),
}

struct PresentObjectAnswer<'a> {
    attributes: Arc<HeadAttributes>,
    generation: KeyGeneration,
    cached: bool,
    lease: AttributeLease,
    /// The first bytes, and the reader of the others.
    bytes: Option<(SpanReplyChunk, BlockSpanReader<'a>)>,
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
        let answer = match self.home.begin_open(open, account, landing_bytes) {
            Ok(opening) => match with_signs_of_life(&mut reply, self.answer_open(&opening)).await {
                Some(answer) => answer,
                None => return,
            },
            Err(refused) => Err(refused),
        };
        match answer {
            Ok(PreparedOpenAnswer::Present(present)) => self.send_opened(present, reply).await,
            Ok(PreparedOpenAnswer::Absent(absent)) => {
                self.metrics.absences.inc();
                send_message(reply, &Message::Absent(absent)).await;
            }
            Err(refused) => self.refuse_request(reply, refused).await,
        }
    }

    async fn answer_open(
        &self,
        opening: &OpenOperation,
    ) -> Result<PreparedOpenAnswer<'_>, ServeRefusal> {
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
    ) -> Result<PreparedOpenAnswer<'_>, OpenAttemptError> {
        let learnt = self.home.learn_attributes(opening).await?;
        let attributes = match &learnt.found {
            ObjectPresence::Present(attributes) => attributes.clone(),
            ObjectPresence::Absent(answer) => {
                return Ok(PreparedOpenAnswer::Absent(AbsentReply {
                    answer: UfsAnswer::clone(answer),
                    generation: learnt.generation,
                    lease: self.home.decide_lease(opening, &learnt),
                    cached: learnt.cached,
                }));
            }
        };
        let span = open_plan::answer_span(
            opening.want,
            attributes.version.bytes,
            self.checks.geometry,
            opening.bytes_max,
        );
        let bytes = match span {
            Some(span) => Some(self.first_bytes(opening, &attributes, span, &learnt).await?),
            None => None,
        };
        let (generation, cached, lease) =
            (learnt.generation, learnt.cached, self.home.decide_lease(opening, &learnt));
        Ok(PreparedOpenAnswer::Present(PresentObjectAnswer {
            attributes,
            generation,
            cached,
            lease,
            bytes,
        }))
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
        let target = opening.subject.fill_target(version, &self.pages.digests);
        let got = async {
            let request_range = opening.want.and_then(|want| want.resolve_range(version.bytes));
            let want = BlockSpanWant {
                block: BlockIndex(0),
                range: span,
                ahead_bytes: 0,
                request_range: request_range.unwrap_or_default(),
            };
            let mut reading = BlockSpanReader::start_read(&self.pages, target, want)?;
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
                self.home.recall_version(&opening.subject.object, version).await;
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
