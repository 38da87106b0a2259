//! A gateway's way around to workers that it can't reach: the coordinators have them hear its
//! words.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use verbs3_client::{CacheTierClient, RelayError};
use verbs3_coordinator_client::CoordinatorClient;
use verbs3_coordinator_client::api::{PREFIX, RelayRequest, escape_path_segment};
use verbs3_protocol::{NoticeRelayOutcome, TenantNotice, WorkerId};

use super::coordinator_client;
use super::trusted_cluster::TrustedCluster;

/// For connecting to a coordinator, and for its answer beside the worker's. Writes wait for both:
/// shorter than elsewhere, so that one coordinator that is away leaves time for the next.
const CONNECT_DEADLINE: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(1);

/// A client of its own: it soon knows who leads, while the map is asked of any coordinator.
struct ByCoordinators(Arc<CoordinatorClient>);

#[async_trait]
impl verbs3_client::NoticeRelay for ByCoordinators {
    async fn relay_notice(
        &self,
        worker: &WorkerId,
        notice: &TenantNotice,
        wait: Duration,
    ) -> Result<NoticeRelayOutcome, RelayError> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let path = format!("{PREFIX}/workers/{}/relay", escape_path_segment(&worker.0));
        let relay = RelayRequest { notice: notice.clone(), wait_ms };
        let relayed = self
            .0
            .post_json(&path, &relay, wait)
            .await
            .map_err(|error| RelayError(error.to_string()))?;
        relayed.ok_or_else(|| RelayError("an empty answer".to_owned()))
    }
}

/// Where there are coordinators.
pub fn start_relay(tier: &CacheTierClient, cluster: &TrustedCluster) {
    if let Some(client) =
        coordinator_client::build_client_within(cluster, CONNECT_DEADLINE, DEADLINE)
    {
        tier.relay_with(Arc::new(ByCoordinators(client)));
    }
}
