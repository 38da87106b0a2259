//! Knows the leader's name for those who ask a coordinator that does not lead. Asks the store, and
//! keeps its answer for a moment.

use std::time::Duration;

use tokio::sync::Mutex;
use verbs3_coordinator_client::api::{CoordinatorRefusal, CoordinatorRefusalKind};
use verbs3_coordinator_client::lease_clock::{LeaseInstant, SharedLeaseClock};

use crate::store::SharedClusterStore;

/// How long the leader's name is cached before the store is asked again.
const HINT_FOR: Duration = Duration::from_millis(300);
/// Deadline for asking the store. It is shorter than clients' patience, so that they receive the
/// reason.
const HINT_WITHIN: Duration = Duration::from_millis(500);

/// Last answer about the leader: when it was asked, and who leads or why that is unknown.
type CachedLeaderHint = (LeaseInstant, Result<Option<String>, String>);

/// The leader's name, as the store has it.
pub(super) struct LeaderHint {
    store: SharedClusterStore,
    clock: SharedLeaseClock,
    /// Name that this coordinator itself has as a leader.
    advertise: String,
    /// Held while the store is asked, so that others wait for its answer.
    cached: Mutex<Option<CachedLeaderHint>>,
}

impl LeaderHint {
    pub(super) fn new(
        store: SharedClusterStore,
        clock: SharedLeaseClock,
        advertise: String,
    ) -> Self {
        Self { store, clock, advertise, cached: Mutex::default() }
    }

    /// Says that another coordinator leads, or none, and names the leader if that is known.
    pub(super) async fn explain_refusal(&self) -> CoordinatorRefusal {
        let mut hint = self.cached.lock().await;
        let now = self.clock.now();
        let found = match &*hint {
            Some((asked, found)) if now.saturating_duration_since(*asked) < HINT_FOR => {
                found.clone()
            }
            _ => {
                let found =
                    match tokio::time::timeout(HINT_WITHIN, self.store.current_leader()).await {
                        Ok(found) => found.map_err(|error| error.to_string()),
                        Err(_) => {
                            Err(format!("the store at {} does not answer", self.store.store_name()))
                        }
                    };
                *hint = Some((self.clock.now(), found.clone()));
                found
            }
        };
        // The leader is not known, or not certain. The client can only ask here again.
        let (leader, reason) = match found {
            Ok(Some(leader)) if leader != self.advertise => {
                (Some(leader), "another coordinator leads".to_owned())
            }
            Ok(_) => (None, "no coordinator leads at this moment".to_owned()),
            Err(reason) => (None, format!("no coordinator leads: {reason}")),
        };
        CoordinatorRefusal {
            leader,
            ..CoordinatorRefusal::new(CoordinatorRefusalKind::NotLeader, reason)
        }
    }
}
