//! Owns a number of reads that were asked for together: which wait, which are in flight, and which
//! have to be repeated because their connection ended. Answers come in the order of their arrival.

use std::collections::{HashMap, VecDeque};
use std::process;
use std::sync::Arc;
use std::time::Instant;

use verbs3_lending_protocol::{
    AnswerHead, LentCompletion, LentHeadList, LentOutcome, LentReadRequest,
};

use crate::client_options::ClientLendingError;
use crate::lending_client::LendingClient;
use crate::lent_body::{LentAnswer, LentBody};
use crate::lent_connection::{LandedToken, LentConnection, SubmitOutcome};

/// Most tries of a read that the gateway could not finish, or whose object grew meanwhile.
const TRIES_MAX: u32 = 4;

/// Smallest landing for a body of unknown length: an error's document fits.
const GUESS_MIN: u64 = 8192;

/// Reads under way.
pub struct ReadBatch {
    client: Arc<LendingClient>,
    waiting: VecDeque<WaitingRead>,
    /// By their tokens.
    flying: HashMap<u64, WaitingRead>,
    /// Reads that are over and not told yet.
    over: VecDeque<EndedRead>,
    /// The process in whose memory they have landed.
    process: u32,
    /// Of the reads that fly.
    connection: Option<Arc<LentConnection>>,
    added: usize,
    /// The read that the last error was about.
    failed: Option<usize>,
}

/// A read that is to be submitted.
struct WaitingRead {
    index: usize,
    request: Vec<u8>,
    body_bytes: u64,
    /// Nobody knows how long the body is: it may be shorter by far, and then needs less room.
    is_guess: bool,
    /// The body may lie in pages of a worker.
    takes_pages: bool,
    tries: u32,
}

/// What is known of a body beside its length.
#[derive(Default)]
struct BodyExpectation {
    is_guess: bool,
    takes_pages: bool,
}

/// A read that has landed. What was asked is kept: it may have to be asked again.
struct EndedRead {
    read: WaitingRead,
    completion: LentCompletion,
    head: Vec<u8>,
    body: LentBody,
}

/// Whether a submission may wait for room, where no read of the batch is in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayWait {
    Yes,
    No,
}

impl MayWait {
    fn allows(self, flying: &HashMap<u64, WaitingRead>) -> bool {
        self == Self::Yes && flying.is_empty()
    }
}

/// One answer of a batch.
#[derive(Debug)]
pub struct BatchAnswer {
    /// Which of the reads it answers, in the order in which they were added.
    pub index: usize,
    pub answer: LentAnswer,
}

impl LendingClient {
    /// Begins a batch of reads.
    pub fn begin_batch(self: &Arc<Self>) -> ReadBatch {
        ReadBatch::new(self.clone())
    }

    /// Reads one object or range. `body_bytes`: how long the body is expected to be at most; a
    /// longer one takes a second try. `poll` is asked a few times a second whether to go on.
    pub fn read_object<E: From<ClientLendingError>>(
        self: &Arc<Self>,
        request: &LentReadRequest,
        body_bytes: u64,
        poll: impl FnMut() -> Result<(), E>,
    ) -> Result<LentAnswer, E> {
        let mut batch = self.begin_batch();
        batch.add_read(request, body_bytes)?;
        batch.take_single(poll)
    }

    /// Reads one object or range, whose body may lie in pages of a worker of this host. Otherwise it
    /// is as `read_object`.
    pub fn read_pages<E: From<ClientLendingError>>(
        self: &Arc<Self>,
        request: &LentReadRequest,
        body_bytes: u64,
        poll: impl FnMut() -> Result<(), E>,
    ) -> Result<LentAnswer, E> {
        let mut batch = self.begin_batch();
        batch.add_read_of_pages(request, body_bytes)?;
        batch.take_single(poll)
    }
}

impl ReadBatch {
    pub(crate) fn new(client: Arc<LendingClient>) -> Self {
        Self {
            client,
            waiting: VecDeque::new(),
            flying: HashMap::new(),
            over: VecDeque::new(),
            process: process::id(),
            connection: None,
            added: 0,
            failed: None,
        }
    }

    /// Adds a read, and returns its index. It is submitted by `next_answer`.
    pub fn add_read(
        &mut self,
        request: &LentReadRequest,
        body_bytes: u64,
    ) -> Result<usize, ClientLendingError> {
        self.add_object(request, body_bytes, false)
    }

    /// Adds a read whose body may lie in pages of a worker of this host, several at that. Elsewhere it
    /// is as any other.
    pub fn add_read_of_pages(
        &mut self,
        request: &LentReadRequest,
        body_bytes: u64,
    ) -> Result<usize, ClientLendingError> {
        self.add_object(request, body_bytes, true)
    }

    fn add_object(
        &mut self,
        request: &LentReadRequest,
        body_bytes: u64,
        takes_pages: bool,
    ) -> Result<usize, ClientLendingError> {
        let is_guess = is_open_ended(request);
        let request = request.encode_request().ok_or(ClientLendingError::TooLong)?;
        Ok(self.add_request(request, body_bytes, BodyExpectation { is_guess, takes_pages }))
    }

    /// Adds a list of HEADs, and returns its index among the reads.
    pub(crate) fn add_head_list(
        &mut self,
        list: &LentHeadList,
        body_bytes: u64,
    ) -> Result<usize, ClientLendingError> {
        let request = list.encode_request().ok_or(ClientLendingError::TooLong)?;
        Ok(self.add_request(request, body_bytes, BodyExpectation::default()))
    }

    fn add_request(
        &mut self,
        request: Vec<u8>,
        body_bytes: u64,
        expected: BodyExpectation,
    ) -> usize {
        let index = self.added;
        self.added += 1;
        let BodyExpectation { is_guess, takes_pages } = expected;
        let read = WaitingRead { index, request, body_bytes, is_guess, takes_pages, tries: 0 };
        self.waiting.push_back(read);
        index
    }

    /// Returns the one answer of a batch of one read.
    fn take_single<E: From<ClientLendingError>>(
        mut self,
        poll: impl FnMut() -> Result<(), E>,
    ) -> Result<LentAnswer, E> {
        let answer = self.next_answer(poll)?.ok_or(ClientLendingError::Failed)?;
        Ok(answer.answer)
    }

    /// Returns the index of the read that the last error of `next_answer` was about, which has left
    /// the batch with it. `None`: the error was about all of them, and none has left.
    pub fn failed_read(&self) -> Option<usize> {
        self.failed
    }

    /// Returns the next answer that arrives. `None`: all have. `poll` is asked a few times a second
    /// whether to go on.
    pub fn next_answer<E: From<ClientLendingError>>(
        &mut self,
        mut poll: impl FnMut() -> Result<(), E>,
    ) -> Result<Option<BatchAnswer>, E> {
        let read_for = self.client.client_options().read_for;
        let mut asked_at = Instant::now();
        self.failed = None;
        self.leave_parent();
        loop {
            if let Some(ended) = self.over.pop_front() {
                self.keep_flying();
                let index = ended.read.index;
                match self.judge_end(ended) {
                    Ok(Some(answer)) => return Ok(Some(answer)),
                    Ok(None) => continue,
                    Err(error) => {
                        self.failed = Some(index);
                        return Err(error.into());
                    }
                }
            }
            if self.waiting.is_empty() && self.flying.is_empty() {
                return Ok(None);
            }
            let connection = match &self.connection {
                Some(connection) => connection.clone(),
                None => {
                    let made = self.client.current_connection(&mut poll)?;
                    self.connection = Some(made.clone());
                    asked_at = Instant::now();
                    made
                }
            };
            let tried = self
                .submit_waiting(&connection, MayWait::Yes)
                .and_then(|()| self.land_some(&connection));
            match tried {
                Ok(true) => {}
                Ok(false) if asked_at.elapsed() >= read_for => {
                    connection.end_if_silent(read_for);
                    return Err(ClientLendingError::TimedOut.into());
                }
                Ok(false) => poll()?,
                Err(ClientLendingError::Disconnected) => {
                    self.repeat_flying();
                    poll()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Submits what has a place while answers are being told.
    fn keep_flying(&mut self) {
        if let Some(connection) = self.connection.clone()
            && self.submit_waiting(&connection, MayWait::No).is_err()
        {
            self.repeat_flying();
        }
    }

    /// Has a forked child read anew what its parent had in flight or in its memory.
    fn leave_parent(&mut self) {
        if self.process == process::id() {
            return;
        }
        self.process = process::id();
        self.repeat_flying();
        for ended in self.over.drain(..) {
            self.waiting.push_front(ended.read);
        }
    }

    /// Submits as much as has a place now.
    fn submit_waiting(
        &mut self,
        connection: &LentConnection,
        may_wait: MayWait,
    ) -> Result<(), ClientLendingError> {
        let (mut is_rung, mut too_long) = (true, None);
        while let Some(next) = self.waiting.front_mut() {
            // A range may be longer than its object: what never fits is asked for once.
            let never_fits = !next.is_guess && next.body_bytes > connection.space_bytes();
            match connection.submit_read(&next.request, next.body_bytes, next.takes_pages)? {
                SubmitOutcome::Submitted(token) => {
                    let read = self.waiting.pop_front().expect("it was just there");
                    self.flying.insert(token, read);
                    is_rung = false;
                }
                SubmitOutcome::NoSlot => break,
                SubmitOutcome::NoSpace { .. }
                    if may_wait.allows(&self.flying) && never_fits && next.tries > 0 =>
                {
                    // Nothing that is released makes room for it, and others wait behind it.
                    too_long = self.waiting.pop_front();
                    break;
                }
                SubmitOutcome::NoSpace { longest_free, .. }
                    if may_wait.allows(&self.flying)
                        && (next.is_guess || never_fits)
                        && longest_free >= GUESS_MIN =>
                {
                    // A body that is longer comes back with its length, and waits for room then.
                    next.is_guess = false;
                    next.body_bytes = longest_free;
                }
                SubmitOutcome::NoSpace { returned, .. } if may_wait.allows(&self.flying) => {
                    // Other reads of the connection may make room.
                    if !connection.wait_for_room(returned)? {
                        return Err(ClientLendingError::MemoryFull { wanted: next.body_bytes });
                    }
                    break;
                }
                SubmitOutcome::NoSpace { .. } => break,
            }
        }
        self.failed = too_long.as_ref().map(|read| read.index);
        if !is_rung {
            connection.ring_gateway()?;
        }
        match too_long {
            Some(read) => Err(ClientLendingError::MemoryFull { wanted: read.body_bytes }),
            None => Ok(()),
        }
    }

    /// Waits for a slice of time, and takes what is over. `false`: nothing is yet.
    fn land_some(&mut self, connection: &Arc<LentConnection>) -> Result<bool, ClientLendingError> {
        let landed = connection.wait_for_any(self.flying.keys().copied())?;
        let is_some = !landed.is_empty();
        for LandedToken { token, read: landed } in landed {
            // From here on the range is given back whatever happens.
            let bytes = landed.completion.body_bytes;
            let body = LentBody::new(connection.clone(), landed.range, bytes, landed.pages);
            let Some(read) = self.flying.remove(&token) else { continue };
            let (completion, head) = (landed.completion, landed.head);
            self.over.push_back(EndedRead { read, completion, head, body });
        }
        Ok(is_some)
    }

    /// Makes an answer of a read that is over. `None`: it is tried again.
    fn judge_end(&mut self, ended: EndedRead) -> Result<Option<BatchAnswer>, ClientLendingError> {
        let EndedRead { read, completion, head, body } = ended;
        match completion.outcome {
            LentOutcome::Answered => {
                let head = AnswerHead::decode_head(&head);
                let head = head.map_err(|_| ClientLendingError::Failed)?;
                let answer = LentAnswer { head, body };
                Ok(Some(BatchAnswer { index: read.index, answer }))
            }
            LentOutcome::BodyTooLong => {
                // Where the gateway does not say how long it is: twice as long.
                let longer = match completion.content_bytes {
                    said if said > read.body_bytes => said,
                    _ => read.body_bytes.saturating_mul(2),
                };
                self.try_again(WaitingRead { body_bytes: longer, is_guess: false, ..read })
            }
            LentOutcome::BodyCut | LentOutcome::Failed => self.try_again(read),
            LentOutcome::HeadTooLong | LentOutcome::Malformed => Err(ClientLendingError::TooLong),
        }
    }

    fn try_again(&mut self, read: WaitingRead) -> Result<Option<BatchAnswer>, ClientLendingError> {
        let tries = read.tries + 1;
        if tries >= TRIES_MAX {
            return Err(ClientLendingError::Failed);
        }
        self.waiting.push_front(WaitingRead { tries, ..read });
        Ok(None)
    }

    /// Puts what was in flight on an ended connection back, to be repeated on the next one.
    fn repeat_flying(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.leave_alone();
        }
        let mut repeated: Vec<_> = self.flying.drain().map(|(_, read)| read).collect();
        repeated.sort_by_key(|read| std::cmp::Reverse(read.index));
        for read in repeated {
            self.waiting.push_front(read);
        }
    }
}

/// Whether the request does not say how long its answer is at most.
fn is_open_ended(request: &LentReadRequest) -> bool {
    let range = request.headers.iter().find(|(name, _)| name == "range");
    range.is_none_or(|(_, range)| range.ends_with('-'))
}

impl Drop for ReadBatch {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            for &token in self.flying.keys() {
                connection.abandon_read(token);
            }
            connection.leave_alone();
        }
    }
}
