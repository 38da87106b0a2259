//! Owns the waiting for a completion queue, or a channel of events, to become readable.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::sys::{CmEvent, EventChannel};

/// A source whose descriptor becomes readable. Shared, since the queue or channel is used during
/// the wait.
pub(super) struct ReadableSource<T>(pub(super) Arc<T>);

/// Starts to watch the descriptor of `source`.
pub(super) fn watch_readable<T: AsFd>(source: Arc<T>) -> io::Result<AsyncFd<ReadableSource<T>>> {
    // SAFETY: the descriptor is that of a queue or a channel, which `source` keeps: it stays open,
    // and the same, until the registration is gone, since `AsyncFd` ends that before it drops what
    // it holds.
    let watched =
        unsafe { AsyncFd::register_with_interest(ReadableSource(source), Interest::READABLE) };
    watched.map_err(io::Error::from)
}

/// The same for who waits on the threads of `driver`, whatever thread this is.
pub(super) fn watch_readable_on<T: AsFd>(
    driver: &Handle,
    source: Arc<T>,
) -> io::Result<AsyncFd<ReadableSource<T>>> {
    let _on = driver.enter();
    watch_readable(source)
}

impl<T: AsFd> AsRawFd for ReadableSource<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> AsFd for ReadableSource<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits for the next event of a channel.
pub(super) async fn next_event(
    events: &AsyncFd<ReadableSource<EventChannel>>,
) -> io::Result<CmEvent> {
    loop {
        // Await readiness first. Looking at the channel costs a system call, and nearly always
        // finds nothing.
        let mut ready = events.readable().await?;
        match events.get_ref().0.next()? {
            Some(event) => return Ok(event),
            None => ready.clear_ready(),
        }
    }
}
