//! Owns a request body on its way to the UFS. Holds its last frame back until every promise about
//! it has proved true and the homes know of the write. On failure the body errors, which cuts the
//! connection to the UFS: bytes are missing from its Content-Length, so nothing is stored. Buffers
//! one frame at most.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3Error, S3Result, StdError};

use super::body_fault::{BodyFault, FaultSlot};
use super::checks::BodyChecks;
use super::home_notifier::BodyWriteHandle;

use crate::metrics::BodyRefusal;

/// The place where a body leaves the reason of its failure: the UFS client above only knows that it
/// failed.
#[derive(Clone, Default)]
pub(crate) struct BodyVerdict(Arc<Mutex<BodyOutcome>>);

#[derive(Default)]
struct BodyOutcome {
    fault: Option<BodyFault>,
    refused: Option<S3Error>,
    released: bool,
}

impl BodyVerdict {
    /// Takes the reason why the body was not let through, if it was not.
    pub fn take_error(&self) -> Option<S3Error> {
        let mut outcome = self.0.lock();
        outcome.fault.take().map(BodyFault::into_error).or_else(|| outcome.refused.take())
    }

    /// Returns what metrics call the body's fault, if one was found. The fault stays for
    /// `take_error`.
    pub(crate) fn fault_refusal(&self) -> Option<BodyRefusal> {
        self.0.lock().fault.as_ref().map(BodyFault::body_refusal)
    }

    /// Returns whether the whole body was let through.
    pub fn is_released(&self) -> bool {
        self.0.lock().released
    }
}

enum VerifyState {
    Reading,
    /// Everything arrived and proved true; the homes are being told.
    Announcing(Mutex<BoxFuture<'static, S3Result<()>>>),
    Releasing,
    Over,
}

/// A body that is verified before its last frame goes.
pub(crate) struct VerifiedBody {
    inner: StreamingBlob,
    held: Option<Bytes>,
    checks: Option<BodyChecks>,
    declared: u64,
    got: u64,
    sent: u64,
    announcer: Option<BodyWriteHandle>,
    below: FaultSlot,
    verdict: BodyVerdict,
    state: VerifyState,
}

impl VerifiedBody {
    /// Wraps a body. `announcer` is told before the last frame goes; `None` for a write that no
    /// reader can see yet.
    pub fn new(
        inner: StreamingBlob,
        declared: u64,
        checks: BodyChecks,
        announcer: Option<BodyWriteHandle>,
        below: FaultSlot,
    ) -> (Self, BodyVerdict) {
        let verdict = BodyVerdict::default();
        let (held, checks, state) = (None, Some(checks), VerifyState::Reading);
        let body = Self {
            inner,
            held,
            checks,
            declared,
            got: 0,
            sent: 0,
            announcer,
            below,
            verdict: verdict.clone(),
            state,
        };
        (body, verdict)
    }

    fn fail_body(&mut self, fault: BodyFault) -> Poll<Option<Result<Bytes, StdError>>> {
        // The cause below s3s is the true one; s3s's own error is a consequence.
        let fault = self.below.lock().take().unwrap_or(fault);
        self.state = VerifyState::Over;
        self.held = None;
        let error: StdError = Box::new(fault.clone());
        self.verdict.0.lock().fault = Some(fault);
        Poll::Ready(Some(Err(error)))
    }

    fn pass_frame(&mut self, frame: Bytes) -> Poll<Option<Result<Bytes, StdError>>> {
        self.sent += frame.len() as u64;
        Poll::Ready(Some(Ok(frame)))
    }

    /// Holds a frame back and passes the one before it.
    fn hold_frame(&mut self, frame: Bytes) -> Option<Poll<Option<Result<Bytes, StdError>>>> {
        if frame.is_empty() {
            return None;
        }
        self.got += frame.len() as u64;
        if self.got > self.declared {
            let (got, declared) = (self.got, self.declared);
            return Some(self.fail_body(BodyFault::Length { got, declared }));
        }
        if let Some(checks) = &mut self.checks {
            checks.update(&frame);
        }
        self.held.replace(frame).map(|before| self.pass_frame(before))
    }

    /// Checks the body at its end, and begins to announce.
    fn finish_checks(&mut self) -> Result<(), BodyFault> {
        if let Some(fault) = self.below.lock().take() {
            return Err(fault);
        }
        if let Some(checks) = self.checks.take() {
            checks.finish(self.got)?;
        }
        self.state = match self.announcer.take() {
            Some(announcer) => VerifyState::Announcing(Mutex::new(Box::pin(async move {
                announcer.announce_write().await
            }))),
            None => VerifyState::Releasing,
        };
        Ok(())
    }
}

impl Stream for VerifiedBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                VerifyState::Reading => match ready!(Pin::new(&mut this.inner).poll_next(cx)) {
                    Some(Ok(frame)) => {
                        if let Some(answer) = this.hold_frame(frame) {
                            return answer;
                        }
                    }
                    Some(Err(error)) => return this.fail_body(fault_of(&*error)),
                    None => {
                        if let Err(fault) = this.finish_checks() {
                            return this.fail_body(fault);
                        }
                    }
                },
                VerifyState::Announcing(announcing) => {
                    match ready!(announcing.get_mut().as_mut().poll(cx)) {
                        Ok(()) => this.state = VerifyState::Releasing,
                        Err(error) => {
                            this.state = VerifyState::Over;
                            this.held = None;
                            let cut: StdError = error
                                .message()
                                .unwrap_or("the write was refused")
                                .to_owned()
                                .into();
                            this.verdict.0.lock().refused = Some(error);
                            return Poll::Ready(Some(Err(cut)));
                        }
                    }
                }
                VerifyState::Releasing => {
                    this.state = VerifyState::Over;
                    this.verdict.0.lock().released = true;
                    if let Some(last) = this.held.take() {
                        return this.pass_frame(last);
                    }
                }
                VerifyState::Over => return Poll::Ready(None),
            }
        }
    }
}

impl ByteStream for VerifiedBody {
    fn remaining_length(&self) -> RemainingLength {
        usize::try_from(self.declared - self.sent)
            .map_or_else(|_| RemainingLength::unknown(), RemainingLength::new_exact)
    }
}

/// Translates an error of the stream above the socket. s3s keeps its error types private, so their
/// texts are read. A test drives each through s3s, so that a change of the texts is noticed.
fn fault_of(error: &(dyn std::error::Error + Send + Sync + 'static)) -> BodyFault {
    if let Some(fault) = error.downcast_ref::<BodyFault>() {
        return fault.clone();
    }
    let text = error.to_string();
    match text.contains("UploadStreamError: Sha256Mismatch") {
        true => BodyFault::Sha256,
        // Only its text can be kept: s3s lends the error.
        false => BodyFault::broken(text),
    }
}

#[cfg(test)]
mod tests;
