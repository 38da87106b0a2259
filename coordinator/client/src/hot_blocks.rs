//! Hot blocks: what workers tell of them, what gateways are told, and the following of that list.
//! It is a hint: nothing is wrong without it, or with an old one, so that no word of it is an error
//! to anybody.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verbs3_protocol::{BlockHash, BlockIndex, ObjectKey};

use crate::api::PREFIX;
use crate::backoff::CoordinatorBackoff;
use crate::client::CoordinatorClient;

/// With a lease: what the leader wants to hear of hot blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotWish {
    /// Not more often than this.
    pub every_ms: u64,
    /// Of blocks that are served at this rate or faster, in bytes a second.
    pub rate_min: u64,
    /// No more than so many, the hottest.
    pub blocks_max: u64,
}

/// With a renewal: a block, and how fast the worker serves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotBlockRate {
    pub object: ObjectKey,
    pub block: BlockIndex,
    pub bytes_per_second: u64,
}

/// To `GET /v1/hot?seen=VERSION&wait_ms=W`, of the leader: 200 with another list, 204 where there
/// is none within that time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotList {
    /// Means nothing but that the list is another one; 0: there is none yet.
    pub version: u64,
    /// How long it may be gone by when the coordinators are away.
    pub good_for_ms: u64,
    /// Blocks, and how many workers each is to have, its owner included: two at least.
    pub blocks: Vec<(BlockHash, u16)>,
}

/// In `GET /v1/cluster`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotView {
    /// Blocks that have several workers.
    pub blocks: u64,
    /// The hottest of them.
    pub hottest: Vec<HotBlockView>,
}

/// A hot block as `GET /v1/cluster` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotBlockView {
    pub volume: String,
    pub key: String,
    pub block: u32,
    pub workers: u16,
    /// Of all its workers.
    pub bytes_per_second: u64,
}

/// How long the leader may wait for another list before it says that there is none.
const WAIT: Duration = Duration::from_secs(20);
/// Pauses while no leader answers. Nothing waits for the list.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Asks the leader for the list, again and again.
pub struct HotFollower<F> {
    client: Arc<CoordinatorClient>,
    adopt: F,
    version: u64,
    /// The list may be gone by until then. `None`: it is empty.
    good_until: Option<Instant>,
}

impl<F: FnMut(HashMap<BlockHash, u16>)> HotFollower<F> {
    /// `adopt` is given every list; an empty one when the last has become too old. The client
    /// should be nobody else's: it comes to ask the leader first, which others need not do.
    pub fn new(client: Arc<CoordinatorClient>, adopt: F) -> Self {
        Self { client, adopt, version: 0, good_until: None }
    }

    /// Runs until it is told to stop. May be cancelled at any time.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow_list()).await;
    }

    async fn follow_list(&mut self) {
        let mut pause = CoordinatorBackoff::new(PAUSE_MIN, PAUSE_MAX);
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
                    pause.reset_delay();
                }
                Err(error) => {
                    // Who follows the map warns of coordinators that are away.
                    tracing::debug!(%error, "the list of hot blocks can't be followed");
                    self.expire_list();
                    pause.sleep_delay().await;
                }
            }
        }
    }

    /// A list that nobody vouches for any more is given up.
    fn expire_list(&mut self) {
        if self.good_until.take_if(|until| Instant::now() >= *until).is_some() {
            tracing::debug!("the list of hot blocks is too old to go by");
            self.version = 0;
            (self.adopt)(HashMap::new());
        }
    }
}
