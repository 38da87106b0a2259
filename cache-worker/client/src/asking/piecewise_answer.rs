//! Owns one call to one worker: decodes its answer and checks order, bounds and checksums.
//!
//! Decides nothing about other workers and knows no deadline.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use verbs3_protocol::{
    AbsentReply, AnswerError, BlockGeometry, BlockIndex, BlockPiece, ByteRange, CacheVerdict,
    OpenAnswer, OpenMessage, OpenObjectReply, ReadMessage, WorkerRefusal, WorkerReply,
    is_strong_etag,
};
use verbs3_rdma::transport::{CallEvent, OutgoingCall, ReplyPart, TransportError, TransportKind};

use crate::asking::piece_check::{PieceCheckError, verify_piece};
use crate::asking::single_answer::{AnswerFlaw, OtherBytes};
use crate::asking::worker::{OutstandingBytes, TierWorker};

/// One event of a call.
#[derive(Debug)]
pub(crate) enum AttemptStep {
    /// The worker is busy with a fill and has sent no bytes yet. On the wire: a piece of no bytes.
    Progress,
    Bytes {
        data: Vec<Bytes>,
        verdict: CacheVerdict,
        last: bool,
    },
    Opened {
        reply: Box<OpenObjectReply>,
        data: Vec<Bytes>,
        last: bool,
    },
    Absent(AbsentReply),
    Refused(WorkerRefusal),
}

/// Reason why a call can't be trusted to go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(
        "worker {worker} gave an answer that makes no sense: {flaw}; do gateway and worker run \
        the same version?"
    )]
    Senseless {
        worker: String,
        #[source]
        flaw: AnswerFlaw,
    },
    #[error("worker {worker} sent bad bytes: {flaw}")]
    Corrupt {
        worker: String,
        #[source]
        flaw: PieceCheckError,
    },
    /// Bytes that landed in memory of another process are not what was sent, or were changed there.
    /// Nobody is blamed: they are asked for once more, elsewhere.
    #[error("bytes of worker {worker} changed where they landed: {flaw}")]
    Unsure {
        worker: String,
        #[source]
        flaw: PieceCheckError,
    },
    /// Nothing came in time. `by_way`: the silent transport is not the last way to the worker, so
    /// the worker is not blamed.
    #[error("worker {worker} was silent for too long")]
    Silent { worker: String, by_way: bool },
}

impl AttemptError {
    /// Returns whether the error is the worker's own fault.
    pub(crate) fn blames_worker(&self) -> bool {
        !matches!(self, Self::Silent { by_way: true, .. } | Self::Unsure { .. })
    }
}

/// An open or read call under way. Dropping it cancels the call.
pub(crate) struct TierAttempt {
    pub(crate) worker: Arc<TierWorker>,
    call: OutgoingCall,
    geometry: BlockGeometry,
    block: BlockIndex,
    /// Next byte of the block that the worker has to send.
    pub(crate) at: u32,
    pub(crate) end: u32,
    due: OutstandingBytes,
    /// Bytes may land in memory of another process, and change before they are verified.
    lands_in_place: bool,
    /// What an open asked for. `None` for reads, and once the answer to an open has come.
    opening: Option<OpenExpectation>,
}

/// What an open asked for; its answer is checked against it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenExpectation {
    pub(crate) want: Option<ByteRange>,
    pub(crate) bytes_max: u32,
}

impl TierAttempt {
    pub(crate) fn read(
        worker: Arc<TierWorker>,
        call: OutgoingCall,
        geometry: BlockGeometry,
        block: BlockIndex,
        range: std::ops::Range<u32>,
    ) -> Self {
        let due = OutstandingBytes::new(worker.clone(), range.end - range.start);
        let (at, end) = (range.start, range.end);
        let lands_in_place = false;
        Self { worker, call, geometry, block, at, end, due, lands_in_place, opening: None }
    }

    /// Notes whether bytes may land in memory of another process.
    #[must_use]
    pub(crate) fn landing_in_place(self, lands_in_place: bool) -> Self {
        Self { lands_in_place, ..self }
    }

    pub(crate) fn for_open(
        worker: Arc<TierWorker>,
        call: OutgoingCall,
        geometry: BlockGeometry,
        opening: OpenExpectation,
    ) -> Self {
        // The length is not known before the answer.
        let due = OutstandingBytes::new(worker.clone(), 0);
        Self {
            worker,
            call,
            geometry,
            block: BlockIndex(0),
            at: 0,
            end: 0,
            due,
            lands_in_place: false,
            opening: Some(opening),
        }
    }

    /// Returns the transport of the call's parts. It is known once a part has come.
    pub(crate) fn transport_kind(&self) -> TransportKind {
        self.call.transport_kind().unwrap_or(TransportKind::Tcp)
    }

    /// Returns the error for a caller that waited too long for a sign of life.
    pub(crate) fn silence_error(&self) -> AttemptError {
        let by_way = self.worker.peer.blames_way(&self.call);
        AttemptError::Silent { worker: self.worker.id.0.clone(), by_way }
    }

    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AttemptStep, AttemptError>> {
        let event = ready!(self.call.poll_next(cx));
        Poll::Ready(match event {
            Ok(CallEvent::Part(part)) => self.decode_part(part),
            Ok(CallEvent::Wanted { .. }) => Err(self.senseless_error(AnswerFlaw::WantsBytes)),
            Err(error) => Err(error.into()),
        })
    }

    fn decode_part(&mut self, part: ReplyPart) -> Result<AttemptStep, AttemptError> {
        let ReplyPart { message, data, last, .. } = part;
        let reply =
            WorkerReply::decode(&message).map_err(|error| self.senseless_error(error.into()))?;
        match reply {
            WorkerReply::Data(piece) if piece.length == 0 && data.iter().all(Bytes::is_empty) => {
                if last {
                    self.nothing_more(piece.verdict)
                } else {
                    Ok(AttemptStep::Progress)
                }
            }
            reply => match self.opening {
                Some(opening) => match reply.into_answer::<OpenMessage>() {
                    Ok(OpenAnswer::Opened(opened)) => {
                        self.decode_opened(opened, opening, data, last)
                    }
                    Ok(OpenAnswer::Absent(absent)) => Ok(AttemptStep::Absent(absent)),
                    Err(error) => self.decode_error(error),
                },
                None => match reply.into_answer::<ReadMessage>() {
                    Ok(piece) => {
                        self.accept_piece(&piece, &data)?;
                        Ok(AttemptStep::Bytes { data, verdict: piece.verdict, last })
                    }
                    Err(error) => self.decode_error(error),
                },
            },
        }
    }

    fn decode_opened(
        &mut self,
        reply: Box<OpenObjectReply>,
        opening: OpenExpectation,
        data: Vec<Bytes>,
        last: bool,
    ) -> Result<AttemptStep, AttemptError> {
        self.opening = None;
        self.accept_opened(&reply, opening)?;
        match &reply.piece {
            Some(piece) => self.accept_piece(piece, &data)?,
            None if data.iter().all(Bytes::is_empty) => {}
            None => return Err(self.senseless_error(AnswerFlaw::Unvouched)),
        }
        Ok(AttemptStep::Opened { reply, data, last })
    }

    fn decode_error(&self, error: AnswerError) -> Result<AttemptStep, AttemptError> {
        match error {
            AnswerError::Refused(refusal) => Ok(AttemptStep::Refused(refusal)),
            AnswerError::Unexpected(unexpected) => Err(self.senseless_error(unexpected.into())),
        }
    }

    /// Accepts an empty last part: all bytes went before it, or the worker could give none.
    fn nothing_more(&self, verdict: CacheVerdict) -> Result<AttemptStep, AttemptError> {
        if self.opening.is_some() {
            return Err(self.senseless_error(AnswerFlaw::NoAttributes));
        }
        Ok(AttemptStep::Bytes { data: Vec::new(), verdict, last: true })
    }

    /// Checks the answer to an open. Sets which bytes of block 0 have to follow.
    fn accept_opened(
        &mut self,
        opened: &OpenObjectReply,
        opening: OpenExpectation,
    ) -> Result<(), AttemptError> {
        let version = &opened.attributes.version;
        if !is_strong_etag(&version.etag) {
            return Err(self.senseless_error(AnswerFlaw::WeakVersion));
        }
        let wanted =
            opening.want.and_then(|want| want.resolve_range(version.bytes)).unwrap_or(0..0);
        let block_bytes = u64::from(self.geometry.block_bytes);
        if wanted.start < block_bytes {
            let end = wanted.end.min(block_bytes).min(wanted.start + u64::from(opening.bytes_max));
            // Both are at most `block_bytes`, which is a u32.
            (self.at, self.end) = (wanted.start as u32, end as u32);
            self.due.set_bytes(self.end.saturating_sub(self.at));
        }
        Ok(())
    }

    fn accept_piece(&mut self, piece: &BlockPiece, data: &[Bytes]) -> Result<(), AttemptError> {
        let end = piece.start.checked_add(piece.length).filter(|&end| end <= self.end);
        if piece.block != self.block || piece.start != self.at || end.is_none() {
            let other = OtherBytes {
                got: data.iter().map(Bytes::len).sum(),
                checksums: piece.checksums.len(),
                block: piece.block.0,
                start: piece.start,
                length: piece.length,
                due_block: self.block.0,
                due_start: self.at,
                due_end: self.end,
            };
            return Err(self.senseless_error(AnswerFlaw::OtherBytes(Box::new(other))));
        }
        verify_piece(self.geometry, piece, data).map_err(|flaw| {
            let worker = self.worker.id.0.clone();
            match self.lands_in_place {
                true => AttemptError::Unsure { worker, flaw },
                false => AttemptError::Corrupt { worker, flaw },
            }
        })?;
        self.at += piece.length;
        self.due.set_bytes(self.end - self.at);
        Ok(())
    }

    pub(crate) fn senseless_error(&self, flaw: AnswerFlaw) -> AttemptError {
        AttemptError::Senseless { worker: self.worker.id.0.clone(), flaw }
    }
}
