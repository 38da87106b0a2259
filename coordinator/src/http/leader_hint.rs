//! Refuses what only the leader answers, and names the leader.

use std::time::Duration;

use http::StatusCode;
use verbs3_coordinator_client::api::{CoordinatorRefusal, CoordinatorRefusalKind};

use super::response::CoordinatorResponse;
use crate::coordinator_state::CoordinatorState;

/// How long the leader's name is cached before the store is asked again.
const HINT_FOR: Duration = Duration::from_millis(300);
/// Deadline for asking the store. It is shorter than clients' patience, so that they receive the
/// reason.
const HINT_WITHIN: Duration = Duration::from_millis(500);

impl CoordinatorState {
    /// Refuses a request because another coordinator leads, or none.
    pub(super) async fn not_leader(&self) -> CoordinatorResponse {
        let mut hint = self.hint.lock().await;
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
            Ok(Some(leader)) if leader != self.options.advertise => {
                (Some(leader), "another coordinator leads".to_owned())
            }
            Ok(_) => (None, "no coordinator leads at this moment".to_owned()),
            Err(reason) => (None, format!("no coordinator leads: {reason}")),
        };
        let refused = CoordinatorRefusal {
            leader,
            ..CoordinatorRefusal::new(CoordinatorRefusalKind::NotLeader, reason)
        };
        CoordinatorResponse::from_refusal(StatusCode::MISDIRECTED_REQUEST, &refused)
    }

    /// Bounds how long a request may wait for news.
    pub(super) fn clamp_wait(&self, wait_ms: Option<u64>) -> Duration {
        Duration::from_millis(wait_ms.unwrap_or_default()).min(self.options.settings.wait_max.0)
    }
}
