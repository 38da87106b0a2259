//! Owns the body of a PUT whose payload is read out of a client's memory: its two ends, between the
//! reads and the write. It ends as it should behind its last byte alone, and only if it is told so.
//! In every other case it breaks off, and so does the write: nothing is stored.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Pieces that wait for the write, besides those that the reads have.
const PIECES_WAITING: usize = 1;

enum PulledFrame {
    Piece(Bytes),
    /// All was read.
    End,
}

/// The end of a body where bytes go in. Dropping it breaks the body off.
pub(crate) struct PulledBodyFeed {
    frames: mpsc::Sender<PulledFrame>,
    wanted: CancellationToken,
}

/// The write takes no more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WriteEnded;

/// The end of a body that is written.
pub(crate) struct PulledBody {
    frames: mpsc::Receiver<PulledFrame>,
    /// Cancelled when the write asks for its first piece.
    wanted: CancellationToken,
    left: u64,
    is_over: bool,
}

/// The client's memory was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a read of a client's memory ended before its body")]
pub(crate) struct PulledBodyCut;

/// Makes a body of `bytes`.
pub(crate) fn make_pulled_body(bytes: u64) -> (PulledBodyFeed, PulledBody) {
    let (feed, frames) = mpsc::channel(PIECES_WAITING);
    let wanted = CancellationToken::new();
    let feed = PulledBodyFeed { frames: feed, wanted: wanted.clone() };
    (feed, PulledBody { frames, wanted, left: bytes, is_over: false })
}

impl PulledBodyFeed {
    /// Waits until the write asks for its first piece: it has its turn, and was not refused.
    pub(crate) async fn await_wanted(&self) -> Result<(), WriteEnded> {
        tokio::select! {
            biased;
            () = self.await_write_end() => Err(WriteEnded),
            () = self.wanted.cancelled() => Ok(()),
        }
    }

    /// Passes a piece on, once there is room.
    pub(crate) async fn pass_piece(&self, piece: Bytes) -> Result<(), WriteEnded> {
        self.frames.send(PulledFrame::Piece(piece)).await.map_err(|_| WriteEnded)
    }

    /// Waits until the write takes no more.
    pub(crate) async fn await_write_end(&self) {
        self.frames.closed().await;
    }

    /// Says that all was passed on.
    pub(crate) async fn end_body(self) -> Result<(), WriteEnded> {
        self.frames.send(PulledFrame::End).await.map_err(|_| WriteEnded)
    }
}

impl PulledBody {
    fn take_frame(&mut self, frame: Option<PulledFrame>) -> Option<Result<Bytes, PulledBodyCut>> {
        match frame {
            Some(PulledFrame::Piece(piece)) if piece.len() as u64 <= self.left => {
                self.left -= piece.len() as u64;
                Some(Ok(piece))
            }
            Some(PulledFrame::End) if self.left == 0 => {
                self.is_over = true;
                None
            }
            Some(PulledFrame::Piece(_) | PulledFrame::End) | None => {
                self.is_over = true;
                Some(Err(PulledBodyCut))
            }
        }
    }
}

impl Body for PulledBody {
    type Data = Bytes;
    type Error = PulledBodyCut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, PulledBodyCut>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.wanted.cancel();
        let frame = ready!(self.frames.poll_recv(cx));
        Poll::Ready(self.take_frame(frame).map(|taken| taken.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http_body_util::BodyExt as _;

    use super::*;

    async fn pass(feed: PulledBodyFeed, pieces: &[&'static [u8]], ends: bool) {
        for piece in pieces {
            if feed.pass_piece(Bytes::from_static(piece)).await.is_err() {
                return;
            }
        }
        if ends {
            let _ = feed.end_body().await;
        }
    }

    #[tokio::test]
    async fn body_ends_only_behind_its_last_byte_and_its_end() {
        for (pieces, ends, whole) in [
            (&[b"01234".as_slice(), b"56789"][..], true, true),
            (&[b"0123456789"], true, true),
            (&[b"01234", b"56789"], false, false),
            (&[b"01234"], true, false),
            (&[b"01234", b"567890"], true, false),
            (&[b"0123456789", b"0"], true, false),
            (&[], false, false),
            (&[], true, false),
        ] {
            let (feed, body) = make_pulled_body(10);
            let (collected, ()) = tokio::join!(body.collect(), pass(feed, pieces, ends));
            assert_eq!(collected.is_ok(), whole, "{pieces:?} {ends}");
            if let Ok(collected) = collected {
                assert_eq!(collected.to_bytes(), "0123456789");
            }
        }
    }

    #[tokio::test]
    async fn feed_is_told_when_the_write_begins_and_when_it_does_not() {
        let (feed, mut body) = make_pulled_body(10);
        {
            let wanted = feed.await_wanted();
            tokio::pin!(wanted);
            assert!(futures::poll!(wanted.as_mut()).is_pending());
            assert!(futures::poll!(body.frame()).is_pending());
            assert_eq!(wanted.await, Ok(()));
        }
        drop(body);
        assert_eq!(feed.await_wanted().await, Err(WriteEnded));
    }

    #[tokio::test]
    async fn feed_waits_for_the_write_and_notices_its_end() {
        let (feed, mut body) = make_pulled_body(10);
        feed.pass_piece(Bytes::from_static(b"0")).await.unwrap();
        {
            let second = feed.pass_piece(Bytes::from_static(b"1"));
            tokio::pin!(second);
            assert!(futures::poll!(second.as_mut()).is_pending(), "one piece waits");
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "0");
            second.await.unwrap();
        }
        drop(body);
        assert_eq!(feed.pass_piece(Bytes::from_static(b"2")).await, Err(WriteEnded));
        assert_eq!(feed.end_body().await, Err(WriteEnded));
    }
}
