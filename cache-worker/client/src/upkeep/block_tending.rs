//! Serves an operator's requests: invalidates what changed behind the tier's back; inspects, drops
//! and unpins blocks.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use verbs3_protocol::{
    BlockIndex, ContentVersion, Epoch, ForgetMessage, ForgetPrefix, HomeAcknowledgement, ObjectKey,
    ObjectVolume, StandingQuestion, StandingReply, TendAct, TendMessage, TendedBlock, WorkerId,
    WorkerQuestion, WorkerRefusal,
};

use crate::asking::single_answer::{AnswerPatience, EncodedQuestion, QuestionError};
use crate::asking::worker::TierWorker;
use crate::asking::worker_asker::WorkerAsker;
use crate::asking::worker_map::TierWorkerMap;

/// Pause before a failed try is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Objects of a volume whose attributes are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidObjects {
    Keys(Vec<String>),
    /// All objects whose keys begin with this.
    Prefix(String),
}

/// Reason why a request was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TendError {
    #[error("there is no placement map yet")]
    NoMap,
    #[error("worker {worker} is not in the placement map")]
    Unknown { worker: WorkerId },
    #[error("worker {worker} could not be asked: {cause}")]
    Away {
        worker: WorkerId,
        #[source]
        cause: TendFailure,
    },
    #[error("worker {worker} refused: {refusal}")]
    Refused {
        worker: WorkerId,
        #[source]
        refusal: WorkerRefusal,
    },
}

/// Reason why a worker has not done what an operator asked. Another try may succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TendFailure {
    #[error(transparent)]
    Question(#[from] QuestionError),
    #[error(
        "it has another list of workers than this process, and may not be the home; give both the \
        same cluster.workers and cluster.replicas"
    )]
    OtherWorkers,
    #[error(
        "it is at epoch {} with {} lease, and the map at {}",
        theirs.epoch.0, if theirs.leased { "a" } else { "no" }, ours.0
    )]
    OtherStanding { theirs: StandingReply, ours: Epoch },
}

impl TendError {
    fn new(worker: &WorkerId, error: QuestionError) -> Self {
        let worker = worker.clone();
        match error {
            QuestionError::Refused(refusal) => Self::Refused { worker, refusal },
            error => Self::Away { worker, cause: error.into() },
        }
    }
}

/// Serves an operator's requests.
pub(crate) struct BlockTender {
    pub(crate) asker: Arc<WorkerAsker>,
}

impl BlockTender {
    /// Returns the workers that the map gives a block, its owner first.
    pub(crate) fn owner_ids(&self, object: &ObjectKey, block: BlockIndex) -> Vec<WorkerId> {
        let map = self.asker.placement.load_map();
        let owners = map.placement.slot_owners(object.block_slot(block)).iter();
        owners.map(|&owner| map.workers[usize::from(owner)].id.clone()).collect()
    }

    /// Has the homes ask the UFS before they answer for these objects again. After `Ok`, every read
    /// that begins sees what the UFS has now, or later. Tries for `patience`, also across a change
    /// of the map.
    pub(crate) async fn invalidate_objects(
        &self,
        volume: &ObjectVolume,
        invalid: &InvalidObjects,
        patience: Duration,
    ) -> Result<(), TendError> {
        let until = Instant::now() + patience;
        loop {
            match self.invalidate_once(volume, invalid, until).await {
                Err(TendError::Away { worker, cause }) if Instant::now() + PAUSE < until => {
                    tracing::debug!(%worker, %cause, "an invalidation is sent again");
                    sleep(PAUSE).await;
                }
                Err(TendError::NoMap) if Instant::now() + PAUSE < until => sleep(PAUSE).await,
                other => return other,
            }
        }
    }

    async fn invalidate_once(
        &self,
        volume: &ObjectVolume,
        invalid: &InvalidObjects,
        until: Instant,
    ) -> Result<(), TendError> {
        let map = self.asker.placement.current_map();
        if map.workers.is_empty() {
            return Err(TendError::NoMap);
        }
        match invalid {
            InvalidObjects::Keys(keys) => {
                let groups = map.by_home(volume, keys.clone()).into_iter();
                let told = groups.map(|(home, keys)| {
                    let forget = ForgetMessage { volume: volume.clone(), keys };
                    self.forget_at_home(&map, home, forget, until)
                });
                join_all(told).await.into_iter().collect()
            }
            // Any worker may be the home of some keys with the prefix.
            InvalidObjects::Prefix(prefix) => {
                let told = map.workers.iter().map(|worker| {
                    let forget = ForgetPrefix { volume: volume.clone(), prefix: prefix.clone() };
                    self.forget_at_home(&map, worker.clone(), forget, until)
                });
                join_all(told).await.into_iter().collect()
            }
        }
    }

    /// Tells a worker, then checks that the map is still in force. A worker that answers under the
    /// map's epoch with a lease is the home of its slots at that moment. A later home asks the UFS
    /// later. Where maps never change, the epoch is that of the list of workers.
    async fn forget_at_home<Q: WorkerQuestion<Answer = HomeAcknowledgement>>(
        &self,
        map: &TierWorkerMap,
        worker: Arc<TierWorker>,
        forget: Q,
        until: Instant,
    ) -> Result<(), TendError> {
        let patience = AnswerPatience::Until(until);
        let id = &worker.id;
        self.ask_to_tend(&worker, &EncodedQuestion::new(forget), patience).await?;
        let standing = EncodedQuestion::new(StandingQuestion);
        let theirs = self.ask_to_tend(&worker, &standing, patience).await?;
        let ours = map.placement.map_epoch();
        let fixed = !self.asker.options.coordinated;
        // A worker without a list of its own answers for every key.
        let agrees = theirs.epoch == ours || fixed && theirs.epoch == Epoch(0);
        let cause = match theirs.leased && agrees {
            true => return Ok(()),
            false if fixed => TendFailure::OtherWorkers,
            false => TendFailure::OtherStanding { theirs, ours },
        };
        Err(TendError::Away { worker: id.clone(), cause })
    }

    /// Applies `act` to up to [`verbs3_protocol::TENDED_BLOCKS_MAX`] blocks of a version at one
    /// worker, and returns what it has of them. The map need not give it these blocks.
    pub(crate) async fn tend_blocks(
        &self,
        worker: &WorkerId,
        object: &ObjectKey,
        version: &ContentVersion,
        first_block: BlockIndex,
        blocks: u16,
        act: TendAct,
    ) -> Result<Vec<TendedBlock>, TendError> {
        let map = self.asker.placement.current_map();
        let found = map.workers.iter().find(|known| known.id == *worker);
        let found = found.ok_or_else(|| TendError::Unknown { worker: worker.clone() })?;
        let (object, version, geometry) =
            (object.clone(), version.clone(), self.asker.options.geometry);
        let tend = TendMessage { object, version, geometry, first_block, blocks, act };
        let until = AnswerPatience::Until(Instant::now() + self.asker.options.settings.idle.0);
        Ok(self.ask_to_tend(found, &EncodedQuestion::new(tend), until).await?.blocks)
    }

    async fn ask_to_tend<Q: WorkerQuestion>(
        &self,
        worker: &Arc<TierWorker>,
        question: &EncodedQuestion<Q>,
        patience: AnswerPatience,
    ) -> Result<Q::Answer, TendError> {
        let answer = self.asker.ask_over_breaks(worker, question, patience).await;
        if answer.is_ok() {
            worker.health.note_success();
        }
        answer.map_err(|error| TendError::new(&worker.id, error))
    }
}
