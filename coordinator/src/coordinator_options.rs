//! What a coordinator is told at its start.

use verbs3_coordinator_client::proof::ClusterSecret;
use verbs3_coordinator_client::{ClusterSecrets, CoordinatorTls};

use crate::console_access::ConsoleUsers;
use crate::settings::CoordinatorSettings;

/// What one coordinator is made of: its cluster, secrets and address, and its settings.
#[derive(Debug, Clone)]
pub struct CoordinatorOptions {
    pub name: String,
    pub secrets: ClusterSecrets,
    /// Certificates of this coordinator, and whether plain connections are taken beside TLS.
    /// `None`: all are plain.
    pub tls: Option<CoordinatorTls>,
    /// Token that stores show when they send notifications. `None`: they need the proof, too.
    pub notification_token: Option<ClusterSecret>,
    /// URL at which other processes reach this coordinator: `http://host:port`, or `https://…`.
    pub advertise: String,
    /// Workers that may serve a block.
    pub replicas: u16,
    /// `None`: there is no console.
    pub console_users: Option<ConsoleUsers>,
    pub settings: CoordinatorSettings,
}
