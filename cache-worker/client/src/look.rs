//! Asking homes what they have of many objects, in few messages. Sent once: who is not answered
//! asks again, or otherwise.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::{Instant, timeout};
use verbs3_protocol::{
    Epoch, Here, LOOKED_OBJECTS_MAX, Look, Looked, LookedFor, Refusal, Reply, Request, Volume,
    WarmTier, WorkerId,
};

use crate::homes::OfKey;
use crate::place::Worker;
use crate::tier::Tier;
use crate::write::ask;

/// What a home says of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Known {
        /// `None`: the home knows no attributes of it.
        here: Option<Here>,
        worker: WorkerId,
        /// As [`Looked`] has it.
        life: u64,
        /// Of the map by which it was asked.
        epoch: Epoch,
    },
    /// The home can't be asked now, or does not answer.
    Away(String),
}

/// One of the objects, and its place among them.
struct Numbered(usize, LookedFor);

impl OfKey for Numbered {
    fn key(&self) -> &str {
        &self.1.key
    }

    fn bytes(&self) -> usize {
        // A length, and two numbers of three bytes each.
        self.1.key.len() + 10
    }
}

impl Tier {
    /// What their homes have of these objects, in their order.
    pub async fn look(
        &self,
        volume: &Volume,
        (attributes_age_ms_max, tier): (u64, WarmTier),
        objects: Vec<LookedFor>,
    ) -> Vec<Seen> {
        let mut seen: Vec<Seen> =
            objects.iter().map(|_| Seen::Away("there is no map yet".to_owned())).collect();
        let map = self.map.load_full();
        let (epoch, geometry) = (map.placement.epoch(), self.options.geometry);
        let numbered =
            objects.into_iter().enumerate().map(|(at, object)| Numbered(at, object)).collect();
        let mut asked = Vec::new();
        for (worker, group) in map.by_home(volume, numbered) {
            let mut group = group.into_iter().peekable();
            while group.peek().is_some() {
                let (places, objects): (Vec<usize>, Vec<LookedFor>) = group
                    .by_ref()
                    .take(LOOKED_OBJECTS_MAX)
                    .map(|Numbered(at, object)| (at, object))
                    .unzip();
                let volume = volume.clone();
                let look = Look { volume, epoch, geometry, attributes_age_ms_max, tier, objects };
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
        worker: Arc<Worker>,
        places: Vec<usize>,
        look: Look,
    ) -> (Vec<usize>, Vec<Seen>) {
        let (count, epoch) = (look.objects.len(), look.epoch);
        let away =
            |reason: String| vec![Seen::Away(format!("worker {}: {reason}", worker.id)); count];
        if !worker.health.admit(Instant::now()) {
            return (places, away("it rests after failures".to_owned()));
        }
        let reason =
            match timeout(self.options.first_progress, ask(&worker, Request::Look(look).encode()))
                .await
            {
                Ok(Ok(Reply::Looked(Looked { life, objects }))) if objects.len() == count => {
                    self.metrics.call("look", "ok");
                    worker.health.succeeded();
                    let found = |here| Seen::Known { here, worker: worker.id.clone(), life, epoch };
                    return (places, objects.into_iter().map(found).collect());
                }
                Ok(Ok(Reply::Refused(Refusal { reason, .. }))) => {
                    self.metrics.call("look", "refused");
                    worker.health.succeeded();
                    return (places, away(reason));
                }
                Ok(Ok(_)) => "its answer makes no sense; do both run the same version?".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it was silent for too long".to_owned(),
            };
        self.metrics.call("look", "failed");
        self.note_failure(&worker);
        (places, away(reason))
    }
}
