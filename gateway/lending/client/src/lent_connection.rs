//! One connection to a gateway, with its memory: submissions, completions. The memory is of this
//! connection alone and lives as long as any body in it, so a read of an ended connection lands
//! nowhere else.
//!
//! Threads share it. One of those that wait reads the socket; the others wait for that one.

mod pages;
mod waiting;
mod writes;

use std::collections::HashMap;
use std::mem;
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::net::SendFlags;
use verbs3_lending_protocol::{
    BELL_LOOK, ENTRY_BYTES, LentCompletion, LentMapping, LentOutcome, LentSubmission,
    OutsideMemory, REQUEST_BYTES_MAX, RingLayout,
};

use crate::answer_polling::AnswerPolling;
use crate::client_options::{ClientLendingError, LendingClientOptions};
use crate::lent_connection::pages::FoundPages;
use crate::lent_connection::writes::WriteSupport;
use crate::memory_lending::{LentSession, lend_memory, pin_memory};
use crate::memory_pinner::MemoryPin;
use crate::memory_space::{MemorySpace, RequestPlaces};
use crate::passed_pages::PassedPages;

/// Room for one read's request and for its answer's head.
const SLOT_BYTES: u64 = 16 * 1024;
/// What the head of an answer may take of it.
const HEAD_BYTES_MAX: u32 = SLOT_BYTES as u32 - REQUEST_BYTES_MAX;

pub(crate) use crate::lent_connection::pages::LandedPages;

/// A connection that requests can be submitted to.
pub(crate) struct LentConnection {
    memory: LentMapping,
    /// Taken back before the memory is unmapped.
    pin: Option<Box<dyn MemoryPin>>,
    layout: RingLayout,
    stream: UnixStream,
    /// The process that made it. No other one may touch rings, socket or space, nor wait for a lock
    /// that a thread of that one may have held at the fork.
    process: u32,
    state: Mutex<ConnectionReads>,
    changed: Condvar,
    /// Length of the memory that ranges are taken from.
    space_bytes: u64,
    /// This process can't map what the gateway passes, so it asks for copies.
    refuses_pages: Arc<AtomicBool>,
}

struct ConnectionReads {
    submitted: u32,
    consumed: u32,
    free_slots: Vec<u32>,
    space: MemorySpace,
    under_way: HashMap<u64, ReadUnderWay>,
    next_token: u64,
    /// How many ranges were given back. Who waits for room looks whether it grows.
    returned: u64,
    /// When the gateway last finished anything, or took the connection.
    heard_at: Instant,
    /// Writes under way are waited for so long, whatever else is silent.
    patient_until: Instant,
    write_support: WriteSupport,
    passed: PassedPages,
    polling: AnswerPolling,
    watch: SocketWatch,
    is_ended: bool,
}

/// What the one thread does that the others wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketWatch {
    Nobody,
    /// It looks for an answer in the rings, and does not read the socket yet.
    PollsRings,
    ReadsSocket,
}

struct ReadUnderWay {
    slot: u32,
    range: Range<u64>,
    /// Nobody waits for it any more. Its range is given back when it is over, not before.
    is_abandoned: bool,
    landed: Option<LandedRead>,
}

/// A read that is over.
#[derive(Debug)]
pub(crate) struct LandedRead {
    pub(crate) completion: LentCompletion,
    pub(crate) head: Vec<u8>,
    pub(crate) range: Range<u64>,
    pub(crate) pages: Option<LandedPages>,
}

/// What became of a submission.
pub(crate) enum SubmitOutcome {
    Submitted(u64),
    /// As many reads are in flight as may be.
    NoSlot,
    /// No part of the memory is as long. So many ranges had been given back, and so long is the
    /// longest part that is free.
    NoSpace {
        returned: u64,
        longest_free: u64,
    },
}

impl LentConnection {
    /// Connects, proves who this is, and lends memory.
    pub(crate) fn connect(
        options: &LendingClientOptions,
        refuses_pages: Arc<AtomicBool>,
    ) -> Result<Self, ClientLendingError> {
        let LentSession { memory, layout, stream } = lend_memory(options)?;
        let bytes = memory.mapped_bytes();
        let pin = pin_memory(options, &memory)?;
        let slots_end =
            layout.rings_end().next_multiple_of(64) + u64::from(options.reads_max) * SLOT_BYTES;
        let space = MemorySpace::new(slots_end..bytes);
        let space_bytes = space.longest_free();
        let state = ConnectionReads {
            submitted: 0,
            consumed: 0,
            free_slots: (0..options.reads_max).collect(),
            space,
            under_way: HashMap::new(),
            next_token: 0,
            returned: 0,
            heard_at: Instant::now(),
            patient_until: Instant::now(),
            write_support: WriteSupport::Unknown,
            passed: PassedPages::default(),
            polling: AnswerPolling::new(options.poll_for),
            watch: SocketWatch::Nobody,
            is_ended: false,
        };
        Ok(Self {
            memory,
            pin,
            layout,
            stream,
            process: std::process::id(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            space_bytes,
            refuses_pages,
        })
    }

    /// Returns how long a body may be at most, where nothing else is kept.
    pub(crate) fn space_bytes(&self) -> u64 {
        self.space_bytes
    }

    pub(crate) fn lent_memory(&self) -> &LentMapping {
        &self.memory
    }

    /// Returns whether this is the process that made it, and not a forked child.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Has a forked child never drop its copy: a thread of the parent may have been changing it.
    pub(crate) fn leave_alone(self: &Arc<Self>) {
        if !self.is_own() {
            mem::forget(Arc::clone(self));
        }
    }

    /// Ends the connection, also where forked children have copies of its socket.
    pub(crate) fn hang_up(&self) {
        if self.is_own() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns whether the gateway has gone, or has said that it goes.
    pub(crate) fn is_ended(&self) -> bool {
        !self.is_own() || self.state.lock().is_ended
    }

    /// Submits a read whose body may have `body_bytes`, and may lie in pages. Never waits.
    pub(crate) fn submit_read(
        &self,
        request: &[u8],
        body_bytes: u64,
        takes_pages: bool,
    ) -> Result<SubmitOutcome, ClientLendingError> {
        self.check_process()?;
        let mut state = self.state.lock();
        if state.is_ended {
            return Err(ClientLendingError::Disconnected);
        }
        self.drain_completions(&mut state)?;
        let Some(&slot) = state.free_slots.last() else { return Ok(SubmitOutcome::NoSlot) };
        let Some(range) = state.space.take_range(body_bytes) else {
            let (returned, longest_free) = (state.returned, state.space.longest_free());
            return Ok(SubmitOutcome::NoSpace { returned, longest_free });
        };
        let source = range.start..range.start;
        let landing = range.clone();
        let takes_pages = takes_pages && !self.refuses_pages.load(Ordering::Relaxed);
        let places = RequestPlaces { range, source, landing, takes_pages };
        self.submit_request(&mut state, slot, request, places).map(SubmitOutcome::Submitted)
    }

    fn submit_request(
        &self,
        state: &mut ConnectionReads,
        slot: u32,
        request: &[u8],
        places: RequestPlaces,
    ) -> Result<u64, ClientLendingError> {
        state.free_slots.pop();
        let token = state.next_token;
        state.next_token += 1;
        let RequestPlaces { range, source, landing, takes_pages } = places;
        let submission = LentSubmission {
            token,
            request_offset: self.request_offset(slot),
            request_bytes: u16::try_from(request.len()).unwrap_or(u16::MAX),
            takes_pages,
            head_offset: self.head_offset(slot),
            head_bytes_max: HEAD_BYTES_MAX,
            body_offset: landing.start,
            body_bytes_max: landing.end - landing.start,
            source_offset: source.start,
            source_bytes: source.end - source.start,
        };
        let number = state.submitted;
        self.memory.write_bytes(submission.request_offset, request)?;
        let place = self.layout.submission_offset(number);
        self.memory.write_bytes(place, &submission.encode_submission())?;
        state.submitted = number.wrapping_add(1);
        let read = ReadUnderWay { slot, range, is_abandoned: false, landed: None };
        state.under_way.insert(token, read);
        self.memory.store_cursor(self.layout.submitted_cursor(), state.submitted)?;
        Ok(token)
    }

    /// Wakes the gateway, if it sleeps. Call it after the last of several submissions.
    pub(crate) fn ring_gateway(&self) -> Result<(), ClientLendingError> {
        self.check_process()?;
        if self.memory.swap_flag(self.layout.gateway_sleeps_flag(), 0)? != 0 {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            // A byte that finds no place is not the first one there. An ended connection is found
            // by its reader.
            let _ = rustix::net::send(&self.stream, &[BELL_LOOK], flags);
        }
        Ok(())
    }

    /// Ends a connection on which nothing was finished for so long.
    pub(crate) fn end_if_silent(&self, silence: Duration) {
        if !self.is_own() {
            return;
        }
        let mut state = self.state.lock();
        if state.heard_at.elapsed() >= silence && Instant::now() >= state.patient_until {
            self.end_connection(&mut state);
        }
    }

    fn end_connection(&self, state: &mut ConnectionReads) {
        state.is_ended = true;
        self.hang_up();
        self.changed.notify_all();
    }

    /// Gives a read up. Its range is used again only when the gateway is done with it.
    pub(crate) fn abandon_read(&self, token: u64) {
        if !self.is_own() {
            return;
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(read) = state.under_way.get_mut(&token) {
            read.is_abandoned = true;
            if read.landed.is_some() {
                let read = state.under_way.remove(&token);
                self.give_up(state, read);
                self.changed.notify_all();
            }
        }
    }

    /// Gives a landed body's range back. In another process than its own, nothing is done: that
    /// one's space is no concern of this copy.
    pub(crate) fn return_range(&self, range: Range<u64>) {
        if self.is_own() {
            self.state.lock().give_back(range);
            self.changed.notify_all();
        }
    }

    /// Takes what the gateway has finished. Heads are copied out, so that slots are free again.
    fn drain_completions(&self, state: &mut ConnectionReads) -> Result<(), ClientLendingError> {
        let completed = self.memory.load_cursor(self.layout.completed_cursor())?;
        if completed == state.consumed {
            return Ok(());
        }
        let before = state.consumed;
        while state.consumed != completed {
            let mut entry = [0; ENTRY_BYTES as usize];
            let place = self.layout.completion_offset(state.consumed);
            self.memory.copy_bytes(place, &mut entry)?;
            let mut completion = LentCompletion::decode_completion(&entry);
            let pages = match self.find_pages(state, &completion)? {
                FoundPages::Missing => break,
                FoundPages::None => None,
                FoundPages::Unusable => {
                    completion.outcome = LentOutcome::Failed;
                    completion.body_bytes = 0;
                    None
                }
                FoundPages::All(pages) => Some(pages),
            };
            state.consumed = state.consumed.wrapping_add(1);
            state.heard_at = Instant::now();
            let Some(read) = state.under_way.get_mut(&completion.token) else { continue };
            if read.landed.is_some() {
                continue;
            }
            state.free_slots.push(read.slot);
            let head_bytes = completion.head_bytes.min(HEAD_BYTES_MAX) as usize;
            let head = self.memory.take_bytes(self.head_offset(read.slot), head_bytes)?;
            read.landed = Some(LandedRead { completion, head, range: read.range.clone(), pages });
            if read.is_abandoned {
                let read = state.under_way.remove(&completion.token);
                self.give_up(state, read);
            }
        }
        if state.consumed != before {
            self.memory.store_cursor(self.layout.consumed_cursor(), state.consumed)?;
            self.changed.notify_all();
        }
        Ok(())
    }

    fn check_process(&self) -> Result<(), ClientLendingError> {
        if self.is_own() { Ok(()) } else { Err(ClientLendingError::Disconnected) }
    }

    fn request_offset(&self, slot: u32) -> u64 {
        self.layout.rings_end().next_multiple_of(64) + u64::from(slot) * SLOT_BYTES
    }

    fn head_offset(&self, slot: u32) -> u64 {
        self.request_offset(slot) + u64::from(REQUEST_BYTES_MAX)
    }
}

impl Drop for LentConnection {
    fn drop(&mut self) {
        self.hang_up();
        if self.pin.as_mut().is_some_and(|pin| !pin.unpin_memory()) {
            self.memory.keep_mapped();
        }
    }
}

/// A read that is over, with its name.
#[derive(Debug)]
pub(crate) struct LandedToken {
    pub(crate) token: u64,
    pub(crate) read: LandedRead,
}

impl ConnectionReads {
    fn give_back(&mut self, range: Range<u64>) {
        self.space.return_range(range);
        self.returned += 1;
    }

    fn take_landed(&mut self, tokens: impl Iterator<Item = u64>) -> Vec<LandedToken> {
        let mut landed = Vec::new();
        for token in tokens {
            let read = self.under_way.get_mut(&token).and_then(|read| read.landed.take());
            if let Some(read) = read {
                self.under_way.remove(&token);
                landed.push(LandedToken { token, read });
            }
        }
        landed
    }
}

impl From<OutsideMemory> for ClientLendingError {
    /// The layout was checked, so it does not come to this.
    fn from(_: OutsideMemory) -> Self {
        Self::Disconnected
    }
}
