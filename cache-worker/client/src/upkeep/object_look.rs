//! Asks homes what they have of many objects, in few messages. Each message is sent once; a caller
//! without an answer asks again, or in another way.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use verbs3_protocol::{
    Epoch, LOOKED_OBJECTS_MAX, LookedFor, ObjectHoldings, ObjectLookMessage, ObjectLookReply,
    ObjectVolume, WarmTier, WorkerId,
};

use crate::asking::home_batches::OfKey;
use crate::asking::single_answer::{
    AnswerFlaw, AnswerPatience, EncodedQuestion, QuestionError, ask,
};
use crate::asking::worker::TierWorker;
use crate::asking::worker_asker::WorkerAsker;
use crate::metrics::{CallKind, CallOutcome};

/// A home's answer about one object.
#[derive(Debug, Clone)]
pub enum ObjectLookOutcome {
    Known {
        /// `None`: the home knows no attributes of the object.
        here: Option<ObjectHoldings>,
        worker: WorkerId,
        /// The home's life number, see [`ObjectLookReply`].
        life: u64,
        /// Epoch of the map by which the home was asked.
        epoch: Epoch,
    },
    /// The home can't be asked now, or does not answer.
    Away(ObjectLookError),
}

/// Reason why a home did not say what it has.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ObjectLookError {
    #[error("there is no placement map yet")]
    NoMap,
    #[error("worker {worker}: {cause}")]
    Worker {
        worker: WorkerId,
        #[source]
        cause: QuestionError,
    },
}

/// One of the objects, and its position in the request.
struct NumberedObject(usize, LookedFor);

impl OfKey for NumberedObject {
    fn entry_key(&self) -> &str {
        &self.1.key
    }

    fn wire_bytes(&self) -> usize {
        // The 10 bytes are for a length, and two numbers of three bytes each.
        self.1.key.len() + 10
    }
}

/// Asks homes what they have.
pub(crate) struct ObjectLooker {
    pub(crate) asker: Arc<WorkerAsker>,
}

impl ObjectLooker {
    /// Asks the homes of these objects what they have of them. Returns the outcomes in the same
    /// order.
    pub(crate) async fn look_up_objects(
        &self,
        volume: &ObjectVolume,
        attributes_age_ms_max: u64,
        tier: WarmTier,
        objects: Vec<LookedFor>,
    ) -> Vec<ObjectLookOutcome> {
        let mut seen: Vec<ObjectLookOutcome> =
            objects.iter().map(|_| ObjectLookOutcome::Away(ObjectLookError::NoMap)).collect();
        let map = self.asker.placement.current_map();
        let (epoch, geometry) = (map.placement.map_epoch(), self.asker.options.geometry);
        let numbered = objects
            .into_iter()
            .enumerate()
            .map(|(at, object)| NumberedObject(at, object))
            .collect();
        let mut asked = Vec::new();
        for (worker, group) in map.by_home(volume, numbered) {
            let mut group = group.into_iter().peekable();
            while group.peek().is_some() {
                let (places, objects): (Vec<usize>, Vec<LookedFor>) = group
                    .by_ref()
                    .take(LOOKED_OBJECTS_MAX)
                    .map(|NumberedObject(at, object)| (at, object))
                    .unzip();
                let volume = volume.clone();
                let look = ObjectLookMessage {
                    volume,
                    epoch,
                    geometry,
                    attributes_age_ms_max,
                    tier,
                    objects,
                };
                asked.push(self.look_at(worker.clone(), places, look));
            }
        }
        for (places, of_group) in join_all(asked).await {
            for (at, found) in places.into_iter().zip(of_group) {
                seen[at] = found;
            }
        }
        seen
    }

    async fn look_at(
        &self,
        worker: Arc<TierWorker>,
        places: Vec<usize>,
        look: ObjectLookMessage,
    ) -> (Vec<usize>, Vec<ObjectLookOutcome>) {
        let (count, epoch) = (look.objects.len(), look.epoch);
        let answer = match worker.health.admit_call(Instant::now()) {
            false => Err(QuestionError::Resting),
            true => self.ask_to_look(&worker, look).await,
        };
        let outcomes = match answer {
            Ok(ObjectLookReply { life, objects }) => {
                let known = |here| ObjectLookOutcome::Known {
                    here,
                    worker: worker.id.clone(),
                    life,
                    epoch,
                };
                objects.into_iter().map(known).collect()
            }
            Err(cause) => {
                let away = ObjectLookError::Worker { worker: worker.id.clone(), cause };
                vec![ObjectLookOutcome::Away(away); count]
            }
        };
        (places, outcomes)
    }

    async fn ask_to_look(
        &self,
        worker: &Arc<TierWorker>,
        look: ObjectLookMessage,
    ) -> Result<ObjectLookReply, QuestionError> {
        let asked = look.objects.len();
        let until = Instant::now() + self.asker.options.settings.first_progress.0;
        let answer = ask(worker, &EncodedQuestion::new(look), AnswerPatience::Until(until)).await;
        let answer = answer.and_then(|looked| match looked.objects.len() {
            found if found == asked => Ok(looked),
            found => Err(AnswerFlaw::OtherCount { found, asked }.into()),
        });
        self.asker.metrics.count_call(
            CallKind::Look,
            answer.as_ref().map_or_else(QuestionError::call_outcome, |_| CallOutcome::Ok),
        );
        match &answer {
            Ok(_) | Err(QuestionError::Refused(_)) => worker.health.note_success(),
            Err(_) => {
                self.asker.note_failure(worker);
            }
        }
        answer
    }
}
