//! Owns the metering of a store: requests by outcome, bytes both ways, seconds to the first byte of
//! reads, and whether it answers at all. Changes nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use prometheus::IntCounter;
use s3s::dto::*;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result};

use crate::error::NoAnswerCause;
use crate::metrics::{ReadOperation, RequestOutcome, StoreOperation, UfsMetrics};
use crate::operations::every_operation;
use crate::raw_answer::{RemoteFailure, remote_failure};
use crate::store_reachability::{StoreReachability, StoreSilence};

pub(crate) struct MeteredStore {
    metrics: UfsMetrics,
    reachability: StoreReachability,
    inner: Arc<dyn S3>,
}

/// A counter of one request. It counts the request at its end, or as abandoned when its caller
/// drops it.
struct RequestCounter<'a> {
    metrics: &'a UfsMetrics,
    op: StoreOperation,
    outcome: RequestOutcome,
}

impl Drop for RequestCounter<'_> {
    fn drop(&mut self) {
        self.metrics.requests[(self.op, self.outcome)].inc();
    }
}

impl MeteredStore {
    pub(crate) fn new(metrics: UfsMetrics, inner: Arc<dyn S3>) -> Self {
        metrics.reachable.set(1);
        Self { metrics, reachability: StoreReachability::default(), inner }
    }

    /// Returns the store's silence, if the last request got no answer.
    pub(crate) fn current_silence(&self) -> Option<StoreSilence> {
        self.reachability.current_silence(Instant::now())
    }

    /// Returns whether the store has answered within this time.
    pub(crate) fn has_answered_within(&self, period: Duration) -> bool {
        self.reachability.has_answered_within(period, Instant::now())
    }

    /// Notes that a request sent at `sent` was given up without an answer.
    pub(crate) fn note_silence(&self, sent: Instant, cause: NoAnswerCause) {
        if self.reachability.note_silence(sent, Instant::now(), cause) {
            self.metrics.reachable.set(0);
        }
    }

    fn note_answer(&self) {
        if self.reachability.note_answer(Instant::now()) {
            self.metrics.reachable.set(1);
        }
    }

    async fn count_request<T>(
        &self,
        op: StoreOperation,
        call: impl Future<Output = S3Result<S3Response<T>>>,
    ) -> S3Result<S3Response<T>> {
        let metrics = &self.metrics;
        let mut count = RequestCounter { metrics, op, outcome: RequestOutcome::Abandoned };
        let sent = Instant::now();
        let result = call.await;
        count.outcome = result.as_ref().err().map_or(RequestOutcome::Ok, request_outcome);
        match result.as_ref().err().and_then(remote_failure) {
            Some(RemoteFailure::NoAnswer(reason)) => {
                self.note_silence(sent, NoAnswerCause::Client(reason.clone()))
            }
            _ => self.note_answer(),
        }
        result
    }

    async fn time_request<T>(
        &self,
        op: StoreOperation,
        read: ReadOperation,
        call: impl Future<Output = S3Result<S3Response<T>>>,
    ) -> S3Result<S3Response<T>> {
        let sent = Instant::now();
        let result = self.count_request(op, call).await;
        self.metrics.first_byte[read].observe(sent.elapsed().as_secs_f64());
        result
    }

    fn count_written(&self, body: &mut Option<StreamingBlob>) {
        *body = body.take().map(|inner| {
            let bytes = self.metrics.bytes_written.clone();
            StreamingBlob::new(CountedBody { inner, bytes })
        });
    }
}

fn request_outcome(error: &S3Error) -> RequestOutcome {
    match remote_failure(error) {
        Some(RemoteFailure::NoAnswer(_)) => return RequestOutcome::Unreachable,
        Some(RemoteFailure::Unintelligible(_)) => return RequestOutcome::Untrusted,
        Some(RemoteFailure::Answer(_)) | None => {}
    }
    match error.status_code().map_or(500, |status| status.as_u16()) {
        300..=399 => RequestOutcome::Redirection,
        400..=499 => RequestOutcome::ClientError,
        _ => RequestOutcome::ServerError,
    }
}

/// A body whose bytes are counted. Its length stays known: a PUT without one can't be sent.
struct CountedBody {
    inner: StreamingBlob,
    bytes: IntCounter,
}

impl futures::Stream for CountedBody {
    type Item = Result<bytes::Bytes, s3s::StdError>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let piece = self.inner.poll_next_unpin(cx);
        if let std::task::Poll::Ready(Some(Ok(bytes))) = &piece {
            self.bytes.inc_by(bytes.len() as u64);
        }
        piece
    }
}

impl ByteStream for CountedBody {
    fn remaining_length(&self) -> RemainingLength {
        self.inner.remaining_length()
    }
}

/// Prepares a request before it goes on.
macro_rules! before {
    (put_object $self:ident $req:ident) => {
        $self.count_written(&mut $req.input.body)
    };
    (upload_part $self:ident $req:ident) => {
        $self.count_written(&mut $req.input.body)
    };
    ($other:ident $self:ident $req:ident) => {};
}

/// Measures a request.
macro_rules! measure {
    (get_object $self:ident $call:expr) => {
        $self.time_request(StoreOperation::get_object, ReadOperation::GetObject, $call).await
    };
    (head_object $self:ident $call:expr) => {
        $self.time_request(StoreOperation::head_object, ReadOperation::HeadObject, $call).await
    };
    ($op:ident $self:ident $call:expr) => {
        $self.count_request(StoreOperation::$op, $call).await
    };
}

macro_rules! metered {
    ($($op:ident $input:ident $output:ident,)*) => {
        #[async_trait::async_trait]
        impl S3 for MeteredStore {
            $(
                #[allow(unused_mut)]
                async fn $op(&self, mut req: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    before!($op self req);
                    measure!($op self self.inner.$op(req))
                }
            )*
        }
    };
}

every_operation!(metered);
