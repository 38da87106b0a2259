//! The way of every process and command to the coordinators.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use verbs3_config::ClusterSettings;
use verbs3_coordinator_client::proof::ClusterSecret;
use verbs3_coordinator_client::{CoordinatorClient, CoordinatorClientOptions};

/// For connecting to a coordinator, and for its answer. Nobody's request waits for either.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(2);
/// A client of the coordinators; `None` where the configuration names none.
pub fn build_client(cluster: &ClusterSettings) -> anyhow::Result<Option<Arc<CoordinatorClient>>> {
    build_client_within(cluster, CONNECT_DEADLINE, DEADLINE)
}

/// The same with other deadlines.
pub fn build_client_within(
    cluster: &ClusterSettings,
    connect: Duration,
    deadline: Duration,
) -> anyhow::Result<Option<Arc<CoordinatorClient>>> {
    if cluster.coordinators.is_empty() {
        return Ok(None);
    }
    let options = CoordinatorClientOptions {
        coordinators: cluster
            .coordinators
            .iter()
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect(),
        secret: load_cluster_secret(cluster)?,
        connect_deadline: connect,
        deadline,
    };
    Ok(Some(Arc::new(CoordinatorClient::new(options))))
}

/// The secret that proves requests within the cluster.
pub fn load_cluster_secret(cluster: &ClusterSettings) -> anyhow::Result<ClusterSecret> {
    let secret = cluster.resolve_secret()?.context("cluster.secret is missing")?;
    Ok(ClusterSecret::new(&cluster.name, secret.reveal_text()))
}
