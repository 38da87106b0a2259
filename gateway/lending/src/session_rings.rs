//! Owns the gateway's side of the rings. Cursors of its own count; the client's are compared with
//! them and never believed. An entry is copied out once, before anything of it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::net::UnixStream;
use verbs3_lending_protocol::{
    BELL_LOOK, ENTRY_BYTES, LentCompletion, LentMapping, LentOutcome, LentSubmission,
    OutsideMemory, RingLayout,
};
use verbs3_metrics::GaugeGuard;

use crate::lending_metrics::LendingMetrics;
use crate::lent_source::SourceMemory;

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
pub(crate) struct SessionRings<P> {
    pub(crate) memory: LentMapping,
    pub(crate) metrics: LendingMetrics,
    layout: RingLayout,
    stream: Arc<UnixStream>,
    /// How many completions were written. Locked for one entry at a time.
    completed: Mutex<u32>,
    in_flight: AtomicU32,
    /// Given back when the memory is unmapped.
    _place: P,
}

/// Takes submissions in their order.
pub(crate) struct SubmissionTaker {
    taken: u32,
    /// What the client has read, by its last word.
    consumed: u32,
    in_flight_max: u32,
}

/// A request under way. It is settled once, whatever happens to its task.
pub(crate) struct LentTicket<P> {
    pub(crate) rings: Arc<SessionRings<P>>,
    token: u64,
    is_settled: bool,
    _shown: GaugeGuard,
}

/// How many submissions may be taken.
pub(crate) struct TakenSubmissions<P> {
    pub(crate) reads: Vec<(LentSubmission, LentTicket<P>)>,
    /// More are there than may be in flight.
    pub(crate) is_saturated: bool,
}

impl<P: Send + Sync + 'static> SourceMemory for SessionRings<P> {
    fn lent_mapping(&self) -> &LentMapping {
        &self.memory
    }
}

impl<P> SessionRings<P> {
    pub(crate) fn new(
        memory: LentMapping,
        layout: RingLayout,
        place: P,
        stream: Arc<UnixStream>,
        metrics: LendingMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            memory,
            metrics,
            layout,
            stream,
            completed: Mutex::new(0),
            in_flight: AtomicU32::new(0),
            _place: place,
        })
    }

    /// Says that the gateway waits for a byte, or no longer does.
    pub(crate) fn mark_sleeping(&self, sleeps: bool) -> Result<(), BrokenRings> {
        self.memory.swap_flag(self.layout.gateway_sleeps_flag(), sleeps.into())?;
        Ok(())
    }

    /// Writes a completion, and wakes the client if it waits. Never waits for it: a byte that finds
    /// no place in the socket is not the first one there.
    fn post_completion(&self, completion: &LentCompletion) -> Result<(), BrokenRings> {
        {
            let mut completed = self.completed.lock();
            let place = self.layout.completion_offset(*completed);
            self.memory.write_bytes(place, &completion.encode_completion())?;
            *completed = completed.wrapping_add(1);
            self.memory.store_cursor(self.layout.completed_cursor(), *completed)?;
        }
        if self.memory.swap_flag(self.layout.client_sleeps_flag(), 0)? != 0 {
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
    pub(crate) fn take_submissions<P>(
        &mut self,
        rings: &Arc<SessionRings<P>>,
    ) -> Result<TakenSubmissions<P>, BrokenRings> {
        let (memory, layout) = (&rings.memory, &rings.layout);
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

impl<P> LentTicket<P> {
    fn new(rings: Arc<SessionRings<P>>, token: u64) -> Self {
        rings.in_flight.fetch_add(1, Ordering::AcqRel);
        let shown = GaugeGuard::add_to(&rings.metrics.reads_in_flight, 1);
        Self { rings, token, is_settled: false, _shown: shown }
    }

    /// Tells the client how the read ended. Nothing is written to its landing from here on.
    pub(crate) fn settle_read(mut self, completion: LentCompletion) {
        self.settle(completion);
    }

    /// Settles a read of which nothing is to be used.
    pub(crate) fn settle_without(self, outcome: LentOutcome) {
        let completion = Self::empty_completion(self.token, outcome);
        self.settle_read(completion);
    }

    /// Returns the client's name of the read.
    pub(crate) fn read_token(&self) -> u64 {
        self.token
    }

    fn empty_completion(token: u64, outcome: LentOutcome) -> LentCompletion {
        LentCompletion { token, outcome, head_bytes: 0, body_bytes: 0, content_bytes: 0 }
    }

    fn settle(&mut self, completion: LentCompletion) {
        self.is_settled = true;
        self.rings.metrics.reads[completion.outcome.into()].inc();
        // The rings were checked to lie in the memory, so this can't fail.
        let _ = self.rings.post_completion(&completion);
    }
}

impl<P> Drop for LentTicket<P> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settle(Self::empty_completion(self.token, LentOutcome::Failed));
        }
        self.rings.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
