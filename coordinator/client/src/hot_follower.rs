//! Owns the follower of the leader's list of hot blocks. The list is only a hint: without it, or
//! with an old one, everything still works. So no failure here is an error for a caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verbs3_pacing::GrowingPause;
use verbs3_protocol::BlockHash;

use crate::api::PREFIX;
use crate::client::CoordinatorClient;
use crate::hot_blocks::HotList;

/// How long the leader may wait for another list before it answers that there is none.
const WAIT: Duration = Duration::from_secs(20);
/// Bounds of the pause while no leader answers. Nothing waits for the list.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Follows the leader's list of hot blocks.
pub struct HotFollower<F> {
    client: Arc<CoordinatorClient>,
    adopt: F,
    version: u64,
    /// The list is valid until then. `None`: it is empty.
    good_until: Option<Instant>,
}

impl<F: FnMut(HashMap<BlockHash, u16>)> HotFollower<F> {
    /// Creates a follower. It passes every list to `adopt`, and an empty one when the last has
    /// become too old. The client should not be shared: it learns to ask the leader first, which
    /// other users need not do.
    pub fn new(client: Arc<CoordinatorClient>, adopt: F) -> Self {
        Self { client, adopt, version: 0, good_until: None }
    }

    /// Follows the list until told to stop. May be cancelled at any time.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow_list()).await;
    }

    async fn follow_list(&mut self) {
        let mut pause = GrowingPause::new(PAUSE_MIN, PAUSE_MAX);
        let mut good_for = Duration::ZERO;
        loop {
            let path = format!("{PREFIX}/hot?seen={}&wait_ms={}", self.version, WAIT.as_millis());
            match self.client.get::<HotList>(&path, WAIT).await {
                Ok(answer) => {
                    if let Some(HotList { version, good_for_ms, blocks }) = answer {
                        good_for = Duration::from_millis(good_for_ms);
                        self.version = version;
                        tracing::debug!(
                            blocks = blocks.len(),
                            "following another list of hot blocks"
                        );
                        (self.adopt)(blocks.into_iter().collect());
                    }
                    self.good_until = Some(Instant::now() + good_for);
                    pause.reset_pause();
                }
                Err(error) => {
                    // The map's follower already warns about absent coordinators.
                    tracing::debug!(%error, "the list of hot blocks can't be followed");
                    self.expire_list();
                    tokio::time::sleep(pause.next_jittered(rand::random())).await;
                }
            }
        }
    }

    /// Drops a list that has become too old.
    fn expire_list(&mut self) {
        if self.good_until.take_if(|until| Instant::now() >= *until).is_some() {
            tracing::debug!("the list of hot blocks is too old to go by");
            self.version = 0;
            (self.adopt)(HashMap::new());
        }
    }
}
