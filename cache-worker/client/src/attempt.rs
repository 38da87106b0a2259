//! One call to one worker, decoded and checked: order, bounds and checksums of what it answers.
//!
//! Decides nothing about other workers and knows no deadline.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use verbs3_protocol::{
    Absent, BlockIndex, ByteRange, CacheVerdict, Geometry, Opened, Piece, Refusal, Reply,
    is_strong_etag,
};
use verbs3_rdma::transport::{Call, Event, Part, TransportError, TransportKind};

use crate::place::{Due, Worker};
use crate::verify::{Flaw, verify};

/// What a call said.
#[derive(Debug)]
pub(crate) enum Step {
    /// A live fill: the worker is at work, no bytes yet. On the wire, a piece of no bytes.
    Progress,
    Bytes {
        data: Vec<Bytes>,
        verdict: CacheVerdict,
        last: bool,
    },
    Opened {
        opened: Box<Opened>,
        data: Vec<Bytes>,
        last: bool,
    },
    Absent(Absent),
    Refused(Refusal),
}

/// Why a call can't be trusted to go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(
        "worker {worker} gave an answer that makes no sense: {reason}; do gateway and worker run \
        the same version?"
    )]
    Malformed { worker: String, reason: String },
    #[error("worker {worker} sent bad bytes: {flaw}")]
    Corrupt { worker: String, flaw: Flaw },
    /// `by_way`: nothing came over what the call went over, which is not the last way to the
    /// worker.
    #[error("worker {worker} was silent for too long")]
    Silent { worker: String, by_way: bool },
}

impl AttemptError {
    /// Whether it says something of the worker itself.
    pub(crate) fn blames_worker(&self) -> bool {
        !matches!(self, Self::Silent { by_way: true, .. })
    }
}

/// A call to `open` or `read` under way. Dropping it cancels.
pub(crate) struct Attempt {
    pub(crate) worker: Arc<Worker>,
    call: Call,
    geometry: Geometry,
    block: BlockIndex,
    /// Next byte of the block that the worker has to send.
    pub(crate) at: u32,
    pub(crate) end: u32,
    due: Due,
    /// For `open`, until its answer has come: what was asked for.
    opening: Option<Opening>,
}

/// What an `open` asked for, to hold its answer against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) want: Option<ByteRange>,
    pub(crate) bytes_max: u32,
}

impl Attempt {
    pub(crate) fn read(
        worker: Arc<Worker>,
        call: Call,
        geometry: Geometry,
        block: BlockIndex,
        range: std::ops::Range<u32>,
    ) -> Self {
        let due = Due::new(worker.clone(), range.end - range.start);
        Self { worker, call, geometry, block, at: range.start, end: range.end, due, opening: None }
    }

    pub(crate) fn open(
        worker: Arc<Worker>,
        call: Call,
        geometry: Geometry,
        opening: Opening,
    ) -> Self {
        // How much it will be is not known yet.
        let due = Due::new(worker.clone(), 0);
        Self {
            worker,
            call,
            geometry,
            block: BlockIndex(0),
            at: 0,
            end: 0,
            due,
            opening: Some(opening),
        }
    }

    /// What its parts come over; known once one has come.
    pub(crate) fn transport(&self) -> TransportKind {
        self.call.kind().unwrap_or(TransportKind::Tcp)
    }

    /// The caller has waited long enough for a sign of life.
    pub(crate) fn silent(&self) -> AttemptError {
        let by_way = self.worker.peer.blames_way(&self.call);
        AttemptError::Silent { worker: self.worker.id.0.clone(), by_way }
    }

    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, AttemptError>> {
        let event = ready!(self.call.poll_next(cx));
        Poll::Ready(match event {
            Ok(Event::Part(part)) => self.part(part),
            Ok(Event::Wanted { .. }) => Err(self.malformed("it wants bytes pushed for a read")),
            Err(error) => Err(error.into()),
        })
    }

    fn part(&mut self, part: Part) -> Result<Step, AttemptError> {
        let Part { message, data, last, .. } = part;
        let reply = Reply::decode(&message).map_err(|error| self.malformed(&error.to_string()))?;
        match (reply, self.opening) {
            (Reply::Data(piece), _) if piece.length == 0 && data.iter().all(Bytes::is_empty) => {
                if last {
                    self.nothing_more(piece.verdict)
                } else {
                    Ok(Step::Progress)
                }
            }
            (Reply::Data(piece), None) => {
                self.accept(&piece, &data)?;
                Ok(Step::Bytes { data, verdict: piece.verdict, last })
            }
            (Reply::Opened(opened), Some(opening)) => {
                self.opening = None;
                self.opened(&opened, opening)?;
                match &opened.piece {
                    Some(piece) => self.accept(piece, &data)?,
                    None if data.iter().all(Bytes::is_empty) => {}
                    None => {
                        return Err(self.malformed("bytes came with no piece to vouch for them"));
                    }
                }
                Ok(Step::Opened { opened, data, last })
            }
            (Reply::Absent(absent), Some(_)) => Ok(Step::Absent(absent)),
            (Reply::Refused(refusal), _) => Ok(Step::Refused(refusal)),
            (Reply::Data(_), Some(_)) => Err(self.malformed("bytes before attributes")),
            (Reply::Opened(_) | Reply::Absent(_), None) => {
                Err(self.malformed("attributes in the middle of a read"))
            }
            (Reply::Holds { .. } | Reply::TakenOver { .. }, _) => {
                Err(self.malformed("an answer to a worker for a read"))
            }
            (
                Reply::Done { .. }
                | Reply::Unleased { .. }
                | Reply::Standing { .. }
                | Reply::Warmed(_)
                | Reply::Recalled(_)
                | Reply::Tended(_)
                | Reply::Looked(_),
                _,
            ) => Err(self.malformed("an acknowledgement for a read")),
        }
    }

    /// The last part may be empty when all bytes went before it, or when the worker could give
    /// none.
    fn nothing_more(&self, verdict: CacheVerdict) -> Result<Step, AttemptError> {
        if self.opening.is_some() {
            return Err(self.malformed("an open that ended without attributes"));
        }
        Ok(Step::Bytes { data: Vec::new(), verdict, last: true })
    }

    /// Sets the bytes of block 0 that have to follow.
    fn opened(&mut self, opened: &Opened, opening: Opening) -> Result<(), AttemptError> {
        let version = &opened.attributes.version;
        if !is_strong_etag(&version.etag) {
            return Err(self.malformed("a version without a strong ETag"));
        }
        let wanted = opening.want.and_then(|want| want.resolve(version.bytes)).unwrap_or(0..0);
        let block_bytes = u64::from(self.geometry.block_bytes);
        if wanted.start < block_bytes {
            let end = wanted.end.min(block_bytes).min(wanted.start + u64::from(opening.bytes_max));
            // Both are at most `block_bytes`, which is a u32.
            (self.at, self.end) = (wanted.start as u32, end as u32);
            self.due.set(self.end.saturating_sub(self.at));
        }
        Ok(())
    }

    fn accept(&mut self, piece: &Piece, data: &[Bytes]) -> Result<(), AttemptError> {
        let end = piece.start.checked_add(piece.length).filter(|&end| end <= self.end);
        if piece.block != self.block || piece.start != self.at || end.is_none() {
            let (from, to) = (self.at, self.end);
            let Piece { block, start, length, .. } = piece;
            let reason = format!(
                "bytes {start}+{length} of block {} where {from} to {to} of block {} were due",
                block.0, self.block.0
            );
            return Err(self.malformed(&reason));
        }
        verify(self.geometry, piece, data)
            .map_err(|flaw| AttemptError::Corrupt { worker: self.worker.id.0.clone(), flaw })?;
        self.at += piece.length;
        self.due.set(self.end - self.at);
        Ok(())
    }

    fn malformed(&self, reason: &str) -> AttemptError {
        AttemptError::Malformed { worker: self.worker.id.0.clone(), reason: reason.to_owned() }
    }
}
