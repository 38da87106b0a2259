//! Follows the map: takes the newest membership from whichever coordinator has it first. While none
//! answers, the last map stays. A coordinator without news is not asked twice in a row: it may be
//! cut off from the others' store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use verbs3_pacing::GrowingPause;
use verbs3_protocol::{Epoch, MemberRoster};

use crate::api::{MapAnswer, PREFIX};
use crate::client::CoordinatorClient;

/// How long a coordinator may wait for news before it answers that there is none.
const WAIT: Duration = Duration::from_secs(20);
/// Bounds of the pause while no coordinator answers.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Receiver of the newest membership; `None` before the first.
pub type MapWatch = watch::Receiver<Option<Arc<MemberRoster>>>;

/// Follows the map by asking the coordinators.
pub struct MapFollower {
    client: Arc<CoordinatorClient>,
    sender: watch::Sender<Option<Arc<MemberRoster>>>,
    wait: Duration,
}

impl MapFollower {
    /// Returns the follower and the receiver of its maps. It asks nothing before `run`.
    pub fn new(client: Arc<CoordinatorClient>) -> (Self, MapWatch) {
        let (sender, receiver) = watch::channel(None);
        (Self { client, sender, wait: WAIT }, receiver)
    }

    /// Sets how long coordinators are asked to wait for news.
    #[cfg(test)]
    fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Follows the map until told to stop. May be cancelled at any time.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow_map()).await;
    }

    async fn follow_map(self) {
        let mut pause = GrowingPause::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let known = self.sender.borrow().clone();
            let epoch = known.as_ref().map_or(Epoch(0), |known| known.epoch);
            let path = format!("{PREFIX}/map?epoch={}&wait_ms={}", epoch.0, self.wait.as_millis());
            let failed = match self.client.get::<MapAnswer>(&path, self.wait).await {
                Ok(Some(answer)) => !self.adopt_answer(known.as_deref(), answer),
                Ok(None) => {
                    self.client.turn_to_another();
                    false
                }
                Err(error) => {
                    tracing::warn!(
                        %error, epoch = epoch.0,
                        "the placement map can't be followed; the last one stands"
                    );
                    true
                }
            };
            if failed {
                tokio::time::sleep(pause.next_jittered(rand::random())).await;
            } else {
                pause.reset_pause();
            }
        }
    }

    /// Adopts the answer's map. Returns whether the answer was of use.
    fn adopt_answer(&self, known: Option<&MemberRoster>, answer: MapAnswer) -> bool {
        let newer = answer.resolve_membership(known);
        // A coordinator that lags behind has an older map than another has sent.
        let newer = newer.filter(|newer| known.is_none_or(|known| newer.epoch > known.epoch));
        let Some(newer) = newer else { return false };
        tracing::info!(
            epoch = newer.epoch.0,
            workers = newer.members.len(),
            "following a new placement map"
        );
        self.sender.send_replace(Some(Arc::new(newer)));
        true
    }
}

#[cfg(test)]
mod tests;
