//! Asks homes what they have of many objects, in few messages. Each message is sent once; a caller
//! without an answer asks again, or in another way.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::{Instant, timeout};
use verbs3_protocol::{
    Epoch, LOOKED_OBJECTS_MAX, LookedFor, ObjectHoldings, ObjectLookMessage, ObjectLookReply,
    ObjectVolume, WarmTier, WorkerId, WorkerRefusal, WorkerReply, WorkerRequest,
};

use crate::home_batches::OfKey;
use crate::metrics::{CallKind, CallOutcome};
use crate::tier::CacheTierClient;
use crate::worker_map::TierWorker;
use crate::write_announcement::ask_worker;

/// A home's answer about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    Away(String),
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

impl CacheTierClient {
    /// Asks the homes of these objects what they have of them. Returns the outcomes in the same
    /// order.
    pub async fn look_up_objects(
        &self,
        volume: &ObjectVolume,
        attributes_age_ms_max: u64,
        tier: WarmTier,
        objects: Vec<LookedFor>,
    ) -> Vec<ObjectLookOutcome> {
        let mut seen: Vec<ObjectLookOutcome> = objects
            .iter()
            .map(|_| ObjectLookOutcome::Away("there is no map yet".to_owned()))
            .collect();
        let map = self.map.load_full();
        let (epoch, geometry) = (map.placement.map_epoch(), self.options.geometry);
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
        let away = |reason: String| {
            vec![ObjectLookOutcome::Away(format!("worker {}: {reason}", worker.id)); count]
        };
        if !worker.health.admit_call(Instant::now()) {
            return (places, away("it rests after failures".to_owned()));
        }
        let reason = match timeout(
            self.options.first_progress,
            ask_worker(&worker, WorkerRequest::Look(look).encode()),
        )
        .await
        {
            Ok(Ok(WorkerReply::Looked(ObjectLookReply { life, objects })))
                if objects.len() == count =>
            {
                self.metrics.count_call(CallKind::Look, CallOutcome::Ok);
                worker.health.note_success();
                let found = |here| ObjectLookOutcome::Known {
                    here,
                    worker: worker.id.clone(),
                    life,
                    epoch,
                };
                return (places, objects.into_iter().map(found).collect());
            }
            Ok(Ok(WorkerReply::Refused(WorkerRefusal { reason, .. }))) => {
                self.metrics.count_call(CallKind::Look, CallOutcome::Refused);
                worker.health.note_success();
                return (places, away(reason));
            }
            Ok(Ok(_)) => "its answer makes no sense; do both run the same version?".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it was silent for too long".to_owned(),
        };
        self.metrics.count_call(CallKind::Look, CallOutcome::Failed);
        self.note_failure(&worker);
        (places, away(reason))
    }
}
