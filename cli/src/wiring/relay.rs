//! A gateway's way around to workers that it can't reach: the coordinators have them hear its
//! words.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use verbs3_client::{RelayError, RelayOptions, Tier};
use verbs3_config::{Cluster, GatewayTier};
use verbs3_coordinator_client::Client;
use verbs3_coordinator_client::api::{PREFIX, Relay};
use verbs3_protocol::{Relayed, Word, WorkerId};

use super::coordinator;
use super::lease::escaped;

/// For connecting to a coordinator, and for its answer beside the worker's. Writes wait for both:
/// shorter than elsewhere, so that one coordinator that is away leaves time for the next.
const CONNECT_DEADLINE: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(1);

/// A client of its own: it soon knows who leads, while the map is asked of any coordinator.
struct ByCoordinators(Arc<Client>);

#[async_trait]
impl verbs3_client::Relay for ByCoordinators {
    async fn relay(
        &self,
        worker: &WorkerId,
        word: &Word,
        wait: Duration,
    ) -> Result<Relayed, RelayError> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let path = format!("{PREFIX}/workers/{}/relay", escaped(&worker.0));
        let relay = Relay { word: word.clone(), wait_ms };
        let relayed = self
            .0
            .post(&path, &relay, wait)
            .await
            .map_err(|error| RelayError(error.to_string()))?;
        relayed.ok_or_else(|| RelayError("an empty answer".to_owned()))
    }
}

/// Where there are coordinators.
pub fn start(tier: &Tier, config: &GatewayTier, cluster: &Cluster) -> anyhow::Result<()> {
    if let Some(client) = coordinator::client_within(cluster, CONNECT_DEADLINE, DEADLINE)? {
        let options =
            RelayOptions { after: config.relay_after.0, relays_max: config.relays_max as usize };
        tier.relay_with(Arc::new(ByCoordinators(client)), options);
    }
    Ok(())
}
