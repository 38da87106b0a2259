//! Owns the body of a write on its way out of lent memory. Each byte is copied once, and judged by
//! others after that: its lender may change it at any time. Nothing is taken once the write is over,
//! though the host may hold the body for longer: the lender has its memory back then.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use prometheus::IntCounter;
use verbs3_lending_protocol::{LentMapping, OutsideMemory};

/// Most bytes that are copied at once.
const PIECE_BYTES_MAX: u64 = 64 * 1024;

/// Memory that a body is taken out of.
pub(crate) trait SourceMemory: Send + Sync + 'static {
    fn lent_mapping(&self) -> &LentMapping;
}

/// The body of a write, in pieces of up to 64 KiB.
pub struct LentSource {
    memory: Arc<dyn SourceMemory>,
    offset: u64,
    left: u64,
    is_closed: Arc<AtomicBool>,
    taken: IntCounter,
}

/// The lender's word that its bytes stay. Dropping it ends the body, wherever that is.
pub(crate) struct SourceLease {
    is_closed: Arc<AtomicBool>,
}

/// The write ended before its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a write from lent memory ended before its body")]
pub struct SourceClosed;

impl From<OutsideMemory> for SourceClosed {
    /// The range was checked, so it does not come to this.
    fn from(_: OutsideMemory) -> Self {
        Self
    }
}

impl LentSource {
    /// Begins a body. The range lies in the memory. `taken` counts its bytes.
    pub(crate) fn open_source(
        memory: Arc<dyn SourceMemory>,
        offset: u64,
        bytes: u64,
        taken: IntCounter,
    ) -> (Self, SourceLease) {
        let is_closed = Arc::new(AtomicBool::new(false));
        let lease = SourceLease { is_closed: is_closed.clone() };
        (Self { memory, offset, left: bytes, is_closed, taken }, lease)
    }

    /// Returns how many bytes are left.
    pub fn bytes_left(&self) -> u64 {
        self.left
    }

    fn take_piece(&mut self) -> Result<Bytes, SourceClosed> {
        let bytes = self.left.min(PIECE_BYTES_MAX);
        let piece = self.memory.lent_mapping().take_bytes(self.offset, bytes as usize)?;
        // Looked at after the copy: if a byte of it is newer than the write's end, this says so.
        fence(Ordering::Acquire);
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(SourceClosed);
        }
        self.offset += bytes;
        self.left -= bytes;
        self.taken.inc_by(bytes);
        Ok(piece.into())
    }
}

impl Body for LentSource {
    type Data = Bytes;
    type Error = SourceClosed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, SourceClosed>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(self.take_piece().map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl Drop for SourceLease {
    fn drop(&mut self) {
        // Before anything that the lender sees afterwards.
        self.is_closed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}
