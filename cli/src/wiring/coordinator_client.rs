//! The way of every process and command to the coordinators.

use std::sync::Arc;
use std::time::Duration;

use verbs3_coordinator_client::{CoordinatorClient, CoordinatorClientOptions};

use super::trusted_cluster::TrustedCluster;

/// For connecting to a coordinator, and for its answer. Nobody's request waits for either.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(2);
/// A client of the coordinators; `None` where the configuration names none.
pub fn build_client(cluster: &TrustedCluster) -> Option<Arc<CoordinatorClient>> {
    build_client_within(cluster, CONNECT_DEADLINE, DEADLINE)
}

/// The same with other deadlines.
pub fn build_client_within(
    cluster: &TrustedCluster,
    connect: Duration,
    deadline: Duration,
) -> Option<Arc<CoordinatorClient>> {
    if cluster.coordinators.is_empty() {
        return None;
    }
    let options = CoordinatorClientOptions {
        coordinators: cluster
            .coordinators
            .iter()
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect(),
        secrets: cluster.proof_secrets(),
        tls: cluster.coordinator_tls(),
        connect_deadline: connect,
        deadline,
    };
    Some(Arc::new(CoordinatorClient::new(options)))
}
