//! How threads wait for answers: one of them looks for the next one and reads the socket, the
//! others wait for that one.

use std::io;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use rustix::net::RecvFlags;
use verbs3_lending_protocol::OutsideMemory;

use super::{ConnectionReads, LandedToken, LentConnection, SocketWatch};
use crate::client_options::ClientLendingError;
use crate::memory_lending::WAIT_SLICE;
use crate::passed_pages::receive_bytes;

/// How long a body that is just being looked at may keep a read from its place.
const ROOM_WAIT: Duration = Duration::from_millis(20);

impl LentConnection {
    /// Waits until some of these reads are over, and takes all that are. None: a slice of time is
    /// over; or none is waited for, and a slot is free.
    pub(crate) fn wait_for_any(
        &self,
        tokens: impl ExactSizeIterator<Item = u64> + Clone,
    ) -> Result<Vec<LandedToken>, ClientLendingError> {
        self.check_process()?;
        let until = Instant::now() + WAIT_SLICE;
        let mut state = self.state.lock();
        loop {
            self.drain_completions(&mut state)?;
            let landed = state.take_landed(tokens.clone());
            if !landed.is_empty() {
                return Ok(landed);
            }
            if state.is_ended {
                return Err(ClientLendingError::Disconnected);
            }
            let may_submit = tokens.len() == 0 && !state.free_slots.is_empty();
            if may_submit || Instant::now() >= until {
                return Ok(Vec::new());
            }
            if state.watch != SocketWatch::Nobody {
                self.changed.wait_until(&mut state, until);
            } else {
                self.watch_socket(&mut state)?;
            }
        }
    }

    /// Waits until a range was given back since there were `returned`, for a slice of time. `false`:
    /// nothing was, and no read is under way that could do so.
    pub(crate) fn wait_for_room(&self, returned: u64) -> Result<bool, ClientLendingError> {
        self.check_process()?;
        let until = Instant::now() + ROOM_WAIT;
        let mut state = self.state.lock();
        loop {
            self.drain_completions(&mut state)?;
            if state.returned != returned {
                return Ok(true);
            }
            if state.is_ended {
                return Err(ClientLendingError::Disconnected);
            }
            let is_awaited = state.under_way.values().any(|read| read.landed.is_none());
            if Instant::now() >= until {
                return Ok(is_awaited);
            }
            if state.watch != SocketWatch::Nobody || !is_awaited {
                self.changed.wait_until(&mut state, until);
            } else {
                self.watch_socket(&mut state)?;
            }
        }
    }

    /// Waits for an answer, without the lock: looks for it for a moment, and then for a byte.
    fn watch_socket(
        &self,
        state: &mut MutexGuard<'_, ConnectionReads>,
    ) -> Result<(), ClientLendingError> {
        if self.poll_answer(state)? {
            return Ok(());
        }
        let began = Instant::now();
        self.memory.swap_flag(self.layout.client_sleeps_flag(), 1)?;
        let completed = self.memory.load_cursor(self.layout.completed_cursor())?;
        if completed == state.consumed || state.passed.is_awaited {
            state.watch = SocketWatch::ReadsSocket;
            let heard =
                MutexGuard::unlocked(state, || receive_bytes(&self.stream, RecvFlags::empty()));
            state.watch = SocketWatch::Nobody;
            state.polling.note_sleep(began.elapsed());
            match heard {
                Ok(received) if received.length == 0 => state.is_ended = true,
                Ok(received) => self.take_received(state, received),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    _ => state.is_ended = true,
                },
            }
            if state.is_ended {
                // What was over before the end is an answer even so.
                self.drain_completions(state)?;
            }
            self.changed.notify_all();
        }
        self.memory.swap_flag(self.layout.client_sleeps_flag(), 0)?;
        Ok(())
    }

    /// Looks for an answer as long as this is likely to meet it, without the lock. Returns whether
    /// there is one.
    fn poll_answer(
        &self,
        state: &mut MutexGuard<'_, ConnectionReads>,
    ) -> Result<bool, ClientLendingError> {
        let budget = state.polling.poll_budget();
        if budget.is_zero() || state.passed.is_awaited {
            return Ok(false);
        }
        let (consumed, until) = (state.consumed, Instant::now() + budget);
        state.watch = SocketWatch::PollsRings;
        let met = MutexGuard::unlocked(state, || {
            while Instant::now() < until {
                if self.memory.load_cursor(self.layout.completed_cursor())? != consumed {
                    return Ok(true);
                }
                // Whoever could use this CPU gets it: it may be who answers.
                std::thread::yield_now();
            }
            Ok::<_, OutsideMemory>(false)
        });
        state.watch = SocketWatch::Nobody;
        self.changed.notify_all();
        let has_met = met?;
        state.polling.note_poll(has_met);
        Ok(has_met)
    }
}
