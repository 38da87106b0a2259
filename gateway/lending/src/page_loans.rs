//! Owns what one client reads where it lies: the pieces, which are kept until the client is done with
//! them, and the passing of the memory that they are in.
//!
//! A client says by a flag in its own memory that it is done. A wrong flag misleads itself alone.
//! Where its session has ended, a lifeline says it: the reading end of a pipe that nothing is written
//! to, and that the kernel closes with the client. Where the gateway has ended, the lifelines of its
//! workers say it to them, which the client has as well.

use std::any::Any;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use verbs3_lending_protocol::{
    BodySegment, GatewayMessage, LENT_SOURCE, LentMapping, OutsideMemory, PAGE_DESCRIPTORS_MAX,
    PageLoanEntry, PassedSource, RingLayout, SEGMENT_BYTES,
};
use verbs3_metrics::GaugeGuard;
use verbs3_rdma::page_source::{LocatedPiece, PageSource, locate_piece};

use crate::lending_metrics::LendingMetrics;

/// Shorter pieces are copied: that costs less than to keep them.
const PIECE_BYTES_MIN: usize = 64 << 10;

/// What a kept piece counts against. Dropping it gives it back.
pub(crate) type LoanPlace = Box<dyn Any + Send + Sync>;

/// The loans of one client.
pub(crate) struct PageLoans {
    stream: Arc<UnixStream>,
    layout: RingLayout,
    metrics: LendingMetrics,
    /// The client counts as one for as long as it keeps something.
    client: Arc<dyn Any + Send + Sync>,
    state: Mutex<LoanState>,
}

#[derive(Default)]
struct LoanState {
    free: Vec<u32>,
    /// Loans that the client has, by their number.
    lent: HashMap<u32, PageLoan>,
    /// Memory that was passed, by its number in this process.
    passed: HashMap<u64, PassedMemory>,
    passed_count: u32,
    /// The writing end, once the client has the other one.
    lifeline: Option<pipe::Sender>,
}

struct PassedMemory {
    /// What segments call it.
    source: u32,
    memory: Weak<PageSource>,
    /// Held by each answer that is named by it: it is retired behind the last of them. They don't
    /// hold the memory: its connection may end while others bring more.
    name: Arc<()>,
}

/// Pieces of one answer. They are not used again while this is there.
struct PageLoan {
    pieces: Vec<KeptPiece>,
    /// For all of the body, once some of it is kept.
    place: Option<LoanPlace>,
    _shown: GaugeGuard,
}

struct KeptPiece {
    /// Of the body, from its beginning.
    at: u64,
    bytes: Bytes,
    _name: Arc<()>,
}

/// What becomes of a piece.
pub(crate) enum PieceEnd {
    /// The client reads it where it lies.
    Kept,
    /// It belongs into its place in the lent memory.
    Copied,
    /// There is no room for it. So what was kept before it is to be copied, too, each piece to its
    /// place in the body: a part of an answer would keep more of the worker than it counts for.
    AllCopied(Vec<(u64, Bytes)>),
}

impl PageLoans {
    pub(crate) fn new(
        stream: Arc<UnixStream>,
        layout: RingLayout,
        metrics: LendingMetrics,
        client: Arc<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        let free = (0..layout.page_loans()).rev().collect();
        let state = Mutex::new(LoanState { free, ..LoanState::default() });
        Arc::new(Self { stream, layout, metrics, client, state })
    }

    /// Begins a loan. `None`: the client keeps as many as it may. `take_place` is asked once, for all
    /// of the body.
    pub(crate) fn begin_loan<'a>(
        self: &Arc<Self>,
        take_place: &'a (dyn Fn(u64) -> Option<LoanPlace> + Sync),
    ) -> Option<OpenLoan<'a>> {
        let number = self.state.lock().free.pop()?;
        let _shown = GaugeGuard::add_to(&self.metrics.page_loans, 1);
        let loan = PageLoan { pieces: Vec::new(), place: None, _shown };
        Some(OpenLoan {
            loans: self.clone(),
            take_place,
            number,
            loan: Some(loan),
            is_given_up: true,
            body_bytes: 0,
            segments: Vec::new(),
            segments_max: 0,
        })
    }

    /// Takes back what the client is done with.
    pub(crate) fn collect_returned(&self, memory: &LentMapping) -> Result<(), OutsideMemory> {
        let mut state = self.state.lock();
        if state.lent.is_empty() {
            return Ok(());
        }
        let mut returned = Vec::new();
        for &number in state.lent.keys() {
            let flag = self.layout.page_loan_flag(number).unwrap_or_default();
            if memory.load_cursor(flag)? != 0 {
                returned.push(number);
            }
        }
        let ended: Vec<_> = returned.iter().filter_map(|loan| state.lent.remove(loan)).collect();
        state.free.extend(returned);
        drop(state);
        drop(ended);
        Ok(())
    }

    /// Tells the client of memory that is gone here, so that it does not keep it.
    pub(crate) fn retire_sources(&self) {
        let mut state = self.state.lock();
        state.passed.retain(|_, passed| {
            let message = GatewayMessage::encode_retired(passed.source);
            // Without room in the socket: the next time.
            let is_used = passed.memory.strong_count() > 0 || Arc::strong_count(&passed.name) > 1;
            is_used || self.send_message(&message, &[]).is_err()
        });
    }

    /// Makes sure that the client has the memory that a piece is in, and all lifelines that may keep
    /// it. Returns the one that was passed last, with its number: who knows that one has read all
    /// messages before it. `None`: it can't be told now.
    fn pass_memory(&self, located: &LocatedPiece) -> Option<(u32, Arc<()>)> {
        let mut state = self.state.lock();
        for memory in &located.sources {
            if !state.passed.contains_key(&memory.source_number()) {
                self.pass_source(&mut state, memory).ok()?;
            }
        }
        let numbers = located.sources.iter().map(|memory| memory.source_number());
        let passed = numbers.filter_map(|number| state.passed.get(&number));
        passed.max_by_key(|passed| passed.source).map(|last| (last.source, last.name.clone()))
    }

    fn pass_source(&self, state: &mut LoanState, memory: &Arc<PageSource>) -> io::Result<()> {
        let source = state.passed_count.checked_add(1).ok_or(io::ErrorKind::OutOfMemory)?;
        let made = match state.lifeline {
            Some(_) => None,
            None => Some(pipe::pipe()?),
        };
        let mut descriptors = vec![memory.memory_fd()];
        descriptors.extend(memory.lifeline_fd());
        descriptors.extend(made.as_ref().map(|(_, theirs)| theirs.as_fd()));
        let message = PassedSource {
            source,
            has_lifeline: memory.lifeline_fd().is_some(),
            has_session_lifeline: made.is_some(),
        };
        self.send_message(&message.encode_message(), &descriptors)?;
        state.passed_count = source;
        if let Some((ours, _)) = made {
            state.lifeline = Some(ours);
        }
        let name = Arc::new(());
        let passed = PassedMemory { source, memory: Arc::downgrade(memory), name };
        state.passed.insert(memory.source_number(), passed);
        Ok(())
    }

    /// Ends the loans of a session that is over, once its client is done with them.
    pub(crate) fn leave_client(&self) {
        let (lent, lifeline) = {
            let mut state = self.state.lock();
            (mem::take(&mut state.lent), state.lifeline.take())
        };
        if let Some(lifeline) = lifeline
            && !lent.is_empty()
        {
            let left = LeftLoans { lent, _client: self.client.clone(), is_over: false };
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(left.await_client(lifeline))),
                Err(_) => drop(left),
            }
        }
    }

    /// Sends a message without waiting. A socket takes a few bytes whole, or not at all.
    fn send_message(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let sent = self.stream.try_io(Interest::WRITABLE, || {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PAGE_DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty()
                && !control.push(SendAncillaryMessage::ScmRights(descriptors))
            {
                return Err(io::Error::other("no space for descriptors"));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let slices = [IoSlice::new(message)];
            Ok(rustix::net::sendmsg(self.stream.as_fd(), &slices, &mut control, flags)?)
        })?;
        if sent == message.len() {
            return Ok(());
        }
        // Nothing that follows would be understood.
        let _ = rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Both);
        Err(io::ErrorKind::WriteZero.into())
    }
}

impl Drop for PageLoans {
    /// A session that is cut does not come to its end by itself.
    fn drop(&mut self) {
        self.leave_client();
    }
}

/// What a client has whose session is over.
struct LeftLoans {
    lent: HashMap<u32, PageLoan>,
    _client: Arc<dyn Any + Send + Sync>,
    is_over: bool,
}

impl LeftLoans {
    async fn await_client(mut self, lifeline: pipe::Sender) {
        // An error on a pipe's writing end means that nobody can read any more.
        self.is_over = lifeline.ready(Interest::ERROR).await.is_ok();
    }
}

impl Drop for LeftLoans {
    fn drop(&mut self) {
        if !self.is_over {
            // The client may still be reading, and nobody would notice its end, so the pages are
            // never used again by this process. It is ending, or it would still watch.
            for kept in self.lent.drain().flat_map(|(_, loan)| loan.pieces) {
                mem::forget(kept.bytes);
            }
        }
    }
}

/// A loan that its client does not know of yet. Dropping it takes it back.
pub(crate) struct OpenLoan<'a> {
    loans: Arc<PageLoans>,
    take_place: &'a (dyn Fn(u64) -> Option<LoanPlace> + Sync),
    number: u32,
    loan: Option<PageLoan>,
    /// Its body is copied.
    is_given_up: bool,
    body_bytes: u64,
    segments: Vec<BodySegment>,
    segments_max: usize,
}

impl OpenLoan<'_> {
    /// Says how long the body is, and how many bytes the list of its segments may have.
    pub(crate) fn announce_body(&mut self, body_bytes: u64, list_bytes: u64) {
        self.is_given_up = false;
        self.body_bytes = body_bytes;
        let segments_max = list_bytes / SEGMENT_BYTES as u64;
        self.segments_max = usize::try_from(segments_max).unwrap_or(usize::MAX);
    }

    /// Keeps a piece that begins at byte `at` of the body, if it is where its client may read it.
    pub(crate) fn keep_piece(&mut self, at: u64, piece: &Bytes) -> PieceEnd {
        let bytes = piece.len() as u64;
        let in_place = BodySegment { source: LENT_SOURCE, offset: at, bytes };
        let located = match piece.len() < PIECE_BYTES_MIN || self.is_given_up {
            true => None,
            false => locate_piece(piece),
        };
        let Some(located) = located else {
            self.add_segment(in_place);
            return PieceEnd::Copied;
        };
        match self.find_room(at, piece, &located) {
            Some(segment) => {
                self.add_segment(segment);
                PieceEnd::Kept
            }
            None => PieceEnd::AllCopied(self.give_up()),
        }
    }

    fn find_room(&mut self, at: u64, piece: &Bytes, located: &LocatedPiece) -> Option<BodySegment> {
        let bytes = piece.len() as u64;
        // One segment is left for what is copied behind it.
        let segments_left = self.segments_max.saturating_sub(self.segments.len() + 1) as u64;
        let loan = self.loan.as_mut()?;
        if loan.place.is_none() {
            // As many pieces as this one is long. A body for which there is no room is told at once.
            if self.body_bytes.saturating_sub(at).div_ceil(bytes) > segments_left {
                return None;
            }
            loan.place = Some((self.take_place)(self.body_bytes)?);
        }
        if segments_left == 0 {
            return None;
        }
        let (source, _name) = self.loans.pass_memory(located)?;
        loan.pieces.push(KeptPiece { at, bytes: piece.clone(), _name });
        Some(BodySegment { source, offset: located.offset, bytes })
    }

    fn give_up(&mut self) -> Vec<(u64, Bytes)> {
        self.is_given_up = true;
        let kept = self.loan.as_mut().map(|loan| {
            loan.place = None;
            mem::take(&mut loan.pieces)
        });
        kept.unwrap_or_default().into_iter().map(|kept| (kept.at, kept.bytes)).collect()
    }

    fn add_segment(&mut self, segment: BodySegment) {
        match self.segments.last_mut() {
            Some(last)
                if last.source == segment.source && last.offset + last.bytes == segment.offset =>
            {
                last.bytes += segment.bytes;
            }
            _ => self.segments.push(segment),
        }
    }

    /// Lends what was kept, and writes the list of segments to `offset`. `None`: nothing was kept, and
    /// all of the body is in its place.
    pub(crate) fn lend_pieces(
        mut self,
        memory: &LentMapping,
        offset: u64,
    ) -> Result<Option<PageLoanEntry>, OutsideMemory> {
        if self.loan.as_ref().is_none_or(|loan| loan.pieces.is_empty()) {
            return Ok(None);
        }
        let list: Vec<u8> = self.segments.iter().flat_map(BodySegment::encode_segment).collect();
        memory.write_bytes(offset, &list)?;
        let flag = self.loans.layout.page_loan_flag(self.number).unwrap_or_default();
        memory.store_cursor(flag, 0)?;
        if let Some(loan) = self.loan.take() {
            self.loans.state.lock().lent.insert(self.number, loan);
        }
        Ok(Some(PageLoanEntry { loan: self.number, segments: self.segments.len() as u32 }))
    }
}

impl Drop for OpenLoan<'_> {
    fn drop(&mut self) {
        if self.loan.take().is_some() {
            self.loans.state.lock().free.push(self.number);
        }
    }
}
