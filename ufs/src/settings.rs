//! The settings of a store: where it is, how to sign in, and how hard it may be asked.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{ByteSize, ConfigSecret, SettingsTable, TimePeriod};

/// One `[[ufs]]` entry: a remote object store, or a local folder.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct UfsSettings {
    /// Name that mounts refer to; part of every cached object's identity, so the same in every
    /// process, and of one store in all of them: processes that mean two stores share nothing of
    /// it. No `/`.
    #[setting(required, example = "ceph")]
    pub name: String,
    /// `"s3"`: any S3 store. `"local"`: a folder of this host, for trying things out.
    #[setting(default = "s3")]
    pub kind: UfsKind,
    /// Folder of a `local` store, made if absent; one process only may use it.
    #[setting(example = "/var/lib/verbs3/store")]
    pub path: Option<PathBuf>,
    /// Whether an acknowledged write to a `local` store survives a power loss, or only the end of
    /// the process.
    #[setting(default = true)]
    pub sync: bool,
    /// URL of an `s3` store, such as `"https://rgw.example:8443"`; none means AWS in `region`.
    #[setting(example = "https://rgw.example:8443")]
    pub endpoint: Option<String>,
    /// PEM file of the certificates to trust instead of the system's, for an `https` endpoint.
    #[setting(example = "/etc/verbs3/store-ca.pem")]
    pub ca_file: Option<PathBuf>,
    /// What tells apart two `[[ufs]]` of one endpoint (or one AWS region) that never show the same
    /// bucket: accounts, tenants. Two of one endpoint and namespace are one store, and are refused.
    /// Two host names that lead to one store are not recognised: name one of them alone.
    #[setting(default = "")]
    pub namespace: String,
    /// What tells that processes mean one store though they reach it at different endpoints: the
    /// same word in each. Empty: the endpoint tells (on AWS, the region). A change of either makes
    /// what is cached another store's.
    #[setting(default = "")]
    pub store_id: String,
    /// Region of an `s3` store, as signatures name it.
    #[setting(default = "us-east-1")]
    pub region: String,
    /// Put the bucket in the path (`/bucket/key`) and not in the host name. Most stores other than
    /// AWS want it.
    #[setting(default = true)]
    pub path_style: bool,
    /// Pass on checksums that clients send after a body. A store that refuses
    /// `STREAMING-UNSIGNED-PAYLOAD-TRAILER` needs `false`, and then stores no such checksum;
    /// uploads are verified by the gateway in both cases.
    #[setting(default = true)]
    pub trailing_checksums: bool,
    /// How to sign in to an `s3` store.
    #[setting(table)]
    pub credentials: CredentialsSettings,
    /// How hard the store may be asked.
    #[setting(table)]
    pub limits: UfsLimitsSettings,
    /// How long to wait for it.
    #[setting(table)]
    pub deadlines: UfsDeadlinesSettings,
    /// When a head or read of the cache is tried again. Writes are sent once.
    #[setting(table)]
    pub retries: UfsRetriesSettings,
    /// When a store that fails is left alone.
    #[setting(table)]
    pub circuit: UfsCircuitSettings,
}

impl UfsSettings {
    /// The defaults, under a name.
    pub fn with_name(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// What stands behind a UFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UfsKind {
    S3,
    Local,
}

/// The `[ufs.credentials]` table. Which settings count depends on `kind`; one that does not count
/// is an error.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct CredentialsSettings {
    /// `"default"`: the AWS chain (environment, profile, web identity, container, instance),
    /// refreshed as needed. `"static"`: the keys below. `"environment"`: `AWS_ACCESS_KEY_ID` and
    /// its companions. `"profile"`: a profile of the shared AWS files, also one with a
    /// `credential_process`. `"web_identity"`: a token file (IRSA). `"instance"`: instance
    /// metadata. `"assume_role"`: a role, assumed with what the default chain gives. `"anonymous"`:
    /// requests are not signed.
    #[setting(default = "default")]
    pub kind: CredentialsKind,
    /// Access key id, for `static`.
    #[setting(example = "AKIA…")]
    pub access_key_id: Option<String>,
    /// Secret key, for `static`. Better kept in `secret_access_key_file`.
    #[setting(example = "…")]
    pub secret_access_key: Option<ConfigSecret>,
    /// File that holds the secret key, for `static`.
    #[setting(example = "/etc/verbs3/ufs.secret")]
    pub secret_access_key_file: Option<PathBuf>,
    /// Session token that came with temporary keys, for `static`.
    #[setting(example = "…")]
    pub session_token: Option<ConfigSecret>,
    /// Name of the profile, for `profile`; none means the AWS default profile.
    #[setting(example = "training")]
    pub profile: Option<String>,
    /// Credentials file that holds the profile, for `profile`; none means the usual places.
    #[setting(example = "/etc/verbs3/aws-credentials")]
    pub profile_file: Option<PathBuf>,
    /// Role to assume, for `assume_role` and `web_identity`.
    #[setting(example = "arn:aws:iam::123456789012:role/verbs3")]
    pub role_arn: Option<String>,
    /// Name of the session, for `assume_role` and `web_identity`; none means `verbs3`.
    #[setting(example = "verbs3")]
    pub session_name: Option<String>,
    /// External id that the role demands, for `assume_role`.
    #[setting(example = "…")]
    pub external_id: Option<ConfigSecret>,
    /// File that holds the token, for `web_identity`; read again when it changes.
    #[setting(example = "/var/run/secrets/token")]
    pub token_file: Option<PathBuf>,
    /// URL of the token service, for `assume_role` and `web_identity`: a VPC endpoint, or another
    /// vendor's STS; none means AWS in `region`, or `AWS_ENDPOINT_URL_STS`.
    #[setting(example = "https://sts.example")]
    pub sts_endpoint: Option<String>,
    /// URL of the instance metadata service (IMDSv2), for `instance`; none means
    /// `http://169.254.169.254`, or `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
    #[setting(example = "http://169.254.169.254")]
    pub metadata_endpoint: Option<String>,
}

/// Where credentials come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialsKind {
    Default,
    Static,
    Environment,
    Profile,
    WebIdentity,
    Instance,
    AssumeRole,
    Anonymous,
}

/// The `[ufs.limits]` table. Each process keeps these bounds by itself.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct UfsLimitsSettings {
    /// Requests of every kind under way at once, so also connections; those beyond wait for
    /// `deadlines.connect`.
    #[setting(default = 512, range = 1..=65_536)]
    pub connections_max: u32,
    /// Heads and reads of the cache under way at once.
    #[setting(default = 256, range = 1..=65_536)]
    pub requests_in_flight_max: u32,
    /// How long a head or read of the cache may wait for its turn.
    #[setting(default = "5s", range = "10ms"..="5m")]
    pub wait_max: TimePeriod,
    /// Bytes that may be read and thrown away when a store ignores ranges.
    #[setting(default = "16MiB", range = "0B"..="1GiB")]
    pub skip_max: ByteSize,
}

/// The `[ufs.deadlines]` table. A client that sends or takes a body slowly breaks none of them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct UfsDeadlinesSettings {
    /// For a free place among `connections_max`, and then for the connection itself.
    #[setting(default = "5s", range = "10ms"..="1m")]
    pub connect: TimePeriod,
    /// For the answer to a head or read of the cache to begin, one try.
    #[setting(default = "20s", range = "100ms"..="10m")]
    pub first_byte: TimePeriod,
    /// For the answer to any request to begin, once all of the request was sent.
    #[setting(default = "1m", range = "100ms"..="1h")]
    pub answer: TimePeriod,
    /// For the next piece of an answer's body.
    #[setting(default = "20s", range = "100ms"..="10m")]
    pub idle_body: TimePeriod,
    /// How long a connection without requests is kept; shorter than the store keeps it.
    #[setting(default = "20s", range = "1s"..="10m")]
    pub keep_alive: TimePeriod,
}

/// The `[ufs.retries]` table.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct UfsRetriesSettings {
    /// Tries of one head or read before its first byte, the first included; `1` switches retries
    /// off.
    #[setting(default = 3, range = 1..=10)]
    pub attempts_max: u32,
    /// Retries that all requests together may make in a burst.
    #[setting(default = 32, range = 0..=10_000)]
    pub budget_max: u32,
    /// Retries that come back to that budget per second.
    #[setting(default = 4.0, range = 0.01..=1000.0)]
    pub budget_per_second: f64,
    /// Upper bound of the first pause; doubles with every try.
    #[setting(default = "100ms", range = "1ms"..="10s")]
    pub pause: TimePeriod,
    /// Upper bound of every pause.
    #[setting(default = "2s", range = "1ms"..="1m")]
    pub pause_max: TimePeriod,
}

/// The `[ufs.circuit]` table.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct UfsCircuitSettings {
    /// Failures in a row after which reads of the cache are refused at once.
    #[setting(default = 16, range = 1..=10_000)]
    pub failures_max: u32,
    /// For how long, the first time; doubles while probes fail.
    #[setting(default = "1s", range = "10ms"..="1m")]
    pub open_for: TimePeriod,
    /// The longest time between two probes.
    #[setting(default = "30s", range = "10ms"..="10m")]
    pub open_for_max: TimePeriod,
}
