//! The settings of the webhook for pods: where it listens, what it adds, what it bounds.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

/// The `[webhook]` section.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookSettings {
    /// Address that API servers connect to, by HTTPS; port 0 takes a free one.
    #[setting(default = "127.0.0.1:9600")]
    pub listen: SocketAddr,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside.
    #[setting(default = "127.0.0.1:9601")]
    pub admin_listen: SocketAddr,
    /// Value of `AWS_ENDPOINT_URL_S3` in pods. `$(VERBS3_NODE_IP)` becomes the address of the pod's
    /// node; where nodes have IPv6 addresses, write `http://[$(VERBS3_NODE_IP)]:9000`.
    #[setting(default = "http://$(VERBS3_NODE_IP):9000")]
    pub endpoint: String,
    /// Value of `AWS_REGION` and `AWS_DEFAULT_REGION` in pods that set neither; empty: none.
    #[setting(default = "us-east-1")]
    pub region: String,
    /// Secret of each pod's own namespace with the keys `AWS_ACCESS_KEY_ID` and
    /// `AWS_SECRET_ACCESS_KEY`; a pod starts without it, too. None: only pods that name a Secret
    /// get keys.
    #[setting(example = "verbs3-access-key")]
    pub credentials_secret: Option<String>,
    /// The gateways' `gateway.lending.socket`. Pods that lend memory (annotation `verbs3.io/lending:
    /// "true"`) get its folder of their node, and this as `VERBS3_SOCKET`. None: they read over
    /// HTTP.
    #[setting(example = "/run/verbs3-lending/gateway.sock")]
    pub lending_socket: Option<PathBuf>,
    /// Connections at once, each for one review. Beyond it the oldest of the busiest address gives
    /// way.
    #[setting(default = 1024, range = 16..=65_536)]
    pub connections_max: u32,
    /// The same of one address, whose own oldest gives way. API servers may all come from one.
    #[setting(default = 512, range = 8..=65_536)]
    pub connections_per_address_max: u32,
    /// For a connection, from its beginning to its answer's end. Less than `timeoutSeconds` of the
    /// webhook's configuration in the cluster.
    #[setting(default = "4s", range = "100ms"..="30s")]
    pub deadline: TimePeriod,
    /// For a review's body, once it has its place in memory.
    #[setting(default = "1s", range = "10ms"..="30s")]
    pub body_deadline: TimePeriod,
    /// Bytes of one review. An object of Kubernetes has 1.5 MiB at most.
    #[setting(default = "3MiB", range = "64KiB"..="16MiB")]
    pub review_max: ByteSize,
    /// Reviews whose body is in memory at once; others wait. One address has three quarters at
    /// most. Two at once are parsed, which may take twenty times their bytes.
    #[setting(default = 32, range = 2..=1024)]
    pub reviews_max: u32,
    /// The certificate that API servers see.
    #[setting(table)]
    pub tls: WebhookTlsSettings,
}

/// The `[webhook.tls]` table. Both files are read again when they change.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookTlsSettings {
    /// Certificate chain in PEM, for the name `SERVICE.NAMESPACE.svc`.
    #[setting(required, example = "/etc/verbs3/tls.crt")]
    pub certificate: Option<PathBuf>,
    /// Private key in PEM.
    #[setting(required, example = "/etc/verbs3/tls.key")]
    pub key: Option<PathBuf>,
}
