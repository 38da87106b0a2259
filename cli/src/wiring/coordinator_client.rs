//! The way of every process and command to the coordinators.

use std::sync::Arc;
use std::time::Duration;

use verbs3_coordinator_client::{CoordinatorClient, CoordinatorClientOptions};

use super::trusted_cluster::TrustedCluster;

/// For connecting to a coordinator, and for its answer. Nobody's request waits for either.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(2);

/// The same for a command, which asks once, and whose person would have to ask again.
const COMMAND_CONNECT_DEADLINE: Duration = Duration::from_secs(5);
const COMMAND_DEADLINE: Duration = Duration::from_secs(15);

/// A client of the coordinators; `None` where the configuration names none.
pub fn build_client(cluster: &TrustedCluster) -> Option<Arc<CoordinatorClient>> {
    build_client_within(cluster, CONNECT_DEADLINE, DEADLINE)
}

/// The same for a command.
pub fn build_command_client(cluster: &TrustedCluster) -> Option<Arc<CoordinatorClient>> {
    build_client_within(cluster, COMMAND_CONNECT_DEADLINE, COMMAND_DEADLINE)
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
