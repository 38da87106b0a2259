//! Has workers load pages before anybody reads them: one question to one owner, and its answer.
//!
//! Repeats a question only where the connection broke. The caller has time, and comes back.

use std::ops::Range;
use std::sync::Arc;

use tokio::time::Instant;
use verbs3_protocol::{
    AbsentReply, BlockIndex, ContentVersion, Epoch, ObjectKey, WarmAnswer, WarmMessage,
    WarmPagesReply, WarmTier, WorkerId, WorkerRefusal,
};

use crate::asking::single_answer::{AnswerPatience, EncodedQuestion, QuestionError};
use crate::asking::worker_asker::WorkerAsker;
use crate::settings::TierSettings;

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
    /// Which of the block's owners is asked: 0 is the owner, and those after it are next owners,
    /// below `CacheTierClient::owners_count`.
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
        cause: QuestionError,
    },
}

/// Has workers load pages.
pub(crate) struct PageWarmer {
    pub(crate) asker: Arc<WorkerAsker>,
}

impl PageWarmer {
    /// Returns how many workers the map gives a block.
    pub(crate) fn owners_count(&self, object: &ObjectKey, block: BlockIndex) -> usize {
        self.asker.placement.load_map().placement.slot_owners(object.block_slot(block)).len()
    }

    /// Has one owner of a block load pages of it.
    pub(crate) async fn warm_pages(&self, request: &WarmRequest) -> WarmOutcome {
        let asked = {
            let map = self.asker.placement.load_map();
            let owners = map.placement.slot_owners(request.object.block_slot(request.block));
            let owner = owners.get(request.replica.min(owners.len().saturating_sub(1)));
            owner.map(|&owner| (map.workers[usize::from(owner)].clone(), map.placement.map_epoch()))
        };
        let Some((worker, epoch)) = asked else {
            let worker = WorkerId("of no map".into());
            return WarmOutcome::Away { worker, cause: QuestionError::NoMap };
        };
        let id = worker.id.clone();
        if !worker.health.admit_call(Instant::now()) {
            return WarmOutcome::Away { worker: id, cause: QuestionError::Resting };
        }
        let warm = WarmMessage {
            object: ObjectKey::clone(&request.object),
            version: request.version.as_deref().cloned(),
            epoch,
            geometry: self.asker.options.geometry,
            block: request.block,
            first_page: request.pages.start,
            pages: request.pages.end.saturating_sub(request.pages.start),
            attributes_age_ms_max: request.attributes_age_ms_max,
            tier: request.tier,
            pin_until_ms: request.pin_until_ms,
            look_only: request.look_only,
            listed_bytes: request
                .listed_bytes
                .filter(|_| request.version.is_none() && !request.look_only),
        };
        let TierSettings { first_progress, idle, .. } = &self.asker.options.settings;
        let patience = AnswerPatience::BetweenSigns { first: first_progress.0, next: idle.0 };
        match self.asker.ask_over_breaks(&worker, &EncodedQuestion::new(warm), patience).await {
            Ok(answer) => {
                worker.health.note_success();
                match answer {
                    WarmAnswer::Warmed(warmed) => WarmOutcome::Warmed { worker: id, epoch, warmed },
                    WarmAnswer::Absent(absent) => WarmOutcome::Absent(absent),
                }
            }
            Err(QuestionError::Refused(refusal)) => {
                worker.health.note_success();
                WarmOutcome::Refused { worker: id, refusal }
            }
            Err(cause) => {
                self.asker.note_failure(&worker);
                WarmOutcome::Away { worker: id, cause }
            }
        }
    }
}
