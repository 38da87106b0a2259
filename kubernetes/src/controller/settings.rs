//! The settings of the controller of `Preload` resources: whom it asks, how often, for how long.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{SettingsTable, TimePeriod};

/// The `[controller]` section.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct ControllerSettings {
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside.
    #[setting(default = "127.0.0.1:9701")]
    pub admin_listen: SocketAddr,
    /// The cluster's API server, by HTTPS.
    #[setting(default = "https://kubernetes.default.svc:443")]
    pub api_server: String,
    /// CA of the API server's certificate in PEM; read again when it changes.
    #[setting(default = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")]
    pub api_ca_file: PathBuf,
    /// Token of the controller's service account; read again when it changes.
    #[setting(default = "/var/run/secrets/kubernetes.io/serviceaccount/token")]
    pub api_token_file: PathBuf,
    /// S3 endpoint that jobs are begun at, with the keys of each resource's own Secret. No resource
    /// may name another.
    #[setting(required, example = "http://verbs3-gateways.verbs3.svc:9000")]
    pub endpoint: Option<String>,
    /// Region that signatures for it name.
    #[setting(default = "us-east-1")]
    pub region: String,
    /// How often resources are listed, and a job that runs is looked at.
    #[setting(default = "5s", range = "100ms"..="1h")]
    pub look_every: TimePeriod,
    /// Longest pause before something that failed is tried again; the first is two seconds.
    #[setting(default = "1m", range = "1s"..="1h")]
    pub retry_max: TimePeriod,
    /// How long a resource that is deleted waits for the end of its job, where the endpoint does not
    /// answer or refuses. Then it goes, and the job runs on to its own end.
    #[setting(default = "2m", range = "0"..="1h")]
    pub stop_for: TimePeriod,
    /// For each question to the API server.
    #[setting(default = "15s", range = "1s"..="5m")]
    pub deadline: TimePeriod,
    /// Resources that are worked at at once; the others wait.
    #[setting(default = 8, range = 1..=256)]
    pub concurrency_max: u16,
    /// Resources that are worked at in one round, and as many that are deleted; the others have their
    /// turn in later rounds.
    #[setting(default = 10_000, range = 1..=100_000)]
    pub resources_max: u32,
}
