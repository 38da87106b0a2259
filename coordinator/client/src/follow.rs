//! Follows the map: the newest membership, whoever of the coordinators says it first. While none
//! answers, the last one stands. A coordinator that says nothing new is not asked twice in a row:
//! it may be cut off from the others' store, and know of nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use verbs3_protocol::{Epoch, Membership};

use crate::api::{MapAnswer, PREFIX};
use crate::client::Client;
use crate::pause::Pause;

/// How long a coordinator may wait for news before it says that there is none.
const WAIT: Duration = Duration::from_secs(20);
/// Pauses while no coordinator answers.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The newest membership; `None` before the first.
pub type MapWatch = watch::Receiver<Option<Arc<Membership>>>;

/// Asks for the map, again and again.
pub struct Follower {
    client: Arc<Client>,
    sender: watch::Sender<Option<Arc<Membership>>>,
    wait: Duration,
}

impl Follower {
    pub fn new(client: Arc<Client>) -> (Self, MapWatch) {
        let (sender, receiver) = watch::channel(None);
        (Self { client, sender, wait: WAIT }, receiver)
    }

    /// Asks coordinators to wait so long for news.
    #[cfg(test)]
    fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Runs until it is told to stop. May be cancelled at any time.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(self) {
        let mut pause = Pause::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let known = self.sender.borrow().clone();
            let epoch = known.as_ref().map_or(Epoch(0), |known| known.epoch);
            let path = format!("{PREFIX}/map?epoch={}&wait_ms={}", epoch.0, self.wait.as_millis());
            let failed = match self.client.get::<MapAnswer>(&path, self.wait).await {
                Ok(Some(answer)) => !self.take(known.as_deref(), answer),
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
                pause.rest().await;
            } else {
                pause.over();
            }
        }
    }

    /// Says whether the answer was of use.
    fn take(&self, known: Option<&Membership>, answer: MapAnswer) -> bool {
        let newer = answer.resolved(known);
        // A coordinator that lags behind knows an older map than another has told.
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
