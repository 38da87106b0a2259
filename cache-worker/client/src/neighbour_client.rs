//! Owns a worker's questions to other workers: it asks them for pages of blocks that have moved
//! here, before it asks the UFS.
//!
//! Owns the memory for the answers and three bounds: on what is under way, on silence, and on the
//! time of one question. Asks each neighbour once; one that does not answer in time counts as
//! holding nothing. Checks no page checksums: whoever keeps the bytes does.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use verbs3_protocol::{
    AnswerError, BlockGeometry, BlockIndex, BlockPiece, ContentVersion, HoldsMessage, ObjectKey,
    ReadMessage, ReadSource, RefusalKind, TakeOver, WorkerId, WorkerRefusal, WorkerReply,
    WorkerRequest,
};
use verbs3_rdma::arena::Arena;
use verbs3_rdma::landing::Landing;
use verbs3_rdma::peer::TransportPeer;
use verbs3_rdma::transport::{CallEvent, OutgoingCall, TransportError};

use crate::asking::health::HealthOptions;
use crate::asking::single_answer::{
    AnswerFlaw, AnswerPatience, EncodedQuestion, OtherBytes, QuestionError, SentQuestion,
};
use crate::asking::worker::TierWorker;
use crate::settings::NeighbourSettings;

/// A neighbour that fails is asked again soon: there is the UFS, and what the neighbour has may be
/// given up any time.
const HEALTH: HealthOptions = HealthOptions {
    failures_max: 3,
    rest_min: Duration::from_secs(1),
    rest_max: Duration::from_secs(10),
};

/// Reason why a neighbour gave nothing, or nothing more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NeighbourError {
    #[error("worker {0} is not reached from here, or rests after failures")]
    Resting(WorkerId),
    #[error(
        "as much is asked of other workers as there is memory for; raise worker.neighbours.memory"
    )]
    Busy,
    #[error("worker {0} was silent for too long")]
    Silent(WorkerId),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(
        "worker {worker} gave an answer that makes no sense: {flaw}; do both run the same version?"
    )]
    Senseless {
        worker: WorkerId,
        #[source]
        flaw: AnswerFlaw,
    },
    #[error("worker {worker} refused: {refusal}")]
    Refused {
        worker: WorkerId,
        #[source]
        refusal: WorkerRefusal,
    },
    #[error("worker {worker} sent page {page} of a block with other bytes than its checksum says")]
    Corrupt { worker: WorkerId, page: u16 },
}

/// The client of the workers that can be asked for pages.
pub struct NeighbourClient {
    settings: NeighbourSettings,
    geometry: BlockGeometry,
    /// Memory for answers until they are copied. It is separate from the cache: cached pages can't
    /// take it, and answers take no page's memory.
    arena: Arena,
    /// Memory that no question has reserved, in KiB.
    turns: Arc<Semaphore>,
    workers: ArcSwap<HashMap<WorkerId, Arc<TierWorker>>>,
}

/// Pages of one block that a neighbour may hold. The range begins and ends at page borders, or at
/// the block's end.
#[derive(Debug, Clone)]
pub struct HeldRequest {
    pub object: ObjectKey,
    pub version: ContentVersion,
    pub block: BlockIndex,
    pub range: Range<u32>,
}

/// A new owner's answer about a block that it should take over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeOverOutcome {
    Taken {
        bytes: u64,
    },
    /// The new owner follows another map.
    OtherMap,
    Refused(WorkerRefusal),
}

/// An answer under way. Dropping it cancels the call.
pub struct HeldRead {
    worker: Arc<TierWorker>,
    call: OutgoingCall,
    geometry: BlockGeometry,
    block: BlockIndex,
    /// Next byte; an answer must not send bytes before it.
    at: u32,
    end: u32,
    silence_max: Duration,
    deadline: Instant,
    over: bool,
    _turn: OwnedSemaphorePermit,
}

impl NeighbourClient {
    /// Makes a client. Landings are lent from `arena`, which nobody else should use.
    pub fn new(settings: NeighbourSettings, geometry: BlockGeometry, arena: Arena) -> Arc<Self> {
        let kibibytes =
            (arena.arena_usage().capacity_bytes >> 10).min(Semaphore::MAX_PERMITS as u64 >> 1);
        let turns = Arc::new(Semaphore::new(kibibytes as usize));
        Arc::new(Self { settings, geometry, arena, turns, workers: ArcSwap::default() })
    }

    /// Replaces the set of workers. A worker that is already known under the same peer keeps its
    /// state, health included.
    pub fn adopt_peers(&self, peers: &HashMap<WorkerId, Arc<TransportPeer>>) {
        let before = self.workers.load_full();
        let worker = |(id, peer): (&WorkerId, &Arc<TransportPeer>)| {
            let known = before.get(id).filter(|known| Arc::ptr_eq(&known.peer, peer)).cloned();
            let made = || Arc::new(TierWorker::new(id.clone(), peer.clone()));
            (id.clone(), known.unwrap_or_else(made))
        };
        self.workers.store(Arc::new(peers.iter().map(worker).collect()));
    }

    /// Returns whether this worker can be asked at all.
    pub fn knows_worker(&self, id: &WorkerId) -> bool {
        self.workers.load().contains_key(id)
    }

    /// Asks `id` for what it holds of these pages.
    pub async fn read_held(
        &self,
        id: &WorkerId,
        request: HeldRequest,
    ) -> Result<HeldRead, NeighbourError> {
        // Reserve memory first. A caller that `admit_worker` has let through may be the one that
        // tries a resting worker; it must not wait after that.
        let turn = self.reserve_memory(&request.range).await?;
        let worker = self.admit_worker(id)?;
        let HeldRequest { object, version, block, range } = request;
        let (start, end, geometry) = (range.start, range.end, self.geometry);
        let read = ReadMessage {
            object,
            version,
            geometry,
            block,
            start,
            end,
            ahead_bytes: 0,
            request_range: 0..0,
            from: ReadSource::Held,
        };
        let message = WorkerRequest::Read(read).with_trace(None).encode();
        let call = worker.peer.call_with(|landing_use| {
            let lease = || {
                let cuts: Vec<usize> = geometry.page_cuts(&range).collect();
                Landing::allocate_segments(&self.arena, &cuts).ok_or(NeighbourError::Busy)
            };
            Ok::<_, NeighbourError>((message, landing_use.wants_landing().then(lease).transpose()?))
        })?;
        let deadline = Instant::now() + self.settings.deadline.0;
        let silence_max = self.settings.silence_max.0;
        let (at, over) = (start, false);
        Ok(HeldRead {
            worker,
            call,
            geometry,
            block,
            at,
            end,
            silence_max,
            deadline,
            over,
            _turn: turn,
        })
    }

    /// Returns whether `id` seems to hold the page of block 0. A hint; no answer in time counts as
    /// no.
    pub async fn likely_holds(&self, id: &WorkerId, holds: HoldsMessage) -> bool {
        let Ok(worker) = self.admit_worker(id) else { return false };
        let mut asked = SentQuestion::new(&worker, &EncodedQuestion::new(holds));
        let until = AnswerPatience::Until(Instant::now() + self.settings.silence_max.0);
        let error = match asked.wait_for_answer(until, || {}).await {
            Ok(answer) => {
                worker.health.note_success();
                return answer.likely;
            }
            // A worker with another configuration.
            Err(QuestionError::Refused(_)) => return false,
            Err(QuestionError::Silent) if asked.blames_way() => return false,
            Err(error) => NeighbourError::new(id, error),
        };
        note_neighbour_failure(&worker, &error);
        false
    }

    /// Has `id` take a block over.
    pub async fn take_over(
        &self,
        id: &WorkerId,
        block: TakeOver,
    ) -> Result<TakeOverOutcome, NeighbourError> {
        let worker = self.admit_worker(id)?;
        let mut asked = SentQuestion::new(&worker, &EncodedQuestion::new(block));
        // The new owner waits for its turn, and then for an answer of its own.
        let patience =
            self.settings.wait_max.0 + self.settings.deadline.0 + self.settings.deadline.0;
        let until = AnswerPatience::Until(Instant::now() + patience);
        let error = match asked.wait_for_answer(until, || {}).await {
            Ok(taken) => {
                worker.health.note_success();
                return Ok(TakeOverOutcome::Taken { bytes: taken.bytes });
            }
            Err(QuestionError::Refused(refusal)) => {
                worker.health.note_success();
                return Ok(match refusal.kind {
                    RefusalKind::WrongEpoch(_) => TakeOverOutcome::OtherMap,
                    _ => TakeOverOutcome::Refused(refusal),
                });
            }
            Err(error) => error,
        };
        if let QuestionError::Silent = error {
            asked.blames_way();
        }
        let error = NeighbourError::new(id, error);
        note_neighbour_failure(&worker, &error);
        Err(error)
    }

    async fn reserve_memory(
        &self,
        range: &Range<u32>,
    ) -> Result<OwnedSemaphorePermit, NeighbourError> {
        // Arena cells have the width of size classes: up to twice what is asked, for small pages.
        let bytes: u64 =
            self.geometry.page_cuts(range).map(|cut| self.arena.class_bytes(cut) as u64).sum();
        let kibibytes = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let turn = self.turns.clone().acquire_many_owned(kibibytes);
        match timeout(self.settings.wait_max.0, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(NeighbourError::Busy),
        }
    }

    fn admit_worker(&self, id: &WorkerId) -> Result<Arc<TierWorker>, NeighbourError> {
        let worker = self.workers.load().get(id).cloned();
        let worker = worker.filter(|worker| worker.health.admit_call(Instant::now()));
        worker.ok_or_else(|| NeighbourError::Resting(id.clone()))
    }
}

impl HeldRead {
    /// Returns the next pages, in order, with gaps. `None` ends the answer. After `None` or an
    /// error nothing more comes.
    pub async fn next(&mut self) -> Result<Option<(BlockPiece, Vec<Bytes>)>, NeighbourError> {
        if self.over {
            return Ok(None);
        }
        let next = self.next_piece().await;
        match &next {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.over = true;
                self.worker.health.note_success();
            }
            Err(error) => {
                self.over = true;
                note_neighbour_failure(&self.worker, error);
            }
        }
        next
    }

    /// Ends the answer because a page did not match its checksum. Returns the error.
    pub fn reject_corrupt(&mut self, page: u16) -> NeighbourError {
        self.over = true;
        let error = NeighbourError::Corrupt { worker: self.worker.id.clone(), page };
        note_neighbour_failure(&self.worker, &error);
        error
    }

    async fn next_piece(&mut self) -> Result<Option<(BlockPiece, Vec<Bytes>)>, NeighbourError> {
        loop {
            let until = self.deadline.min(Instant::now() + self.silence_max);
            let part = match timeout_at(until, self.call.next()).await {
                Ok(Ok(CallEvent::Part(part))) => part,
                Ok(Ok(CallEvent::Wanted { .. })) => {
                    return Err(self.senseless_error(AnswerFlaw::WantsBytes));
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => {
                    // The silent transport is left, which does not blame the worker. This answer is
                    // lost all the same.
                    self.worker.peer.blames_way(&self.call);
                    return Err(NeighbourError::Silent(self.worker.id.clone()));
                }
            };
            let reply = WorkerReply::decode(&part.message)
                .map_err(|error| self.senseless_error(error.into()))?;
            if reply.is_empty_piece() && part.data.iter().all(Bytes::is_empty) {
                if part.last {
                    return Ok(None);
                }
                continue;
            }
            let piece = match reply.into_answer::<ReadMessage>() {
                Ok(piece) => piece,
                // The worker does not know the volume, or has another block size: it has nothing
                // for us.
                Err(AnswerError::Refused(_)) => return Ok(None),
                Err(AnswerError::Unexpected(unexpected)) => {
                    return Err(self.senseless_error(unexpected.into()));
                }
            };
            self.check_piece(&piece, &part.data)?;
            self.at = piece.start + piece.length;
            // Data should not come in the last part. The bytes are good, so they are kept.
            self.over = part.last;
            return Ok(Some((piece, part.data)));
        }
    }

    /// Checks that a piece has whole pages, follows the earlier ones, lies within the range, and
    /// has as many bytes and checksums as it says.
    fn check_piece(&self, piece: &BlockPiece, data: &[Bytes]) -> Result<(), NeighbourError> {
        let BlockPiece { block, start, length, checksums, verdict: _ } = piece;
        let page_bytes = self.geometry.page_bytes;
        let got: usize = data.iter().map(Bytes::len).sum();
        let end = start.checked_add(*length).filter(|&end| end <= self.end);
        let is_whole = |end: u32| end == self.end || end.is_multiple_of(page_bytes);
        let pages = length.div_ceil(page_bytes) as usize;
        let right = *block == self.block
            && *start >= self.at
            && start.is_multiple_of(page_bytes)
            && end.is_some_and(is_whole)
            && got == *length as usize
            && checksums.len() == pages;
        if right {
            return Ok(());
        }
        let other = OtherBytes {
            got,
            checksums: checksums.len(),
            block: block.0,
            start: *start,
            length: *length,
            due_block: self.block.0,
            due_start: self.at,
            due_end: self.end,
        };
        Err(self.senseless_error(AnswerFlaw::OtherBytes(Box::new(other))))
    }

    fn senseless_error(&self, flaw: AnswerFlaw) -> NeighbourError {
        NeighbourError::Senseless { worker: self.worker.id.clone(), flaw }
    }
}

impl NeighbourError {
    fn new(worker: &WorkerId, error: QuestionError) -> Self {
        let worker = worker.clone();
        match error {
            QuestionError::Transport(error) => error.into(),
            QuestionError::Senseless(flaw) => Self::Senseless { worker, flaw },
            QuestionError::Silent => Self::Silent(worker),
            QuestionError::Resting | QuestionError::NoMap => Self::Resting(worker),
            QuestionError::Refused(refusal) => Self::Refused { worker, refusal },
        }
    }
}

fn note_neighbour_failure(worker: &TierWorker, error: &NeighbourError) {
    let rest = worker.health.note_failure(Instant::now(), &HEALTH);
    let rest_ms = rest.map(|rest| rest.as_millis() as u64);
    tracing::warn!(
        worker = %worker.id, %error, rest_ms,
        "a worker was asked for pages in vain; the ufs is asked"
    );
}
