//! What a write asks of its connection: a range, a submission, and the end of one that is given up.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::LentConnection;
use crate::client_options::ClientLendingError;
use crate::memory_space::{RequestPlaces, TakenRange};

impl LentConnection {
    /// Takes a range for a write: its body, and its answer. Never waits.
    pub(crate) fn take_range(&self, bytes: u64) -> Result<TakenRange, ClientLendingError> {
        self.check_process()?;
        let mut state = self.state.lock();
        if state.is_ended {
            return Err(ClientLendingError::Disconnected);
        }
        self.drain_completions(&mut state)?;
        if let Some(range) = state.space.take_range(bytes) {
            return Ok(TakenRange::Taken(range));
        }
        if bytes > self.space_bytes {
            return Err(ClientLendingError::MemoryFull { wanted: bytes });
        }
        Ok(TakenRange::NoSpace { returned: state.returned })
    }

    /// Submits a write. Its places stay taken until it is over. `None`: as many requests are in
    /// flight as may be. Never waits.
    pub(crate) fn submit_write(
        &self,
        request: &[u8],
        places: RequestPlaces,
        patience: Duration,
    ) -> Result<Option<u64>, ClientLendingError> {
        self.check_process()?;
        let mut state = self.state.lock();
        if state.is_ended {
            return Err(ClientLendingError::Disconnected);
        }
        self.drain_completions(&mut state)?;
        let Some(&slot) = state.free_slots.last() else { return Ok(None) };
        let token = self.submit_request(&mut state, slot, request, places)?;
        let until = Instant::now().checked_add(patience);
        state.patient_until = state.patient_until.max(until.unwrap_or(state.patient_until));
        Ok(Some(token))
    }

    /// Returns whether the gateway has gone, by the socket itself: nobody reads it while nothing is
    /// in flight.
    pub(crate) fn has_hung_up(&self) -> bool {
        if !self.is_own() {
            return true;
        }
        let mut state = self.state.lock();
        if !state.is_watched && !state.is_ended {
            // A bell that is taken here is nobody's: who comes to wait looks at the rings first.
            let mut bells = [0; 64];
            let heard = loop {
                match rustix::net::recv(&self.stream, &mut bells, RecvFlags::DONTWAIT) {
                    Ok((count, _)) if count > 0 => {}
                    heard => break heard,
                }
            };
            state.is_ended = !matches!(heard, Err(Errno::AGAIN | Errno::INTR));
        }
        state.is_ended
    }

    /// Returns whether the gateway has refused a write because it knows of none.
    pub(crate) fn refuses_writes(&self) -> bool {
        self.state.lock().refuses_writes
    }

    pub(crate) fn note_refused_write(&self) {
        self.state.lock().refuses_writes = true;
    }

    /// Gives a write up, and the whole connection with it: the gateway must not go on with a write
    /// whose caller has heard that it failed, and may write anew. What else was in flight is asked
    /// for again by the next connection.
    pub(crate) fn abandon_write(&self, token: u64) {
        if !self.is_own() {
            return;
        }
        self.abandon_read(token);
        let mut state = self.state.lock();
        if state.under_way.contains_key(&token) {
            self.end_connection(&mut state);
        }
    }
}
