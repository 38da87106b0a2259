//! A socket whose writes must not stall: a client that stops reading would hold memory and an admission for ever. Owns that
//! deadline. Reads are bounded elsewhere (`inbound`, and hyper's header timeout).

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::progress::Progress;

pub(crate) struct StallGuard {
    inner: TcpStream,
    stall_max: Duration,
    /// Made when the socket is first full; most connections never are.
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
    cut: IntCounter,
    progress: Arc<Progress>,
}

impl StallGuard {
    pub fn new(inner: TcpStream, stall_max: Duration, cut: IntCounter, progress: Arc<Progress>) -> Self {
        Self { inner, stall_max, timer: None, stalled: false, cut, progress }
    }

    fn watch(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = &polled {
            self.progress.wrote(*written.as_ref().unwrap_or(&0));
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
}

impl AsyncRead for StallGuard {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.watch(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
