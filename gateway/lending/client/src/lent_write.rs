//! Owns one write: its body is put into lent memory piece by piece, and sent once. A write whose end
//! is not known is never sent again by itself: its caller knows whether that may be.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs3_lending_protocol::{AnswerHead, LentOutcome, LentWriteRequest};

use crate::client_options::ClientLendingError;
use crate::lending_client::LendingClient;
use crate::lent_body::{LentAnswer, LentBody};
use crate::lent_connection::{LandedToken, LentConnection};
use crate::memory_space::{PAGE_BYTES, RequestPlaces, TakenRange};

/// Room for the answer. Those of writes are short, and so are documents of errors.
const ANSWER_BYTES: u64 = 2 * PAGE_BYTES;
/// How long a write waits for room that has another way to go.
const SHORT_WAIT: Duration = Duration::from_secs(1);
/// The slowest store that is waited for: each MiB of the body has a second more.
const BODY_BYTES_PER_S: u64 = 1 << 20;

/// How long a write waits for room, and for a gateway that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteWait {
    /// There is another way to write: up to a second for room, and not for the gateway.
    Short,
    /// As long as a read does.
    Long,
}

/// A write whose body is being put into lent memory.
pub struct LentWriter {
    client: Arc<LendingClient>,
    connection: Arc<LentConnection>,
    places: RequestPlaces,
    appended: u64,
    state: WriterState,
}

#[derive(Clone, Copy)]
enum WriterState {
    Appending,
    Submitted(u64),
    /// The range has another owner.
    Over,
}

impl LendingClient {
    /// Takes memory for a body of exactly `bytes`, or waits for reads and writes that may make room.
    /// `poll` is asked a few times a second whether to go on.
    pub fn begin_write<E: From<ClientLendingError>>(
        self: &Arc<Self>,
        bytes: u64,
        wait: WriteWait,
        mut poll: impl FnMut() -> Result<(), E>,
    ) -> Result<LentWriter, E> {
        let options = self.client_options();
        let (room_for, reconnect_for) = match wait {
            WriteWait::Short => (SHORT_WAIT.min(options.read_for), Duration::ZERO),
            WriteWait::Long => (options.read_for, options.reconnect_for),
        };
        let mut connection = self.find_connection(reconnect_for, &mut poll)?;
        if connection.has_hung_up() {
            // Nobody had looked since the gateway went.
            connection = self.find_connection(reconnect_for, &mut poll)?;
        }
        if connection.refuses_writes() {
            return Err(ClientLendingError::Unsupported.into());
        }
        let full = ClientLendingError::MemoryFull { wanted: bytes };
        let padded = bytes.checked_next_multiple_of(PAGE_BYTES);
        let Some(wanted) = padded.and_then(|padded| padded.checked_add(ANSWER_BYTES)) else {
            return Err(full.into());
        };
        let asked_at = Instant::now();
        let range = loop {
            let returned = match connection.take_range(wanted)? {
                TakenRange::Taken(range) => break range,
                TakenRange::NoSpace { returned } => returned,
            };
            let may_come = connection.wait_for_room(returned)?;
            if !may_come || asked_at.elapsed() >= room_for {
                return Err(full.into());
            }
            poll()?;
        };
        let source = range.start..range.start + bytes;
        let landing = range.end - ANSWER_BYTES..range.end;
        let places = RequestPlaces { range, source, landing, takes_pages: false };
        let client = self.clone();
        Ok(LentWriter { client, connection, places, appended: 0, state: WriterState::Appending })
    }
}

impl LentWriter {
    /// Puts the next bytes of the body into the memory.
    ///
    /// # Errors
    ///
    /// `MemoryFull`: there are more of them than were announced.
    pub fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientLendingError> {
        if !self.connection.is_own() {
            return Err(ClientLendingError::Disconnected);
        }
        let wanted = self.appended.saturating_add(bytes.len() as u64);
        if wanted > self.announced_bytes() {
            return Err(ClientLendingError::MemoryFull { wanted });
        }
        let place = self.places.source.start + self.appended;
        self.connection.lent_memory().write_bytes(place, bytes)?;
        self.appended = wanted;
        Ok(())
    }

    fn announced_bytes(&self) -> u64 {
        self.places.source.end - self.places.source.start
    }

    /// Sends the write, and waits for its answer. An error of S3 is an answer.
    ///
    /// # Errors
    ///
    /// After `Failed`, `TimedOut`, `Disconnected` or an error of `poll` nobody knows whether the
    /// object was written. `Incomplete`: the body is shorter than was announced, and nothing was
    /// sent. `Unsupported`: the gateway is too old to know of writes.
    pub fn finish_write<E: From<ClientLendingError>>(
        mut self,
        request: &LentWriteRequest,
        mut poll: impl FnMut() -> Result<(), E>,
    ) -> Result<LentAnswer, E> {
        if self.appended != self.announced_bytes() {
            return Err(ClientLendingError::Incomplete.into());
        }
        let request = request.encode_request().ok_or(ClientLendingError::TooLong)?;
        let body_time = Duration::from_secs(self.appended / BODY_BYTES_PER_S);
        let patience = self.client.client_options().read_for.saturating_add(body_time);
        let asked_at = Instant::now();
        loop {
            let waited_for = match self.state {
                WriterState::Submitted(token) => Some(token),
                WriterState::Appending | WriterState::Over => None,
            };
            if waited_for.is_none() {
                let submitted =
                    self.connection.submit_write(&request, self.places.clone(), patience)?;
                if let Some(token) = submitted {
                    self.state = WriterState::Submitted(token);
                    self.connection.ring_gateway()?;
                    continue;
                }
            }
            let landed = self.connection.wait_for_any(waited_for.into_iter())?;
            if let Some(landed) = landed.into_iter().next() {
                return Ok(self.judge_end(landed, &request)?);
            }
            if asked_at.elapsed() >= patience {
                return Err(ClientLendingError::TimedOut.into());
            }
            poll()?;
        }
    }

    /// Makes an answer of a write that is over.
    fn judge_end(
        &mut self,
        landed: LandedToken,
        request: &[u8],
    ) -> Result<LentAnswer, ClientLendingError> {
        self.state = WriterState::Over;
        let completion = landed.read.completion;
        let Range { start, .. } = self.places.range;
        // The body's part is free again; the answer's is given back with the answer.
        self.connection.return_range(start..self.places.landing.start);
        let landing = self.places.landing.clone();
        let body = LentBody::new(self.connection.clone(), landing, completion.body_bytes, None);
        match completion.outcome {
            LentOutcome::Answered => {
                self.connection.note_answered_write();
                let head = AnswerHead::decode_head(&landed.read.head);
                let head = head.map_err(|_| ClientLendingError::Failed)?;
                Ok(LentAnswer { head, body })
            }
            LentOutcome::Malformed => {
                self.connection.note_unread_write(request);
                let is_old = self.connection.refuses_writes();
                Err(if is_old {
                    ClientLendingError::Unsupported
                } else {
                    ClientLendingError::Failed
                })
            }
            // It was sent: whatever became of its answer, nobody knows.
            LentOutcome::HeadTooLong
            | LentOutcome::BodyTooLong
            | LentOutcome::BodyCut
            | LentOutcome::Failed => Err(ClientLendingError::Failed),
        }
    }
}

impl Drop for LentWriter {
    fn drop(&mut self) {
        match self.state {
            WriterState::Appending => self.connection.return_range(self.places.range.clone()),
            WriterState::Submitted(token) => self.connection.abandon_write(token),
            WriterState::Over => {}
        }
        self.connection.leave_alone();
    }
}
