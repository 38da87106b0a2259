//! Owns the write deadline of a socket: a client that stops reading would hold memory, and its
//! place among the requests under way, for ever. Reads are bounded elsewhere (`inbound_body`, and
//! hyper's header timeout).
//!
//! Also lingers before it closes. A client may get its answer before it has sent everything (the
//! store refused a PUT, for example). A reset would then hide the answer from many clients. The
//! guard reads and drops what such a client sends until it ends, within bounds.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::client_progress::ClientProgress;

/// A client that sends nothing for this long has read its answer, or is gone.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// A client that sends for this long reads no answer before it has sent everything; it is cut.
const LINGER_MAX: Duration = Duration::from_secs(15);

pub(crate) struct StallGuard {
    inner: TcpStream,
    stall_max: Duration,
    /// Made when the socket is first full; most connections never are.
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
    cut: IntCounter,
    progress: Arc<ClientProgress>,
    /// True once everything is written and the client was told so.
    shut: bool,
    linger: Option<LingerState>,
}

struct LingerState {
    until: Instant,
    silence: Pin<Box<Sleep>>,
}

impl StallGuard {
    /// Wraps a socket. `stall_max` bounds one write that the socket does not take. `cut` counts the
    /// connections that it ends.
    pub fn new(
        inner: TcpStream,
        stall_max: Duration,
        cut: IntCounter,
        progress: Arc<ClientProgress>,
    ) -> Self {
        Self {
            inner,
            stall_max,
            timer: None,
            stalled: false,
            cut,
            progress,
            shut: false,
            linger: None,
        }
    }

    fn watch_write(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = &polled {
            self.progress.note_written(*written.as_ref().unwrap_or(&0));
            self.stalled = false;
            return polled;
        }
        let stall_max = self.stall_max;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(stall_max)));
        if !self.stalled {
            self.stalled = true;
            timer.as_mut().reset(Instant::now() + stall_max);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.cut.inc();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }

    /// Drops what the client sends, until it ends its side, is silent, or has used up its time.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| LingerState {
            until: Instant::now() + LINGER_MAX,
            silence: Box::pin(sleep(SILENCE_MAX)),
        });
        let mut scratch = [0; 16 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(()))
                    if !buffer.filled().is_empty() && Instant::now() < linger.until =>
                {
                    linger.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return linger.silence.as_mut().poll(cx),
            }
        }
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.watch_write(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.watch_write(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.shut {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            this.shut = true;
        }
        if this.progress.is_unread() {
            ready!(this.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
