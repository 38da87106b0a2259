//! Has workers load pages before anybody reads them: one question to one owner, and its answer.
//!
//! Repeats a question only where the connection broke. The caller has time, and comes back.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, timeout};
use verbs3_protocol::{
    AbsentReply, BlockIndex, ContentVersion, Epoch, ObjectKey, WarmMessage, WarmPagesReply,
    WarmTier, WorkerId, WorkerRefusal, WorkerReply, WorkerRequest,
};
use verbs3_rdma::transport::{CallEvent, ReplyDefect, TransportError};

use crate::metrics::{CallKind, CallOutcome};
use crate::tier::CacheTierClient;
use crate::worker_map::{REPEATS_MAX, TierWorker};

/// Pages of one block that should be cached.
#[derive(Debug, Clone)]
pub struct WarmRequest {
    pub object: Arc<ObjectKey>,
    /// `None`: the version that the UFS has now, with its attributes; only for block 0.
    pub version: Option<Arc<ContentVersion>>,
    pub block: BlockIndex,
    /// Pages past the block's end are left out.
    pub pages: Range<u16>,
    pub attributes_age_ms_max: u64,
    /// Used without a version: the object's length by a listing. If it fits into the pages, the
    /// worker asks for the whole object, so that one answer of the UFS brings bytes and attributes.
    pub listed_bytes: Option<u64>,
    /// Which of the block's owners is asked: 0, or a replica below
    /// [`CacheTierClient::owners_count`].
    pub replica: usize,
    pub tier: WarmTier,
    /// Milliseconds since 1970; 0: not pinned.
    pub pin_until_ms: u64,
    pub look_only: bool,
}

/// The owner's answer.
#[derive(Debug, Clone)]
pub enum WarmOutcome {
    Warmed {
        worker: WorkerId,
        /// Epoch of the map by which the owner was asked.
        epoch: Epoch,
        warmed: WarmPagesReply,
    },
    Absent(AbsentReply),
    /// The owner answers, and does not load the pages.
    Refused {
        worker: WorkerId,
        refusal: WorkerRefusal,
    },
    /// The owner does not answer.
    Away {
        worker: WorkerId,
        reason: String,
    },
}

impl CacheTierClient {
    /// Returns how many workers the map gives a block.
    pub fn owners_count(&self, object: &ObjectKey, block: BlockIndex) -> usize {
        self.map.load().placement.slot_owners(object.block_slot(block)).len()
    }

    /// Has one owner of a block load pages of it.
    pub async fn warm_pages(&self, request: &WarmRequest) -> WarmOutcome {
        let asked = {
            let map = self.map.load();
            let owners = map.placement.slot_owners(request.object.block_slot(request.block));
            let owner = owners.get(request.replica.min(owners.len().saturating_sub(1)));
            owner.map(|&owner| (map.workers[usize::from(owner)].clone(), map.placement.map_epoch()))
        };
        let Some((worker, epoch)) = asked else {
            return WarmOutcome::Away {
                worker: WorkerId("of no map".into()),
                reason: "there is no map yet".into(),
            };
        };
        let away = |reason: String| WarmOutcome::Away { worker: worker.id.clone(), reason };
        if !worker.health.admit_call(Instant::now()) {
            return away("it rests after failures".to_owned());
        }
        let warm = WarmMessage {
            object: ObjectKey::clone(&request.object),
            version: request.version.as_deref().cloned(),
            epoch,
            geometry: self.options.geometry,
            block: request.block,
            first_page: request.pages.start,
            pages: request.pages.end.saturating_sub(request.pages.start),
            attributes_age_ms_max: request.attributes_age_ms_max,
            tier: request.tier,
            pin_until_ms: request.pin_until_ms,
            look_only: request.look_only,
        };
        let message =
            match request.listed_bytes.filter(|_| warm.version.is_none() && !warm.look_only) {
                Some(bytes) => WorkerRequest::WarmListed(warm, bytes),
                None => WorkerRequest::Warm(warm),
            };
        let message = message.encode();
        let mut repeats = 0;
        let reason = loop {
            match self.ask_to_warm(&worker, message.clone()).await {
                Ok(WorkerReply::Warmed(warmed)) => {
                    let id = worker.id.clone();
                    return self.note_warm_answer(
                        &worker,
                        WarmOutcome::Warmed { worker: id, epoch, warmed },
                    );
                }
                Ok(WorkerReply::Absent(absent)) => {
                    return self.note_warm_answer(&worker, WarmOutcome::Absent(absent));
                }
                Ok(WorkerReply::Refused(refusal)) => {
                    let id = worker.id.clone();
                    return self
                        .note_warm_answer(&worker, WarmOutcome::Refused { worker: id, refusal });
                }
                Ok(_) => {
                    break "its answer makes no sense; do both run the same version?".to_owned();
                }
                Err(error) if repeats < REPEATS_MAX && worker.may_be_asked_again(&error) => {
                    repeats += 1;
                    self.note_repeat(CallKind::Warm, &worker, &error);
                }
                Err(error) => break error.to_string(),
            }
        };
        self.metrics.count_call(CallKind::Warm, CallOutcome::Failed);
        self.note_failure(&worker);
        away(reason)
    }

    fn note_warm_answer(&self, worker: &TierWorker, outcome: WarmOutcome) -> WarmOutcome {
        worker.health.note_success();
        let refused = matches!(outcome, WarmOutcome::Refused { .. });
        self.metrics.count_call(
            CallKind::Warm,
            if refused { CallOutcome::Refused } else { CallOutcome::Ok },
        );
        outcome
    }

    /// Waits as long as the worker shows signs of life, which are pieces of no bytes.
    async fn ask_to_warm(
        &self,
        worker: &TierWorker,
        message: Bytes,
    ) -> Result<WorkerReply, TransportError> {
        let protocol = |defect: ReplyDefect| TransportError::unusable_reply(&*worker.id.0, defect);
        let mut call = worker.peer.start_call(message, None);
        let mut patience = self.options.first_progress;
        loop {
            let event = timeout(patience, call.next())
                .await
                .map_err(|_| protocol("it was silent for too long".into()));
            patience = self.options.idle;
            let CallEvent::Part(part) = event?? else {
                return Err(protocol("it wants bytes pushed".into()));
            };
            match WorkerReply::decode(&part.message).map_err(|error| protocol(error.into()))? {
                WorkerReply::Data(piece) if piece.length == 0 && !part.last => {}
                reply => return Ok(reply),
            }
        }
    }
}
