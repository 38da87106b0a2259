//! Owns bodies on their way through the SDK. A request's body is held to its announced length, and
//! its own error is kept apart from the store's. An answer's body is bounded in length.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3Error, S3ErrorCode, StdError, s3_error};

/// The error of a request's own body, if it failed.
#[derive(Clone, Default)]
pub(super) struct BodyError(Arc<Mutex<Option<StdError>>>);

impl BodyError {
    /// Takes the body's error as the client should see it: its own if it is one of S3's, else
    /// "incomplete".
    pub(super) fn take_error(&self) -> Option<S3Error> {
        self.0.lock().take().map(as_s3)
    }
}

fn as_s3(error: StdError) -> S3Error {
    match error.downcast::<S3Error>() {
        Ok(error) => *error,
        Err(error) => {
            let mut incomplete =
                s3_error!(IncompleteBody, "the request's body could not be read to its end");
            incomplete.set_source(error);
            incomplete
        }
    }
}

async fn ends_at_once(body: &mut StreamingBlob) -> Result<(), S3Error> {
    while let Some(piece) = body.next().await {
        if !piece.map_err(as_s3)?.is_empty() {
            return Err(s3_error!(IncompleteBody, "a body comes where none was announced"));
        }
    }
    Ok(())
}

/// A request's body that carries exactly its announced length or fails. A failure cuts the
/// connection to the store before the request is complete, so that nothing is stored. So the last
/// piece is handed on only after the body has ended without error.
pub(super) struct UploadBody {
    inner: StreamingBlob,
    /// Bytes not yet handed on; the length that the store is told.
    left: u64,
    /// The piece that completes the body.
    last: Option<Bytes>,
    error: BodyError,
    ended: bool,
}

impl UploadBody {
    /// Wraps a body. Fails if neither the request nor the body knows its length.
    pub(super) async fn new(
        mut inner: StreamingBlob,
        announced: Option<i64>,
    ) -> Result<(Self, BodyError), S3Error> {
        let known = inner.remaining_length().exact().map(|length| length as u64);
        let announced = announced
            .map(u64::try_from)
            .transpose()
            .map_err(|_| s3_error!(InvalidArgument, "negative length"))?;
        let left = match (announced, known) {
            (Some(announced), Some(known)) if announced != known => {
                return Err(s3_error!(
                    IncompleteBody,
                    "{announced} bytes were announced and {known} come"
                ));
            }
            (Some(length), _) | (None, Some(length)) => length,
            (None, None) => {
                return Err(s3_error!(MissingContentLength, "the body's length must be known"));
            }
        };
        let error = BodyError::default();
        if left == 0 {
            // Nobody polls a body of no bytes to its end, so check its end here.
            ends_at_once(&mut inner).await?;
        }
        Ok((Self { inner, left, last: None, error: error.clone(), ended: false }, error))
    }

    fn fail_upload(&mut self, error: StdError) -> Poll<Option<Result<Bytes, StdError>>> {
        self.ended = true;
        *self.error.0.lock() = Some(error);
        Poll::Ready(Some(Err(io::Error::other("the request's own body failed").into())))
    }
}

impl Stream for UploadBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            let held = this.last.as_ref().map_or(0, |last| last.len() as u64);
            match ready!(Pin::new(&mut this.inner).poll_next(cx)) {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) if bytes.len() as u64 > this.left - held => {
                    return this.fail_upload(
                        s3_error!(IncompleteBody, "the body goes on after its announced length")
                            .into(),
                    );
                }
                Some(Ok(bytes)) if bytes.len() as u64 == this.left => this.last = Some(bytes),
                Some(Ok(bytes)) => {
                    this.left -= bytes.len() as u64;
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Err(error)) => return this.fail_upload(error),
                None if this.left > held => {
                    let message =
                        format!("the body ended {} bytes before its announced length", this.left);
                    return this.fail_upload(
                        S3Error::with_message(S3ErrorCode::IncompleteBody, message).into(),
                    );
                }
                None => {
                    this.ended = true;
                    this.left = 0;
                    return Poll::Ready(this.last.take().map(Ok));
                }
            }
        }
    }
}

impl ByteStream for UploadBody {
    fn remaining_length(&self) -> RemainingLength {
        // Where a length is too long for this machine, no body of that length can come either.
        RemainingLength::new_exact(usize::try_from(self.left).unwrap_or(usize::MAX))
    }
}

/// An answer's body up to a bound.
pub(super) struct BoundedAnswerBody {
    inner: SdkBody,
    left: usize,
    quietly: bool,
}

impl BoundedAnswerBody {
    pub(super) fn quietly_after(inner: SdkBody, left: usize) -> Self {
        Self { inner, left, quietly: true }
    }

    pub(super) fn with_error_after(inner: SdkBody, left: usize) -> Self {
        Self { inner, left, quietly: false }
    }
}

impl Body for BoundedAnswerBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(cx)?) else {
            return Poll::Ready(None);
        };
        let Ok(mut data) = frame.into_data() else { return Poll::Ready(None) };
        if data.len() > self.left {
            if !self.quietly {
                return Poll::Ready(Some(Err(io::Error::other(
                    "the store's answer is longer than any of S3's",
                )
                .into())));
            }
            data.truncate(self.left);
            if data.is_empty() {
                return Poll::Ready(None);
            }
        }
        self.left -= data.len();
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::stream;

    type Piece = Result<Bytes, S3Error>;

    fn piece(text: &'static str) -> Piece {
        Ok(Bytes::from_static(text.as_bytes()))
    }

    async fn run(pieces: Vec<Piece>, length: i64) -> (String, Option<S3Error>) {
        let (mut upload, error) =
            UploadBody::new(StreamingBlob::wrap(stream::iter(pieces)), Some(length)).await.unwrap();
        let mut text = String::new();
        while let Some(piece) = upload.next().await {
            match piece {
                Ok(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                Err(_) => return (text, error.take_error()),
            }
        }
        (text, error.take_error())
    }

    #[tokio::test]
    async fn a_body_of_the_announced_length_passes() {
        let (text, error) = run(vec![piece("01"), piece(""), piece("23"), piece("")], 4).await;
        assert!(text == "0123" && error.is_none());
    }

    #[tokio::test]
    async fn a_short_a_long_and_a_failing_body_never_become_complete() {
        for (pieces, code) in [
            (vec![piece("01")], "IncompleteBody"),
            (vec![piece("01"), piece("23"), piece("4")], "IncompleteBody"),
            (vec![piece("01"), piece("234")], "IncompleteBody"),
            (vec![piece("01"), piece("23"), Err(s3_error!(BadDigest))], "BadDigest"),
        ] {
            let (text, error) = run(pieces, 4).await;
            assert_eq!(text, "01");
            assert_eq!(error.unwrap().code().as_str(), code);
        }
    }

    #[tokio::test]
    async fn a_body_where_none_was_announced_is_refused() {
        let some = StreamingBlob::wrap(stream::iter([piece("0")]));
        assert_eq!(
            UploadBody::new(some, Some(0)).await.err().unwrap().code().as_str(),
            "IncompleteBody"
        );
        let none = StreamingBlob::wrap(stream::iter([piece("")]));
        assert!(UploadBody::new(none, Some(0)).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_without_a_length_or_with_two_is_refused() {
        let unknown = || StreamingBlob::wrap(stream::iter([piece("01")]));
        assert_eq!(
            UploadBody::new(unknown(), None).await.err().unwrap().code().as_str(),
            "MissingContentLength"
        );
        let known = StreamingBlob::from(s3s::Body::from(Bytes::from_static(b"01")));
        assert_eq!(
            UploadBody::new(known, Some(3)).await.err().unwrap().code().as_str(),
            "IncompleteBody"
        );
    }
}
