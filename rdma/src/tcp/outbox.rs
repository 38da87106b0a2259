//! The write side of a connection: a bounded queue of frames, written by whoever comes first.
//!
//! Owns the order of frames and the bound on bytes that wait. A frame that meets an idle socket is written by the caller
//! itself, so that a small reply needs no other task; what the socket doesn't take is the writer task's.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::frame::{HEADER_BYTES, Header, Kind};
use crate::metrics::{GaugeGuard, metrics};

/// Pieces of one `writev`. Linux takes 1,024; 64 pages of 256 KiB are more than a socket buffer holds anyway.
const SLICES_MAX: usize = 64;

/// Writes that a caller does itself before it leaves the rest to the writer task: its own work waits meanwhile.
const INLINE_WRITES_MAX: usize = 4;

/// Frames that an idle queue keeps room for.
const FRAMES_KEPT_MAX: usize = 64;

/// Unit of the queue's bound, so that a 32-bit count of permits reaches far.
const PERMIT_BYTES: u64 = 1024;

/// Room in the queue for one frame; given back when the frame is written or abandoned.
pub(super) struct Room {
    _permit: OwnedSemaphorePermit,
    _gauge: GaugeGuard,
}

pub(super) struct Outgoing {
    kind: Kind,
    call: u64,
    header: [u8; HEADER_BYTES],
    message: Bytes,
    data: Vec<Bytes>,
    /// `None` for control frames, which are few: each belongs to a call that the peer was allowed to make.
    room: Option<Room>,
}

impl Outgoing {
    pub(super) fn new(mut header: Header, message: Bytes, data: Vec<Bytes>) -> Self {
        header.message_bytes = message.len() as u32;
        header.data_bytes = data.iter().map(|piece| piece.len() as u64).sum();
        Self { kind: header.kind, call: header.call, header: header.encode(), message, data, room: None }
    }

    pub(super) fn control(kind: Kind, call: u64) -> Self {
        Self::new(Header::new(kind, call), Bytes::new(), Vec::new())
    }

    pub(super) fn within(mut self, room: Room) -> Self {
        self.room = Some(room);
        self
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        [&self.header[..], &self.message[..]].into_iter().chain(self.data.iter().map(|piece| &piece[..]))
    }

    fn bytes(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }
}

pub(super) struct Outbox {
    queue: Mutex<Queue>,
    room: Arc<Semaphore>,
    permits_max: u32,
    controls_max: usize,
    /// Tells the writer task that the queue is its business now, or that it is over.
    work: Notify,
    /// Tells whoever waits for control frames to get fewer.
    written: Notify,
}

#[derive(Default)]
struct Queue {
    /// Taken out at the end, so that the socket closes even while handles and calls live on. Only a closed socket makes
    /// a peer stop that is still sending.
    stream: Option<Arc<TcpStream>>,
    frames: VecDeque<Outgoing>,
    /// Bytes of the first frame that are in the socket already.
    skip: usize,
    controls: usize,
    /// Somebody is writing; others only add.
    busy: bool,
    /// The writer task is the one that is.
    with_task: bool,
    /// Nothing follows; the writer task ends when the queue is empty.
    finishing: bool,
    closed: bool,
}

/// Frames that are being written, outside the lock.
struct Batch {
    stream: Arc<TcpStream>,
    frames: VecDeque<Outgoing>,
    skip: usize,
}

impl Outbox {
    pub(super) fn new(stream: Arc<TcpStream>, bytes_max: usize, controls_max: usize) -> Self {
        let permits = (bytes_max as u64 / PERMIT_BYTES).clamp(1, u64::from(u32::MAX >> 4)) as u32;
        Self {
            queue: Mutex::new(Queue { stream: Some(stream), ..Queue::default() }),
            room: Arc::new(Semaphore::new(permits as usize)),
            permits_max: permits,
            controls_max,
            work: Notify::new(),
            written: Notify::new(),
        }
    }

    /// Waits until `bytes` may be queued; `None` once the connection is closed. A frame larger than the whole queue
    /// waits until the queue is empty.
    pub(super) async fn room(&self, bytes: u64) -> Option<Room> {
        let permits = u64::from(self.permits_max).min(bytes.div_ceil(PERMIT_BYTES).max(1)) as u32;
        let permit = match self.room.clone().try_acquire_many_owned(permits) {
            Ok(permit) => permit,
            Err(_) => self.room.clone().acquire_many_owned(permits).await.ok()?,
        };
        Some(Room { _permit: permit, _gauge: GaugeGuard::add(&metrics().queued_bytes, bytes) })
    }

    /// Waits while the peer makes this side answer faster than it reads the answers.
    pub(super) async fn control_room(&self) {
        loop {
            let written = self.written.notified();
            {
                let queue = self.queue.lock();
                if queue.controls < self.controls_max || queue.closed {
                    return;
                }
            }
            written.await;
        }
    }

    /// Adds a frame, without writing: cheap enough for a caller that holds a lock. Follow with [`Outbox::flush`].
    pub(super) fn push(&self, frame: Outgoing) {
        let mut queue = self.queue.lock();
        if queue.closed {
            return;
        }
        if frame.room.is_none() {
            queue.controls += 1;
        }
        queue.frames.push_back(frame);
    }

    /// Drops the parts of a call that are not on their way yet.
    pub(super) fn abandon(&self, call: u64) {
        let mut queue = self.queue.lock();
        let started = usize::from(queue.skip > 0);
        let mut at = 0;
        let mut dropped = Vec::new();
        while at < queue.frames.len() {
            let frame = &queue.frames[at];
            if at >= started && frame.call == call && frame.kind == Kind::Part {
                dropped.extend(queue.frames.remove(at));
            } else {
                at += 1;
            }
        }
        drop(queue);
        drop(dropped);
    }

    /// Writes what is queued, unless somebody else is at it. Never waits for the socket.
    pub(super) fn flush(&self) {
        let Some(mut batch) = self.begin(false) else {
            return;
        };
        for _ in 0..INLINE_WRITES_MAX {
            match batch.write() {
                Ok(()) if batch.frames.is_empty() => {
                    if !self.next(&mut batch) {
                        return;
                    }
                }
                Ok(()) => {}
                // The reader sees the same broken socket, and says so to every call.
                Err(_) => break,
            }
        }
        self.hand_over(batch);
    }

    /// The writer task: writes what callers leave, until [`Outbox::finish`] and an empty queue, or an error.
    pub(super) async fn run(&self) -> io::Result<()> {
        loop {
            let work = self.work.notified();
            let Some(mut batch) = self.begin(true) else {
                let over = {
                    let queue = self.queue.lock();
                    queue.closed || (queue.finishing && !queue.busy)
                };
                if over {
                    return Ok(());
                }
                work.await;
                continue;
            };
            loop {
                match batch.write() {
                    Ok(()) if batch.frames.is_empty() => {
                        if !self.next(&mut batch) {
                            break;
                        }
                    }
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        batch.stream.writable().await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Lets the writer task end after what is queued.
    pub(super) fn finish(&self) {
        self.queue.lock().finishing = true;
        self.work.notify_one();
    }

    /// Tells the peer that nothing follows.
    pub(super) fn shut_write(&self) {
        // Fails only on a socket that is closed already.
        if let Some(stream) = &self.queue.lock().stream {
            let _ = SockRef::from(&**stream).shutdown(Shutdown::Write);
        }
    }

    /// Closes the socket and forgets everything; whoever waits for room learns that there will be none.
    pub(super) fn close(&self) {
        let remains = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            queue.controls = 0;
            (std::mem::take(&mut queue.frames), queue.stream.take())
        };
        drop(remains);
        self.room.close();
        self.work.notify_one();
        self.written.notify_waiters();
    }

    fn begin(&self, task: bool) -> Option<Batch> {
        let mut queue = self.queue.lock();
        if queue.closed || queue.frames.is_empty() || (queue.busy && !(task && queue.with_task)) {
            return None;
        }
        let stream = queue.stream.clone()?;
        queue.busy = true;
        queue.with_task = task;
        queue.controls = 0;
        Some(Batch { stream, frames: std::mem::take(&mut queue.frames), skip: std::mem::take(&mut queue.skip) })
    }

    /// Notes that the batch is written and takes what has come since; `false` when that is nothing.
    fn next(&self, batch: &mut Batch) -> bool {
        let mut queue = self.queue.lock();
        if queue.frames.is_empty() || queue.closed {
            queue.busy = false;
            queue.with_task = false;
            // The batch is empty: its buffer serves the next frames, unless a burst has made it large.
            if batch.frames.capacity() <= FRAMES_KEPT_MAX {
                std::mem::swap(&mut queue.frames, &mut batch.frames);
            }
            let finishing = queue.finishing;
            drop(queue);
            if finishing {
                self.work.notify_one();
            }
            self.written.notify_waiters();
            return false;
        }
        // Swapping keeps both buffers: the steady state allocates nothing.
        std::mem::swap(&mut queue.frames, &mut batch.frames);
        batch.skip = std::mem::take(&mut queue.skip);
        queue.controls = 0;
        drop(queue);
        self.written.notify_waiters();
        true
    }

    fn hand_over(&self, mut batch: Batch) {
        let mut queue = self.queue.lock();
        if !queue.closed {
            queue.controls += batch.frames.iter().filter(|f| f.room.is_none()).count();
            batch.frames.append(&mut queue.frames);
            std::mem::swap(&mut queue.frames, &mut batch.frames);
            queue.skip = batch.skip;
        }
        queue.with_task = true;
        drop(queue);
        self.work.notify_one();
    }
}

impl Batch {
    /// One `writev`; frames that are written whole are dropped, and with them what they pinned.
    fn write(&mut self) -> io::Result<()> {
        if self.frames.is_empty() {
            return Ok(());
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut used = 0;
        let mut skip = self.skip;
        'all: for piece in self.frames.iter().flat_map(Outgoing::pieces) {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            if skipped == piece.len() {
                continue;
            }
            slices[used] = IoSlice::new(&piece[skipped..]);
            used += 1;
            if used == SLICES_MAX {
                break 'all;
            }
        }
        let written = self.stream.try_write_vectored(&slices[..used])?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.skip += written;
        while let Some(first) = self.frames.front() {
            let bytes = first.bytes();
            if self.skip < bytes {
                break;
            }
            self.skip -= bytes;
            self.frames.pop_front();
        }
        Ok(())
    }
}
