//! Owns the body of a read: it hands out exactly the planned bytes, or an error.
//!
//! Owns length checks, cutting and the idle deadline. Also owns what must live as long as the body
//! (the permit). Knows nothing of headers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::Stream;
use s3s::dto::StreamingBlob;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::answer_check::StoreReadPlan;
use crate::answer_defect::AnswerDefect;
use crate::error::{TruncationCause, UfsError};

/// The body behind [`crate::ObjectStream::body`]. It holds `G` until its end, an error, or drop.
pub(crate) struct CheckedBody<G> {
    ufs: String,
    inner: StreamingBlob,
    guard: Option<G>,
    /// Bytes still to be thrown away.
    skip: u64,
    want: u64,
    got: u64,
    /// True if the inner body must end after `want`.
    to_end: bool,
    idle: Duration,
    /// One timer for the whole body; armed when the inner body has nothing ready.
    timer: Pin<Box<Sleep>>,
    armed: bool,
    done: bool,
    on_bytes: Box<dyn Fn(u64) + Send>,
}

impl<G> CheckedBody<G> {
    pub(crate) fn new(
        ufs: String,
        inner: StreamingBlob,
        plan: &StoreReadPlan,
        idle: Duration,
        guard: G,
        on_bytes: Box<dyn Fn(u64) + Send>,
    ) -> Self {
        let want = plan.range.end - plan.range.start;
        let timer = Box::pin(sleep_until(Instant::now()));
        let (skip, to_end) = (plan.skip, plan.to_end);
        let guard = Some(guard);
        Self {
            ufs,
            inner,
            guard,
            skip,
            want,
            got: 0,
            to_end,
            idle,
            timer,
            armed: false,
            done: false,
            on_bytes,
        }
    }

    fn end_body(&mut self, error: Option<UfsError>) -> Poll<Option<Result<Bytes, UfsError>>> {
        self.done = true;
        self.guard = None;
        Poll::Ready(error.map(Err))
    }

    fn truncated_error(&self, cause: TruncationCause) -> UfsError {
        UfsError::Truncated { ufs: self.ufs.clone(), got: self.got, want: self.want, cause }
    }

    /// Polls the next piece of the inner body. Pieces may be empty. Returns `Err` after `idle` of
    /// silence.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UfsError>> {
        match Pin::new(&mut self.inner).poll_next(cx) {
            Poll::Ready(piece) => {
                self.armed = false;
                Poll::Ready(match piece {
                    Some(Ok(bytes)) => Ok(Some(bytes)),
                    Some(Err(error)) => {
                        Err(self.truncated_error(TruncationCause::Stream(error.into())))
                    }
                    None => Ok(None),
                })
            }
            Poll::Pending => {
                if !self.armed {
                    self.timer.as_mut().reset(Instant::now() + self.idle);
                    self.armed = true;
                }
                ready!(self.timer.as_mut().poll(cx));
                Poll::Ready(Err(self.truncated_error(TruncationCause::Silent(self.idle))))
            }
        }
    }
}

impl<G: Unpin> Stream for CheckedBody<G> {
    type Item = Result<Bytes, UfsError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if this.done {
                return Poll::Ready(None);
            }
            if this.got == this.want && !this.to_end {
                return this.end_body(None);
            }
            let mut bytes = match ready!(this.poll_inner(cx)) {
                Ok(Some(bytes)) => bytes,
                Ok(None) if this.got == this.want => return this.end_body(None),
                Ok(None) => {
                    let error = this.truncated_error(TruncationCause::EndedEarly);
                    return this.end_body(Some(error));
                }
                Err(error) => return this.end_body(Some(error)),
            };
            let skipped = this.skip.min(bytes.len() as u64);
            bytes.advance(usize::try_from(skipped).expect("not more than the piece is long"));
            this.skip -= skipped;
            let rest = this.want - this.got;
            if bytes.len() as u64 > rest {
                if this.to_end {
                    let defect = AnswerDefect::ExcessBody { bytes: this.want };
                    let error = UfsError::Untrusted { ufs: this.ufs.clone(), defect };
                    return this.end_body(Some(error));
                }
                bytes.truncate(usize::try_from(rest).expect("less than the piece is long"));
            }
            if !bytes.is_empty() {
                this.got += bytes.len() as u64;
                (this.on_bytes)(bytes.len() as u64);
                return Poll::Ready(Some(Ok(bytes)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::object::ObjectHead;
    use futures::{StreamExt, stream};
    use http::HeaderMap;
    use std::sync::Arc;

    fn plan(range: std::ops::Range<u64>, skip: u64, to_end: bool) -> StoreReadPlan {
        let head = ObjectHead {
            etag: None,
            bytes: 10,
            version_id: None,
            last_modified: None,
            headers: HeaderMap::new(),
        };
        StoreReadPlan { head, range, skip, to_end }
    }

    fn blob(pieces: &[&'static str]) -> StreamingBlob {
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            pieces.iter().map(|p| Ok(Bytes::from_static(p.as_bytes()))).collect();
        StreamingBlob::wrap(stream::iter(pieces))
    }

    async fn read(inner: StreamingBlob, plan: StoreReadPlan) -> (String, Option<UfsError>) {
        let idle = Duration::from_millis(20);
        let mut body = CheckedBody::new("main".into(), inner, &plan, idle, (), Box::new(|_| ()));
        let (mut text, mut error) = (String::new(), None);
        while let Some(piece) = body.next().await {
            match piece {
                Ok(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                Err(e) => error = Some(e),
            }
        }
        (text, error)
    }

    #[tokio::test]
    async fn a_body_of_the_right_length_passes() {
        let (text, error) = read(blob(&["01", "", "234", "56789"]), plan(0..10, 0, true)).await;
        assert_eq!(text, "0123456789");
        assert!(error.is_none());
    }

    #[tokio::test]
    async fn a_range_is_cut_from_a_whole_body() {
        let (text, error) = read(blob(&["01", "234", "56789"]), plan(3..7, 3, false)).await;
        assert_eq!(text, "3456");
        assert!(error.is_none());
    }

    #[tokio::test]
    async fn a_short_body_ends_in_an_error() {
        let (_, error) = read(blob(&["01", "234"]), plan(0..10, 0, true)).await;
        assert!(matches!(error, Some(UfsError::Truncated { got: 5, want: 10, .. })));
    }

    #[tokio::test]
    async fn a_body_that_is_cut_while_skipping_ends_in_an_error() {
        let (text, error) = read(blob(&["01"]), plan(3..7, 3, false)).await;
        assert_eq!(text, "");
        assert!(matches!(error, Some(UfsError::Truncated { got: 0, want: 4, .. })));
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_ends_in_an_error_without_its_excess() {
        for pieces in [&["0123456789", "x"][..], &["01234", "56789x"][..]] {
            let (text, error) = read(blob(pieces), plan(0..10, 0, true)).await;
            assert!(text.len() <= 10 && !text.contains('x'));
            assert!(matches!(error, Some(UfsError::Untrusted { .. })));
        }
    }

    #[tokio::test]
    async fn silence_ends_in_an_error_and_frees_what_the_body_held() {
        let held = Arc::new(());
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"01"))]);
        let inner = StreamingBlob::wrap(first.chain(stream::pending()));
        let plan = plan(0..10, 0, true);
        let idle = Duration::from_millis(5);
        let mut body =
            CheckedBody::new("main".into(), inner, &plan, idle, held.clone(), Box::new(|_| ()));
        assert!(body.next().await.unwrap().is_ok());
        assert!(matches!(body.next().await, Some(Err(UfsError::Truncated { got: 2, .. }))));
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(body.next().await.is_none());
    }
}
