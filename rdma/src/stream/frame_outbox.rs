//! Owns the write side of a connection: a bounded queue of frames, their order, and the bound on
//! bytes that wait.
//!
//! A caller that meets an idle socket writes its frame itself, so that a small reply needs no other
//! task. The writer task writes what the socket doesn't take.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::StreamSocket;
use crate::calls::{
    FrameOutlet, MemorySegment, OutgoingFrame, QueuedBytesBudget, QueuedBytesPermit,
};
use crate::landing::Landing;
use crate::transport::TransportKind;

/// Pieces of one `writev`. Linux takes 1,024; 64 pages of 256 KiB are more than a socket buffer
/// holds anyway.
const SLICES_MAX: usize = 64;

/// Writes that a caller does itself before it leaves the rest to the writer task. Its own work
/// waits meanwhile.
const INLINE_WRITES_MAX: usize = 4;

/// Frames that an idle queue keeps room for.
const FRAMES_KEPT_MAX: usize = 64;

pub(crate) struct FrameOutbox<S: StreamSocket> {
    queue: Mutex<OutboxQueue<S>>,
    rooms: QueuedBytesBudget,
    controls_max: usize,
    /// Wakes the writer task: the queue is its job now, or the connection is over.
    work: Notify,
    /// Wakes tasks that wait for fewer control frames.
    written: Notify,
}

struct OutboxQueue<S: StreamSocket> {
    /// Taken out at the end, so that the socket closes even while handles and calls live on. Only a
    /// closed socket stops a peer that is still sending.
    stream: Option<Arc<S>>,
    frames: VecDeque<OutgoingFrame>,
    /// Bytes of the first frame that are in the socket already.
    skip: usize,
    controls: usize,
    /// True while a task writes; others only add.
    busy: bool,
    /// True while that task is the writer task.
    with_task: bool,
    /// Nothing follows; the writer task ends when the queue is empty.
    finishing: bool,
    closed: bool,
}

/// Frames that are being written, outside the lock.
struct OutboxBatch<S: StreamSocket> {
    stream: Arc<S>,
    frames: VecDeque<OutgoingFrame>,
    skip: usize,
}

impl<S: StreamSocket> FrameOutbox<S> {
    pub(crate) fn new(stream: Arc<S>, bytes_max: usize, controls_max: usize) -> Self {
        Self {
            queue: Mutex::new(OutboxQueue {
                stream: Some(stream),
                frames: VecDeque::new(),
                skip: 0,
                controls: 0,
                busy: false,
                with_task: false,
                finishing: false,
                closed: false,
            }),
            rooms: QueuedBytesBudget::new(bytes_max),
            controls_max,
            work: Notify::new(),
            written: Notify::new(),
        }
    }
}

impl<S: StreamSocket> FrameOutlet for FrameOutbox<S> {
    const KIND: TransportKind = S::KIND;

    /// Lends nothing: data travels in the stream.
    fn lend_landing(&self, _landing: &mut Landing) -> Vec<MemorySegment> {
        Vec::new()
    }

    async fn reserve_bytes(&self, bytes: u64) -> Option<QueuedBytesPermit> {
        self.rooms.acquire_permit(bytes).await
    }

    async fn control_room(&self) {
        loop {
            let written = self.written.notified();
            if self.has_control_room() {
                return;
            }
            written.await;
        }
    }

    fn push_frame(&self, frame: OutgoingFrame) {
        let mut queue = self.queue.lock();
        if queue.closed {
            return;
        }
        if frame.is_control() {
            queue.controls += 1;
        }
        queue.frames.push_back(frame);
    }

    fn abandon_call(&self, call: u64) {
        drop(self.take_parts(call));
    }

    /// Writes, unless another task is writing.
    fn flush_frames(&self) {
        let Some(mut batch) = self.begin_batch(false) else {
            return;
        };
        for _ in 0..INLINE_WRITES_MAX {
            match batch.write() {
                Ok(()) if batch.is_sent() => {
                    if !self.next(&mut batch) {
                        return;
                    }
                }
                Ok(()) => {}
                // The reader sees the same broken socket, and reports it to every call.
                Err(_) => break,
            }
        }
        self.hand_over(batch);
    }

    /// Runs the writer task.
    async fn run(&self) -> io::Result<()> {
        loop {
            let work = self.work.notified();
            let Some(mut batch) = self.begin_batch(true) else {
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
                    Ok(()) if batch.is_sent() => {
                        if !self.next(&mut batch) {
                            break;
                        }
                    }
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        batch.stream.wait_writable().await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn finish_writes(&self) {
        self.queue.lock().finishing = true;
        self.work.notify_one();
    }

    fn shut_write(&self) {
        if let Some(stream) = &self.queue.lock().stream {
            let _ = stream.shut_write();
        }
    }

    /// Closes the socket and forgets everything. Tasks that wait for room learn that none will
    /// come.
    fn close(&self) {
        let remains = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            queue.controls = 0;
            (std::mem::take(&mut queue.frames), queue.stream.take())
        };
        drop(remains);
        self.rooms.close();
        self.work.notify_one();
        self.written.notify_waiters();
    }
}

impl<S: StreamSocket> FrameOutbox<S> {
    /// Takes the queued parts of a call out of the queue.
    pub(crate) fn take_parts(&self, call: u64) -> Vec<OutgoingFrame> {
        let mut queue = self.queue.lock();
        let started = usize::from(queue.skip > 0);
        let mut at = 0;
        let mut taken = Vec::new();
        while at < queue.frames.len() {
            let frame = &queue.frames[at];
            if at >= started && frame.is_part_of(call) {
                taken.extend(queue.frames.remove(at));
            } else {
                at += 1;
            }
        }
        taken
    }

    /// Returns true if fewer control frames wait than a peer that keeps reading can cause.
    pub(crate) fn has_control_room(&self) -> bool {
        let queue = self.queue.lock();
        queue.controls < self.controls_max || queue.closed
    }

    fn begin_batch(&self, task: bool) -> Option<OutboxBatch<S>> {
        let mut queue = self.queue.lock();
        // What was handed over may be in a session that has not sent it yet, with no frame left.
        let is_handed_over = task && queue.with_task;
        if queue.closed || (queue.frames.is_empty() || queue.busy) && !is_handed_over {
            return None;
        }
        let stream = queue.stream.clone()?;
        queue.busy = true;
        queue.with_task = task;
        queue.controls = 0;
        Some(OutboxBatch {
            stream,
            frames: std::mem::take(&mut queue.frames),
            skip: std::mem::take(&mut queue.skip),
        })
    }

    /// Records that the batch is written and takes newly queued frames. Returns `false` when there
    /// are none.
    fn next(&self, batch: &mut OutboxBatch<S>) -> bool {
        let mut queue = self.queue.lock();
        if queue.frames.is_empty() || queue.closed {
            queue.busy = false;
            queue.with_task = false;
            // The batch is empty. Its buffer serves the next frames, unless a burst has made it
            // large.
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

    fn hand_over(&self, mut batch: OutboxBatch<S>) {
        let mut queue = self.queue.lock();
        if !queue.closed {
            queue.controls += batch.frames.iter().filter(|f| f.is_control()).count();
            batch.frames.append(&mut queue.frames);
            std::mem::swap(&mut queue.frames, &mut batch.frames);
            queue.skip = batch.skip;
        }
        queue.with_task = true;
        drop(queue);
        self.work.notify_one();
    }
}

impl<S: StreamSocket> OutboxBatch<S> {
    /// Returns whether nothing of the batch is left, here or in the socket's session.
    fn is_sent(&self) -> bool {
        self.frames.is_empty() && self.stream.try_flush().is_ok()
    }

    /// Does one `writev`. Drops frames that are written whole, and with them what they pinned.
    fn write(&mut self) -> io::Result<()> {
        if self.frames.is_empty() {
            return self.stream.try_flush();
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut used = 0;
        let mut skip = self.skip;
        'all: for piece in self.frames.iter().flat_map(OutgoingFrame::wire_slices) {
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
        let written = self.stream.try_write(&slices[..used])?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.skip += written;
        while let Some(first) = self.frames.front() {
            let bytes = first.wire_bytes();
            if self.skip < bytes {
                break;
            }
            self.skip -= bytes;
            self.frames.pop_front();
        }
        Ok(())
    }
}
