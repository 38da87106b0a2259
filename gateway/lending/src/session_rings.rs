//! Owns the gateway's side of the rings. Cursors of its own count; the client's are compared with
//! them and never believed. An entry is copied out once, before anything of it is read.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::net::UnixStream;
use verbs3_lending_protocol::{
    BELL_LOOK, ENTRY_BYTES, LentCompletion, LentMapping, LentOutcome, LentSubmission,
    OutsideMemory, RingLayout,
};
use verbs3_metrics::GaugeGuard;
use verbs3_rdma::foreign_memory::BodyPlace;

use crate::lending_metrics::LendingMetrics;
use crate::lent_source::SourceMemory;
use crate::page_loans::PageLoans;
use crate::session_memory::SessionMemory;

/// The rings say what can't be. The connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a client's cursors say what can't be")]
pub(crate) struct BrokenRings;

impl From<OutsideMemory> for BrokenRings {
    fn from(_: OutsideMemory) -> Self {
        Self
    }
}

/// What all reads of a client share.
pub(crate) struct SessionRings {
    pub(crate) memory: SessionMemory,
    pub(crate) metrics: LendingMetrics,
    /// What its client reads in pages of workers.
    pub(crate) loans: Arc<PageLoans>,
    layout: RingLayout,
    stream: Arc<UnixStream>,
    /// How many completions were written. Locked for one entry at a time.
    completed: Mutex<u32>,
    in_flight: AtomicU32,
}

/// Takes submissions in their order.
pub(crate) struct SubmissionTaker {
    taken: u32,
    /// What the client has read, by its last word.
    consumed: u32,
    in_flight_max: u32,
}

/// A request under way. It is settled once, whatever happens to its task.
pub(crate) struct LentTicket {
    pub(crate) rings: Arc<SessionRings>,
    token: u64,
    /// Where its body is received. It is over before the client is told anything.
    place: Option<Arc<BodyPlace>>,
    is_settled: bool,
    _shown: GaugeGuard,
}

/// How many submissions may be taken.
pub(crate) struct TakenSubmissions {
    pub(crate) reads: Vec<(LentSubmission, LentTicket)>,
    /// More are there than may be in flight.
    pub(crate) is_saturated: bool,
}

impl SourceMemory for SessionRings {
    fn lent_mapping(&self) -> &LentMapping {
        &self.memory.mapping
    }
}

impl SessionRings {
    pub(crate) fn new(
        memory: SessionMemory,
        layout: RingLayout,
        stream: Arc<UnixStream>,
        metrics: LendingMetrics,
        client: Arc<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        let loans = PageLoans::new(stream.clone(), layout, metrics.clone(), client);
        Arc::new(Self {
            memory,
            metrics,
            loans,
            layout,
            stream,
            completed: Mutex::new(0),
            in_flight: AtomicU32::new(0),
        })
    }

    /// Returns the memory, to copy in and out.
    pub(crate) fn mapping(&self) -> &LentMapping {
        &self.memory.mapping
    }

    /// Says that the gateway waits for a byte, or no longer does.
    pub(crate) fn mark_sleeping(&self, sleeps: bool) -> Result<(), BrokenRings> {
        self.mapping().swap_flag(self.layout.gateway_sleeps_flag(), sleeps.into())?;
        Ok(())
    }

    /// Writes a completion, and wakes the client if it waits. Never waits for it: a byte that finds
    /// no place in the socket is not the first one there.
    fn post_completion(&self, completion: &LentCompletion) -> Result<(), BrokenRings> {
        {
            let mut completed = self.completed.lock();
            let place = self.layout.completion_offset(*completed);
            self.mapping().write_bytes(place, &completion.encode_completion())?;
            *completed = completed.wrapping_add(1);
            self.mapping().store_cursor(self.layout.completed_cursor(), *completed)?;
        }
        if self.mapping().swap_flag(self.layout.client_sleeps_flag(), 0)? != 0 {
            let _ = self.stream.try_write(&[BELL_LOOK]);
        }
        Ok(())
    }
}

impl SubmissionTaker {
    pub(crate) fn new(in_flight_max: u32) -> Self {
        Self { taken: 0, consumed: 0, in_flight_max }
    }

    /// Takes what is there and may be in flight. A place for each completion is kept, so that
    /// nothing ever waits for the client to make room.
    pub(crate) fn take_submissions(
        &mut self,
        rings: &Arc<SessionRings>,
    ) -> Result<TakenSubmissions, BrokenRings> {
        let (memory, layout) = (rings.mapping(), &rings.layout);
        let entries = layout.ring_entries();
        let waiting = memory.load_cursor(layout.submitted_cursor())?.wrapping_sub(self.taken);
        if waiting > entries {
            return Err(BrokenRings);
        }
        let mut taken = TakenSubmissions { reads: Vec::new(), is_saturated: false };
        if waiting == 0 {
            return Ok(taken);
        }
        let consumed = memory.load_cursor(layout.consumed_cursor())?;
        // It only goes on, and never beyond what was completed.
        let completed = *rings.completed.lock();
        if consumed.wrapping_sub(self.consumed) > completed.wrapping_sub(self.consumed) {
            return Err(BrokenRings);
        }
        self.consumed = consumed;
        let outstanding = self.taken.wrapping_sub(consumed);
        if outstanding > entries {
            return Err(BrokenRings);
        }
        let in_flight = rings.in_flight.load(Ordering::Acquire);
        let room = (entries - outstanding).min(self.in_flight_max.saturating_sub(in_flight));
        taken.is_saturated = waiting > room;
        for _ in 0..waiting.min(room) {
            let mut entry = [0; ENTRY_BYTES as usize];
            memory.copy_bytes(layout.submission_offset(self.taken), &mut entry)?;
            let submission = LentSubmission::decode_submission(&entry);
            self.taken = self.taken.wrapping_add(1);
            taken.reads.push((submission, LentTicket::new(rings.clone(), submission.token)));
        }
        memory.store_cursor(layout.taken_cursor(), self.taken)?;
        Ok(taken)
    }
}

impl LentTicket {
    fn new(rings: Arc<SessionRings>, token: u64) -> Self {
        rings.in_flight.fetch_add(1, Ordering::AcqRel);
        let shown = GaugeGuard::add_to(&rings.metrics.reads_in_flight, 1);
        Self { rings, token, place: None, is_settled: false, _shown: shown }
    }

    /// Tells the client how the read ended. Nothing is written to its landing from here on.
    pub(crate) fn settle_read(mut self, completion: LentCompletion) {
        self.place = None;
        self.settle(completion);
    }

    /// Settles a read of which nothing is to be used.
    pub(crate) fn settle_without(self, outcome: LentOutcome) {
        let completion = Self::empty_completion(self.token, outcome);
        self.settle_read(completion);
    }

    /// Makes the place of the read's body, in which it may be received. `None`: it is copied there.
    pub(crate) fn place_body(&mut self, offset: u64, bytes: u64) -> Option<Arc<BodyPlace>> {
        if !self.rings.layout.overlaps_range(offset, bytes) {
            self.place = self.rings.memory.make_place(offset, bytes);
        }
        self.place.clone()
    }

    /// Returns the client's name of the read.
    pub(crate) fn read_token(&self) -> u64 {
        self.token
    }

    fn empty_completion(token: u64, outcome: LentOutcome) -> LentCompletion {
        let (body_bytes, content_bytes, page_loan) = (0, 0, None);
        LentCompletion { token, outcome, head_bytes: 0, body_bytes, content_bytes, page_loan }
    }

    fn settle(&mut self, completion: LentCompletion) {
        self.is_settled = true;
        self.rings.metrics.reads[completion.outcome.into()].inc();
        // The rings were checked to lie in the memory, so this can't fail.
        let _ = self.rings.post_completion(&completion);
    }
}

impl Drop for LentTicket {
    fn drop(&mut self) {
        if self.is_settled {
            // The client knows.
        } else if self.place.as_ref().is_none_or(|place| place.end_claims()) {
            self.settle(Self::empty_completion(self.token, LentOutcome::Failed));
        } else {
            // Its request ended in the middle, and its place may still be written to. The client is
            // told nothing, so that it does not use the place again.
            self.rings.metrics.reads[LentOutcome::Failed.into()].inc();
        }
        self.rings.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
