//! Serves an operator's requests: invalidates what changed behind the tier's back; inspects, drops
//! and unpins blocks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::{Instant, sleep, timeout_at};
use verbs3_protocol::{
    BlockIndex, ContentVersion, Epoch, ForgetMessage, ForgetPrefix, ObjectKey, ObjectVolume,
    TendAct, TendMessage, TendedBlock, WorkerId, WorkerRefusal, WorkerReply, WorkerRequest,
};
use verbs3_rdma::transport::{CallEvent, ReplyDefect, TransportError};

use crate::metrics::{CallKind, CallOutcome};
use crate::tier::CacheTierClient;
use crate::worker_map::{REPEATS_MAX, TierWorker, TierWorkerMap};

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
    #[error("worker {worker} could not be asked: {reason}")]
    Away { worker: WorkerId, reason: String },
    #[error("worker {worker} refused: {reason}")]
    Refused { worker: WorkerId, reason: String },
}

impl CacheTierClient {
    /// Returns the workers that the map gives a block, its owner first.
    pub fn owner_ids(&self, object: &ObjectKey, block: BlockIndex) -> Vec<WorkerId> {
        let map = self.map.load();
        let owners = map.placement.slot_owners(object.block_slot(block)).iter();
        owners.map(|&owner| map.workers[usize::from(owner)].id.clone()).collect()
    }

    /// Has the homes ask the UFS before they answer for these objects again. After `Ok`, every read
    /// that begins sees what the UFS has now, or later. Tries for `patience`, also across a change
    /// of the map.
    pub async fn invalidate_objects(
        &self,
        volume: &ObjectVolume,
        invalid: &InvalidObjects,
        patience: Duration,
    ) -> Result<(), TendError> {
        let until = Instant::now() + patience;
        loop {
            match self.invalidate_once(volume, invalid, until).await {
                Err(TendError::Away { worker, reason }) if Instant::now() + PAUSE < until => {
                    tracing::debug!(%worker, reason, "an invalidation is sent again");
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
        let map = self.map.load_full();
        let messages: Vec<(Arc<TierWorker>, WorkerRequest)> = match invalid {
            InvalidObjects::Keys(keys) => {
                let groups = map.by_home(volume, keys.clone()).into_iter();
                groups
                    .map(|(home, keys)| {
                        (
                            home,
                            WorkerRequest::Forget(ForgetMessage { volume: volume.clone(), keys }),
                        )
                    })
                    .collect()
            }
            // Any worker may be the home of some keys with the prefix.
            InvalidObjects::Prefix(prefix) => {
                let message = || ForgetPrefix { volume: volume.clone(), prefix: prefix.clone() };
                map.workers
                    .iter()
                    .map(|worker| (worker.clone(), WorkerRequest::ForgetPrefix(message())))
                    .collect()
            }
        };
        if map.workers.is_empty() {
            return Err(TendError::NoMap);
        }
        let told = messages.into_iter().map(|(worker, request)| {
            let map = &map;
            async move { self.forget_at_home(map, &worker, request.encode(), until).await }
        });
        join_all(told).await.into_iter().collect()
    }

    /// Tells a worker, then checks that the map is still in force. A worker that answers under the
    /// map's epoch with a lease is the home of its slots at that moment. A later home asks the UFS
    /// later. Where maps never change, the epoch is that of the list of workers.
    async fn forget_at_home(
        &self,
        map: &TierWorkerMap,
        worker: &TierWorker,
        message: Bytes,
        until: Instant,
    ) -> Result<(), TendError> {
        let away = |reason: String| TendError::Away { worker: worker.id.clone(), reason };
        match self.ask_with_repeats(CallKind::Forget, worker, message, until).await? {
            WorkerReply::Done { .. } => {}
            _ => return Err(away("its answer makes no sense".to_owned())),
        }
        let epoch = map.placement.map_epoch();
        let fixed = !self.options.coordinated;
        match self
            .ask_with_repeats(CallKind::Standing, worker, WorkerRequest::Standing.encode(), until)
            .await?
        {
            WorkerReply::Standing { epoch: theirs, leased: true } if theirs == epoch => Ok(()),
            // A worker without a list of its own answers for every key.
            WorkerReply::Standing { epoch: Epoch(0), leased: true } if fixed => Ok(()),
            WorkerReply::Standing { .. } if fixed => {
                let same = "give both the same cluster.workers and cluster.replicas";
                Err(away(format!(
                    "it has another list of workers than this process, and may not be the home; \
                    {same}"
                )))
            }
            WorkerReply::Standing { epoch: theirs, leased } => {
                let (lease, own) = (if leased { "a" } else { "no" }, epoch.0);
                Err(away(format!(
                    "it is at epoch {} with {lease} lease, and the map at {own}",
                    theirs.0
                )))
            }
            _ => Err(away("its answer makes no sense".to_owned())),
        }
    }

    /// Applies `act` to up to [`verbs3_protocol::TENDED_BLOCKS_MAX`] blocks of a version at one
    /// worker, and returns what it has of them. The map need not give it these blocks.
    pub async fn tend_blocks(
        &self,
        worker: &WorkerId,
        object: &ObjectKey,
        version: &ContentVersion,
        first_block: BlockIndex,
        blocks: u16,
        act: TendAct,
    ) -> Result<Vec<TendedBlock>, TendError> {
        let map = self.map.load_full();
        let found = map.workers.iter().find(|known| known.id == *worker);
        let found = found.ok_or_else(|| TendError::Unknown { worker: worker.clone() })?;
        let (object, version, geometry) = (object.clone(), version.clone(), self.options.geometry);
        let message = WorkerRequest::Tend(TendMessage {
            object,
            version,
            geometry,
            first_block,
            blocks,
            act,
        })
        .encode();
        let until = Instant::now() + self.options.idle;
        match self.ask_with_repeats(CallKind::Tend, found, message, until).await? {
            WorkerReply::Tended(tended) => Ok(tended.blocks),
            _ => Err(TendError::Away {
                worker: worker.clone(),
                reason: "its answer makes no sense".to_owned(),
            }),
        }
    }

    /// Asks one question without bytes, again where the connection broke. Signs of life don't end
    /// the wait.
    async fn ask_with_repeats(
        &self,
        kind: CallKind,
        worker: &TierWorker,
        message: Bytes,
        until: Instant,
    ) -> Result<WorkerReply, TendError> {
        let mut repeats = 0;
        let reason = loop {
            match timeout_at(until, ask_patiently(worker, message.clone())).await {
                Ok(Ok(WorkerReply::Refused(WorkerRefusal { reason, .. }))) => {
                    self.metrics.count_call(kind, CallOutcome::Refused);
                    return Err(TendError::Refused { worker: worker.id.clone(), reason });
                }
                Ok(Ok(reply)) => {
                    worker.health.note_success();
                    self.metrics.count_call(kind, CallOutcome::Ok);
                    return Ok(reply);
                }
                Ok(Err(error)) if repeats < REPEATS_MAX && worker.may_be_asked_again(&error) => {
                    repeats += 1;
                    self.note_repeat(kind, worker, &error);
                }
                Ok(Err(error)) => break error.to_string(),
                Err(_) => break "it was silent".to_owned(),
            }
        };
        self.metrics.count_call(kind, CallOutcome::Failed);
        Err(TendError::Away { worker: worker.id.clone(), reason })
    }
}

/// Waits for the answer and skips signs of life, which are pieces of no bytes.
async fn ask_patiently(worker: &TierWorker, message: Bytes) -> Result<WorkerReply, TransportError> {
    let protocol = |defect: ReplyDefect| TransportError::unusable_reply(&*worker.id.0, defect);
    let mut call = worker.peer.start_call(message, None);
    loop {
        let CallEvent::Part(part) = call.next().await? else {
            return Err(protocol("it wants bytes pushed".into()));
        };
        match WorkerReply::decode(&part.message).map_err(|error| protocol(error.into()))? {
            WorkerReply::Data(piece) if piece.length == 0 && !part.last => {}
            reply => return Ok(reply),
        }
    }
}
