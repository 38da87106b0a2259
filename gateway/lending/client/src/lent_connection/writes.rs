//! What a write asks of its connection: a range, a submission, and the end of one that is given up.

use std::io;
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use verbs3_lending_protocol::LentWriteRequest;

use super::{LentConnection, SocketWatch};
use crate::client_options::ClientLendingError;
use crate::memory_space::{RequestPlaces, TakenRange};
use crate::passed_pages::receive_bytes;

/// What a connection knows of its gateway. One that is older than writes says of each what it says
/// of bytes that are no request at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteSupport {
    Unknown,
    /// It has answered a write. What it can't read from now on is that request's own fault.
    Takes,
    /// It could not read a request that is one, and has answered none yet.
    KnowsNone,
}

impl WriteSupport {
    /// Returns what is known after the gateway could not read a request. A request that this client
    /// can't read either says nothing of the gateway.
    fn after_unread_request(self, request: &[u8]) -> Self {
        match self {
            Self::Unknown if LentWriteRequest::decode_request(request).is_ok() => Self::KnowsNone,
            known => known,
        }
    }
}

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
        if state.watch != SocketWatch::ReadsSocket && !state.is_ended {
            // A bell that is taken here is nobody's: who comes to wait looks at the rings first.
            let heard = loop {
                match receive_bytes(&self.stream, RecvFlags::DONTWAIT) {
                    Ok(received) if received.length > 0 => self.take_received(&mut state, received),
                    heard => break heard,
                }
            };
            let waits = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
            state.is_ended = !heard.is_err_and(|error| waits.contains(&error.kind()));
        }
        state.is_ended
    }

    /// Returns whether the gateway is too old to know of writes.
    pub(crate) fn refuses_writes(&self) -> bool {
        self.state.lock().write_support == WriteSupport::KnowsNone
    }

    /// Notes that the gateway has answered a write, whatever it has answered.
    pub(crate) fn note_answered_write(&self) {
        self.state.lock().write_support = WriteSupport::Takes;
    }

    /// Notes that the gateway could not read this request.
    pub(crate) fn note_unread_write(&self, request: &[u8]) {
        let mut state = self.state.lock();
        state.write_support = state.write_support.after_unread_request(request);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn encoded(headers: &[(&str, &str)]) -> Vec<u8> {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let headers = headers.iter().map(own).collect();
        let (bucket, key) = ("train".to_owned(), "k".to_owned());
        LentWriteRequest { bucket, key, part: None, headers }.encode_request().unwrap()
    }

    #[test]
    fn a_gateway_that_reads_no_request_at_all_knows_no_writes() {
        let sound = encoded(&[("content-type", "a/b")]);
        let known = WriteSupport::Unknown.after_unread_request(&sound);
        assert_eq!(known, WriteSupport::KnowsNone);
        assert_eq!(known.after_unread_request(&sound), WriteSupport::KnowsNone);
    }

    #[test]
    fn a_request_that_nobody_can_read_says_nothing_of_the_gateway() {
        let twice = encoded(&[("content-type", "a/b"), ("content-type", "a/c")]);
        for unread in [&twice[..], &encoded(&[("authorization", "x")]), b"", b"\x03"] {
            for known in [WriteSupport::Unknown, WriteSupport::Takes, WriteSupport::KnowsNone] {
                assert_eq!(known.after_unread_request(unread), known, "{unread:?}");
            }
        }
    }

    #[test]
    fn a_gateway_that_has_answered_a_write_is_never_taken_for_old() {
        let newer = encoded(&[("x-amz-meta-run", "7")]);
        assert_eq!(WriteSupport::Takes.after_unread_request(&newer), WriteSupport::Takes);
    }
}
