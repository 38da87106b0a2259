//! Pushes pages of an object that is being written to the owners of its blocks, and settles them
//! when the write is over (populate on write).
//!
//! Best effort: each question has a deadline, is asked once, and says nothing of a worker's health.
//! Knows no store, and does not decide when a write is over.

use std::sync::Arc;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use tokio::time::{Instant, timeout_at};
use verbs3_protocol::{
    BlockIndex, ContentVersion, Epoch, ObjectKey, PopulateToken, SETTLED_TOKENS_MAX, SettleMessage,
    StageMessage, TenantTag, WorkerId, WorkerReply, WorkerRequest,
};
use verbs3_rdma::transport::CallEvent;

use crate::asking::single_answer::{AnswerFlaw, AnswerPatience, EncodedQuestion, QuestionError};
use crate::asking::worker::TierWorker;
use crate::asking::worker_asker::WorkerAsker;
use crate::metrics::{CallKind, CallOutcome};

/// Pages of one block that a worker should keep until their write is over.
#[derive(Debug, Clone)]
pub struct StageRequest {
    pub object: Arc<ObjectKey>,
    pub token: PopulateToken,
    pub block: BlockIndex,
    pub first_page: u16,
    /// The bytes of each page.
    pub pages: Vec<Bytes>,
    pub tenant: Option<TenantTag>,
}

/// What becomes of the staged pages of an object, at one worker.
#[derive(Debug, Clone)]
pub struct SettleRequest {
    pub worker: WorkerId,
    pub object: Arc<ObjectKey>,
    pub tokens: Vec<PopulateToken>,
    /// `None`: they are given up.
    pub version: Option<Arc<ContentVersion>>,
}

/// Pushes and settles pages.
pub(crate) struct PageStager {
    pub(crate) asker: Arc<WorkerAsker>,
}

impl PageStager {
    /// Returns the owner of a block, if there is one and it does not rest after failures.
    pub(crate) fn stage_owner(&self, object: &ObjectKey, block: BlockIndex) -> Option<WorkerId> {
        let map = self.asker.placement.load_map();
        let owner = map.placement.slot_owners(object.block_slot(block)).first()?;
        let worker = &map.workers[usize::from(*owner)];
        worker.health.is_up().then(|| worker.id.clone())
    }

    /// Pushes pages to the owner of their block. `Ok`: it keeps them.
    pub(crate) async fn stage_pages(
        &self,
        worker: &WorkerId,
        request: StageRequest,
        until: Instant,
    ) -> Result<(), QuestionError> {
        let outcome = match timeout_at(until, self.push_pages(worker, request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(QuestionError::Silent),
        };
        let counted =
            outcome.as_ref().map_or_else(QuestionError::call_outcome, |()| CallOutcome::Ok);
        self.asker.metrics.count_call(CallKind::Stage, counted);
        outcome
    }

    async fn push_pages(
        &self,
        worker: &WorkerId,
        request: StageRequest,
    ) -> Result<(), QuestionError> {
        let (worker, epoch) = self.find_worker(worker)?;
        let StageRequest { object, token, block, first_page, pages, tenant } = request;
        let checksum = |page: &Bytes| crc_fast::checksum(CrcAlgorithm::Crc64Nvme, page);
        let bytes: usize = pages.iter().map(Bytes::len).sum();
        let stage = StageMessage {
            object: ObjectKey::clone(&object),
            epoch,
            geometry: self.asker.options.geometry,
            token,
            block,
            first_page,
            bytes: u32::try_from(bytes).map_err(|_| AnswerFlaw::WantsBytes)?,
            checksums: pages.iter().map(checksum).collect(),
        };
        let message = WorkerRequest::Stage(stage).for_tenant(None, tenant).encode();
        let mut call = worker.peer.start_call(message, None);
        let mut pages = Some(pages);
        loop {
            match call.next().await? {
                CallEvent::Wanted { bytes: wanted, .. } if wanted == bytes as u64 => {
                    let pages = pages.take().ok_or(AnswerFlaw::WantsBytes)?;
                    call.push_data(&pages).await?;
                }
                CallEvent::Wanted { .. } => return Err(AnswerFlaw::WantsBytes.into()),
                CallEvent::Part(part) => {
                    let reply = WorkerReply::decode(&part.message).map_err(AnswerFlaw::from)?;
                    if part.last || !reply.is_empty_piece() {
                        return Ok(reply.into_answer::<StageMessage>().map(drop)?);
                    }
                }
            }
        }
    }

    /// Settles staged pages at one worker. Returns how many belong to the version now.
    pub(crate) async fn settle_pages(
        &self,
        request: &SettleRequest,
        until: Instant,
    ) -> Result<u64, QuestionError> {
        let (worker, _) = self.find_worker(&request.worker)?;
        let mut settled = 0;
        for tokens in request.tokens.chunks(SETTLED_TOKENS_MAX) {
            let question = EncodedQuestion::new(SettleMessage {
                object: ObjectKey::clone(&request.object),
                tokens: tokens.to_vec(),
                version: request.version.as_deref().cloned(),
            });
            let patience = AnswerPatience::Until(until);
            let answer = self.asker.ask_over_breaks(&worker, &question, patience).await?;
            settled += u64::from(answer.pages);
        }
        Ok(settled)
    }

    /// Finds a worker by the present map.
    fn find_worker(&self, id: &WorkerId) -> Result<(Arc<TierWorker>, Epoch), QuestionError> {
        let map = self.asker.placement.load_map();
        let found = map.workers.iter().find(|known| known.id == *id);
        let worker = found.cloned().ok_or(QuestionError::NoMap)?;
        Ok((worker, map.placement.map_epoch()))
    }
}
