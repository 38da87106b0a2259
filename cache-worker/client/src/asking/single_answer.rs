//! Owns a question that has one answer without bytes: sends it to one worker, and waits for what
//! the worker says.
//!
//! Decides nothing about other workers. No GET passes here: opens and reads, which are answered
//! with bytes, come piecewise (`piecewise_answer`).

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use verbs3_protocol::{
    AnswerError, DecodeError, TenantTag, UnexpectedAnswer, WorkerQuestion, WorkerRefusal,
    WorkerReply,
};
use verbs3_rdma::transport::{CallEvent, OutgoingCall, TransportError, TransportKind};

use crate::asking::worker::TierWorker;
use crate::metrics::{CallKind, CallOutcome};

/// Reason why a question has no answer. Says nothing about which worker was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QuestionError {
    /// The worker answers, and does not do what it is asked.
    #[error(transparent)]
    Refused(#[from] WorkerRefusal),
    #[error("there is no placement map yet")]
    NoMap,
    #[error("it rests after failures")]
    Resting,
    #[error("it was silent")]
    Silent,
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("its answer makes no sense: {0}; do both run the same version?")]
    Senseless(#[from] AnswerFlaw),
}

/// What is wrong with an answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AnswerFlaw {
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    #[error(transparent)]
    Unexpected(#[from] UnexpectedAnswer),
    #[error("it wants bytes pushed to it")]
    WantsBytes,
    #[error("an open that ended without attributes")]
    NoAttributes,
    #[error("a version without a strong ETag")]
    WeakVersion,
    #[error("bytes came with no piece to vouch for them")]
    Unvouched,
    #[error("{0}")]
    OtherBytes(Box<OtherBytes>),
    #[error("{found} objects where {asked} were asked about")]
    OtherCount { found: usize, asked: usize },
}

/// Bytes came that were not asked for.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "{got} bytes and {checksums} checksums for {start}+{length} of block {block}, where \
    {due_start} to {due_end} of block {due_block} were due"
)]
pub struct OtherBytes {
    pub(crate) got: usize,
    pub(crate) checksums: usize,
    pub(crate) block: u32,
    pub(crate) start: u32,
    pub(crate) length: u32,
    pub(crate) due_block: u32,
    pub(crate) due_start: u32,
    pub(crate) due_end: u32,
}

impl From<AnswerError> for QuestionError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Refused(refusal) => Self::Refused(refusal),
            AnswerError::Unexpected(unexpected) => Self::Senseless(unexpected.into()),
        }
    }
}

impl QuestionError {
    /// Returns the outcome of a call as metrics count it.
    pub(crate) fn call_outcome(&self) -> CallOutcome {
        if matches!(self, Self::Refused(_)) { CallOutcome::Refused } else { CallOutcome::Failed }
    }
}

/// A question that is encoded once, however often it is sent.
pub(crate) struct EncodedQuestion<Q> {
    pub(crate) kind: CallKind,
    message: Bytes,
    asks: PhantomData<fn() -> Q>,
}

impl<Q: WorkerQuestion> EncodedQuestion<Q> {
    pub(crate) fn new(question: Q) -> Self {
        Self::for_tenant(question, None)
    }

    /// Makes a question that is asked for a tenant.
    pub(crate) fn for_tenant(question: Q, tenant: Option<TenantTag>) -> Self {
        let request = question.into_request();
        let kind = CallKind::of_request(&request);
        Self { kind, message: request.for_tenant(None, tenant).encode(), asks: PhantomData }
    }
}

/// How long an answer is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AnswerPatience {
    /// Signs of life don't prolong the wait.
    Until(Instant),
    /// Up to the first sign of life, and from one sign to the next.
    BetweenSigns { first: Duration, next: Duration },
}

/// A question that was sent. Dropping it cancels the call.
pub(crate) struct SentQuestion<'a, Q> {
    worker: &'a Arc<TierWorker>,
    call: OutgoingCall,
    asks: PhantomData<fn() -> Q>,
}

impl<'a, Q: WorkerQuestion> SentQuestion<'a, Q> {
    pub(crate) fn new(worker: &'a Arc<TierWorker>, question: &EncodedQuestion<Q>) -> Self {
        let call = worker.peer.start_call(question.message.clone(), None);
        Self { worker, call, asks: PhantomData }
    }

    /// Waits for the answer. Tells `note_sign` of each sign of life.
    pub(crate) async fn wait_for_answer(
        &mut self,
        patience: AnswerPatience,
        mut note_sign: impl FnMut(),
    ) -> Result<Q::Answer, QuestionError> {
        let (mut until, next) = match patience {
            AnswerPatience::Until(until) => (until, None),
            AnswerPatience::BetweenSigns { first, next } => (Instant::now() + first, Some(next)),
        };
        loop {
            let event = timeout_at(until, self.call.next()).await;
            let CallEvent::Part(part) = event.map_err(|_| QuestionError::Silent)?? else {
                return Err(AnswerFlaw::WantsBytes.into());
            };
            let reply = WorkerReply::decode(&part.message).map_err(AnswerFlaw::from)?;
            if part.last || !reply.is_empty_piece() {
                return Ok(reply.into_answer::<Q>()?);
            }
            note_sign();
            if let Some(next) = next {
                until = Instant::now() + next;
            }
        }
    }

    /// Returns the transport of the call, where it is decided.
    pub(crate) fn transport_kind(&self) -> Option<TransportKind> {
        self.call.transport_kind()
    }

    /// Leaves the transport of a call that was silent. Returns whether it was not the last way to
    /// the worker, so that the worker is not to blame.
    pub(crate) fn blames_way(&self) -> bool {
        self.worker.peer.blames_way(&self.call)
    }
}

/// Asks a worker one question, and waits for the answer.
pub(crate) async fn ask<Q: WorkerQuestion>(
    worker: &Arc<TierWorker>,
    question: &EncodedQuestion<Q>,
    patience: AnswerPatience,
) -> Result<Q::Answer, QuestionError> {
    SentQuestion::new(worker, question).wait_for_answer(patience, || {}).await
}
