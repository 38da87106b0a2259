//! Owns what a write writes that did not come over HTTP: one body out of several kinds. Moves
//! nothing.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use s3s::StdError;
use verbs3_lending::LentSource;

use crate::s3_rdma::PulledBody;

/// The body of such a write.
pub(crate) enum WriteSource {
    /// Memory that a process of this host lends.
    Lent(LentSource),
    /// Memory of a client of another host.
    Client(PulledBody),
}

impl Body for WriteSource {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let frame: Option<Result<_, StdError>> = match self.get_mut() {
            Self::Lent(source) => {
                ready!(Pin::new(source).poll_frame(cx)).map(|frame| frame.map_err(Into::into))
            }
            Self::Client(body) => {
                ready!(Pin::new(body).poll_frame(cx)).map(|frame| frame.map_err(Into::into))
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Lent(source) => source.is_end_stream(),
            Self::Client(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Lent(source) => source.size_hint(),
            Self::Client(body) => body.size_hint(),
        }
    }
}
