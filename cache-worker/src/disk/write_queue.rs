//! The queue of pages for a folder, and the thread that writes them.
//!
//! The queue is bounded in bytes. An offer never waits: it is refused when the queue is full.
//! Queued pages keep their arena cells until they are written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use verbs3_rdma::arena::CellReader;

use super::disk_headers::PageHeader;
use super::folder_store::{FolderPageStore, PageWriteOutcome};
use super::metrics::{DiskMetrics, PageDropReason};
use super::pending_pins::PinWriteTicket;
use super::slot_allocation::DiskSlotRefusal;
use crate::digest::PageKey;

/// A job for the writing thread.
pub(super) enum DiskWriteJob {
    Write { header: PageHeader, cell: CellReader },
    Pin { key: PageKey, ticket: PinWriteTicket },
}

impl DiskWriteJob {
    fn payload_bytes(&self) -> u64 {
        match self {
            Self::Write { header, .. } => u64::from(header.length),
            Self::Pin { .. } => 0,
        }
    }

    fn is_pin(&self) -> bool {
        matches!(self, Self::Pin { .. })
    }
}

/// Bound on waiting pins. They carry no bytes that would bound them.
const PINS_MAX: usize = 1 << 20;

/// The byte budget that the queues of all folders share.
#[derive(Clone)]
pub(super) struct WriteQueueBudget {
    pub(super) used: Arc<AtomicU64>,
    pub(super) bytes_max: u64,
    /// 0: unlimited.
    pub(super) bytes_per_second_max: u64,
}

impl WriteQueueBudget {
    fn reserve_bytes(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.bytes_max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct WriteQueueState {
    jobs: VecDeque<DiskWriteJob>,
    /// Pins among the jobs.
    pins: usize,
    /// When the thread took its present job.
    busy: Option<Instant>,
    /// The process ends: the speed limit is off.
    hurry: bool,
    closed: bool,
}

pub(super) struct DiskWriteQueue {
    state: Mutex<WriteQueueState>,
    /// Notifies the thread of a job, or of the end.
    more: Condvar,
    /// Notifies that no job is left.
    idle: Condvar,
    budget: WriteQueueBudget,
}

impl DiskWriteQueue {
    pub(super) fn new(budget: WriteQueueBudget) -> Self {
        Self { state: Mutex::default(), more: Condvar::new(), idle: Condvar::new(), budget }
    }

    /// Queues a job, and returns whether it was taken. A pin goes ahead of pages: it is small, and
    /// a caller waits for it.
    pub(super) fn offer_job(&self, job: DiskWriteJob) -> bool {
        let mut state = self.state.lock();
        if state.closed
            || (job.is_pin() && state.pins >= PINS_MAX)
            || !self.budget.reserve_bytes(job.payload_bytes())
        {
            return false;
        }
        match job {
            DiskWriteJob::Write { .. } => state.jobs.push_back(job),
            DiskWriteJob::Pin { .. } => {
                state.pins += 1;
                state.jobs.push_front(job);
            }
        }
        drop(state);
        self.more.notify_one();
        true
    }

    /// Waits until everything is written, at full speed, but not longer than `within`.
    pub(super) fn flush_jobs(&self, within: Duration) {
        let end = Instant::now() + within;
        let mut state = self.state.lock();
        state.hurry = true;
        self.more.notify_all();
        while !state.jobs.is_empty() || state.busy.is_some() {
            if self.idle.wait_until(&mut state, end).timed_out() {
                return;
            }
        }
    }

    /// Drops the queued jobs and ends the thread.
    pub(super) fn close(&self) {
        let left = {
            let mut state = self.state.lock();
            state.closed = true;
            state.pins = 0;
            std::mem::take(&mut state.jobs)
        };
        left.iter().for_each(|job| self.budget.give_back(job.payload_bytes()));
        drop(left);
        self.more.notify_all();
        self.idle.notify_all();
    }

    /// Drops the queued pages, but no pin, because a pin was promised. Returns how many.
    pub(super) fn drop_pages(&self) -> usize {
        let dropped: VecDeque<DiskWriteJob> = {
            let mut state = self.state.lock();
            let (pins, pages) = state.jobs.drain(..).partition(DiskWriteJob::is_pin);
            state.jobs = pins;
            pages
        };
        dropped.iter().for_each(|job| self.budget.give_back(job.payload_bytes()));
        dropped.len()
    }

    /// Returns the number of queued pins.
    pub(super) fn pin_count(&self) -> usize {
        self.state.lock().pins
    }

    /// Returns whether the thread has been at one job for longer than `max`.
    pub(super) fn is_stuck(&self, max: Duration) -> bool {
        self.state.lock().busy.is_some_and(|since| since.elapsed() > max)
    }

    fn finish_job(&self) {
        self.state.lock().busy = None;
    }

    /// Returns the next job; `None`: the queue is closed.
    fn next(&self) -> Option<DiskWriteJob> {
        let mut state = self.state.lock();
        state.busy = None;
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                state.pins -= usize::from(job.is_pin());
                state.busy = Some(Instant::now());
                return Some(job);
            }
            self.idle.notify_all();
            self.more.wait(&mut state);
        }
    }

    /// Waits before the next page, to keep the speed limit.
    fn pace_writes(&self, bytes: u64, began: Instant) {
        let rate = self.budget.bytes_per_second_max;
        if rate == 0 {
            return;
        }
        let end = began + Duration::from_secs_f64(bytes as f64 / rate as f64);
        let mut state = self.state.lock();
        while !state.closed && !state.hurry && Instant::now() < end {
            self.more.wait_until(&mut state, end);
        }
    }
}

/// The writing thread and what it works with.
pub(super) struct DiskTierWriter {
    pub(super) folder: Arc<FolderPageStore>,
    pub(super) queue: Arc<DiskWriteQueue>,
    pub(super) metrics: DiskMetrics,
    pub(super) resident: Arc<dyn Fn(PageKey) -> bool + Send + Sync>,
    pub(super) now_s: fn() -> u32,
}

impl DiskTierWriter {
    /// Runs until the queue is closed.
    pub(super) fn start_thread(self, number: usize) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(format!("verbs3-disk-{number}")).spawn(move || self.run())
    }

    fn run(self) {
        while let Some(job) = self.queue.next() {
            let (began, bytes) = (Instant::now(), job.payload_bytes());
            match job {
                DiskWriteJob::Write { header, cell } => self.write(header, &cell),
                DiskWriteJob::Pin { key, ticket } => {
                    if self.folder.write_pin(key) {
                        ticket.mark_written();
                    }
                }
            }
            self.queue.budget.give_back(bytes);
            self.queue.finish_job();
            self.queue.pace_writes(bytes, began);
        }
    }

    fn write(&self, header: PageHeader, cell: &CellReader) {
        let Some(bytes) = cell.pinned_bytes(0..header.length as usize) else { return };
        let reason = match self.folder.write(header, &bytes, &*self.resident, (self.now_s)()) {
            PageWriteOutcome::Done => return,
            PageWriteOutcome::Refused(DiskSlotRefusal::Known) => PageDropReason::Known,
            PageWriteOutcome::Refused(DiskSlotRefusal::Quota) => PageDropReason::Quota,
            PageWriteOutcome::Refused(DiskSlotRefusal::NoRoom) => PageDropReason::Room,
            PageWriteOutcome::Failed => PageDropReason::Error,
            PageWriteOutcome::Resting => PageDropReason::Folder,
        };
        self.metrics.dropped[reason].inc();
    }
}
