//! The under file stores: where they are, how to sign in, and how hard they may be asked.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, TimePeriod};
use crate::secret::ConfigSecret;

/// One `[[ufs]]` entry: a remote object store, or a local folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UfsSettings {
    /// Name that mounts refer to; part of every cached object's identity, so the same in every
    /// process. No `/`. Required.
    pub name: String,
    /// `"s3"`: any S3 store. `"local"`: a folder of this host, for trying things out. Default:
    /// `"s3"`.
    pub kind: UfsKind,
    /// Folder of a `local` store, made if absent; one process only may use it. Default: none.
    pub path: Option<PathBuf>,
    /// Whether an acknowledged write to a `local` store survives a power loss, or only the end of
    /// the process. Default: `true`.
    pub sync: bool,
    /// URL of an `s3` store, such as `"https://rgw.example:8443"`; none means AWS in `region`.
    /// Default: none.
    pub endpoint: Option<String>,
    /// PEM file of the certificates to trust instead of the system's, for an `https` endpoint.
    /// Default: none.
    pub ca_file: Option<PathBuf>,
    /// What tells apart two `[[ufs]]` of one endpoint (or one AWS region) that never show the same
    /// bucket: accounts, tenants. Two of one endpoint and namespace are one store, and are refused.
    /// Two host names that lead to one store are not recognised: name one of them alone. Default:
    /// `""`.
    pub namespace: String,
    /// Region of an `s3` store, as signatures name it. Default: `"us-east-1"`.
    pub region: String,
    /// Put the bucket in the path (`/bucket/key`) and not in the host name. Most stores other than
    /// AWS want it. Default: `true`.
    pub path_style: bool,
    /// Pass on checksums that clients send after a body. A store that refuses
    /// `STREAMING-UNSIGNED-PAYLOAD-TRAILER` needs `false`, and then stores no such checksum;
    /// uploads are verified by the gateway in both cases. Default: `true`.
    pub trailing_checksums: bool,
    /// How to sign in to an `s3` store.
    pub credentials: CredentialsSettings,
    /// How hard the store may be asked.
    pub limits: UfsLimitsSettings,
    /// How long to wait for it.
    pub deadlines: UfsDeadlinesSettings,
    /// When a head or read of the cache is tried again. Writes are sent once.
    pub retries: UfsRetriesSettings,
    /// When a store that fails is left alone.
    pub circuit: UfsCircuitSettings,
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CredentialsSettings {
    /// `"default"`: the AWS chain (environment, profile, web identity, container, instance),
    /// refreshed as needed. `"static"`: the keys below. `"environment"`: `AWS_ACCESS_KEY_ID` and
    /// its companions. `"profile"`: a profile of the shared AWS files, also one with a
    /// `credential_process`. `"web_identity"`: a token file (IRSA). `"instance"`: instance
    /// metadata. `"assume_role"`: a role, assumed with what the default chain gives. `"anonymous"`:
    /// requests are not signed. Default: `"default"`.
    pub kind: CredentialsKind,
    /// Access key id, for `static`. Default: none.
    pub access_key_id: Option<String>,
    /// Secret key, for `static`. Better kept in `secret_access_key_file`. Default: none.
    pub secret_access_key: Option<ConfigSecret>,
    /// File that holds the secret key, for `static`. Default: none.
    pub secret_access_key_file: Option<PathBuf>,
    /// Session token that came with temporary keys, for `static`. Default: none.
    pub session_token: Option<ConfigSecret>,
    /// Name of the profile, for `profile`; none means the AWS default profile. Default: none.
    pub profile: Option<String>,
    /// Credentials file that holds the profile, for `profile`; none means the usual places.
    /// Default: none.
    pub profile_file: Option<PathBuf>,
    /// Role to assume, for `assume_role` and `web_identity`. Default: none.
    pub role_arn: Option<String>,
    /// Name of the session, for `assume_role` and `web_identity`; none means `verbs3`. Default:
    /// none.
    pub session_name: Option<String>,
    /// External id that the role demands, for `assume_role`. Default: none.
    pub external_id: Option<ConfigSecret>,
    /// File that holds the token, for `web_identity`; read again when it changes. Default: none.
    pub token_file: Option<PathBuf>,
    /// URL of the token service, for `assume_role` and `web_identity`: a VPC endpoint, or another
    /// vendor's STS; none means AWS in `region`, or `AWS_ENDPOINT_URL_STS`. Default: none.
    pub sts_endpoint: Option<String>,
    /// URL of the instance metadata service (IMDSv2), for `instance`; none means
    /// `http://169.254.169.254`, or `AWS_EC2_METADATA_SERVICE_ENDPOINT`. Default: none.
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UfsLimitsSettings {
    /// Requests of every kind under way at once, so also connections; those beyond wait for
    /// `deadlines.connect`. Default: `512`. Range: `1` to `65536`.
    pub connections_max: u32,
    /// Heads and reads of the cache under way at once. Default: `256`. Range: `1` to `65536`.
    pub requests_in_flight_max: u32,
    /// How long a head or read of the cache may wait for its turn. Default: `"5s"`. Range: `"10ms"`
    /// to `"5m"`.
    pub wait_max: TimePeriod,
    /// Bytes that may be read and thrown away when a store ignores ranges. Default: `"16MiB"`.
    /// Range: `"0B"` to `"1GiB"`.
    pub skip_max: ByteSize,
}

/// The `[ufs.deadlines]` table. A client that sends or takes a body slowly breaks none of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UfsDeadlinesSettings {
    /// For a free place among `connections_max`, and then for the connection itself. Default:
    /// `"5s"`. Range: `"10ms"` to `"1m"`.
    pub connect: TimePeriod,
    /// For the answer to a head or read of the cache to begin, one try. Default: `"20s"`. Range:
    /// `"100ms"` to `"10m"`.
    pub first_byte: TimePeriod,
    /// For the answer to any request to begin, once all of the request was sent. Default: `"1m"`.
    /// Range: `"100ms"` to `"1h"`.
    pub answer: TimePeriod,
    /// For the next piece of an answer's body. Default: `"20s"`. Range: `"100ms"` to `"10m"`.
    pub idle_body: TimePeriod,
    /// How long a connection without requests is kept; shorter than the store keeps it. Default:
    /// `"20s"`. Range: `"1s"` to `"10m"`.
    pub keep_alive: TimePeriod,
}

/// The `[ufs.retries]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UfsRetriesSettings {
    /// Tries of one head or read before its first byte, the first included; `1` switches retries
    /// off. Default: `3`. Range: `1` to `10`.
    pub attempts_max: u32,
    /// Retries that all requests together may make in a burst. Default: `32`. Range: `0` to
    /// `10000`.
    pub budget_max: u32,
    /// Retries that come back to that budget per second. Default: `4.0`. Range: `0.01` to `1000.0`.
    pub budget_per_second: f64,
    /// Upper bound of the first pause; doubles with every try. Default: `"100ms"`. Range: `"1ms"`
    /// to `"10s"`.
    pub pause: TimePeriod,
    /// Upper bound of every pause. Default: `"2s"`. Range: `"1ms"` to `"1m"`.
    pub pause_max: TimePeriod,
}

/// The `[ufs.circuit]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UfsCircuitSettings {
    /// Failures in a row after which reads of the cache are refused at once. Default: `16`. Range:
    /// `1` to `10000`.
    pub failures_max: u32,
    /// For how long, the first time; doubles while probes fail. Default: `"1s"`. Range: `"10ms"` to
    /// `"1m"`.
    pub open_for: TimePeriod,
    /// The longest time between two probes. Default: `"30s"`. Range: `"10ms"` to `"10m"`.
    pub open_for_max: TimePeriod,
}

impl Default for UfsSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: UfsKind::S3,
            path: None,
            sync: true,
            endpoint: None,
            ca_file: None,
            namespace: String::new(),
            region: "us-east-1".to_owned(),
            path_style: true,
            trailing_checksums: true,
            credentials: CredentialsSettings::default(),
            limits: UfsLimitsSettings::default(),
            deadlines: UfsDeadlinesSettings::default(),
            retries: UfsRetriesSettings::default(),
            circuit: UfsCircuitSettings::default(),
        }
    }
}

impl Default for CredentialsSettings {
    fn default() -> Self {
        Self {
            kind: CredentialsKind::Default,
            access_key_id: None,
            secret_access_key: None,
            secret_access_key_file: None,
            session_token: None,
            profile: None,
            profile_file: None,
            role_arn: None,
            session_name: None,
            external_id: None,
            token_file: None,
            sts_endpoint: None,
            metadata_endpoint: None,
        }
    }
}

impl Default for UfsLimitsSettings {
    fn default() -> Self {
        Self {
            connections_max: 512,
            requests_in_flight_max: 256,
            wait_max: TimePeriod::from_seconds(5),
            skip_max: ByteSize::from_mib(16),
        }
    }
}

impl Default for UfsDeadlinesSettings {
    fn default() -> Self {
        Self {
            connect: TimePeriod::from_seconds(5),
            first_byte: TimePeriod::from_seconds(20),
            answer: TimePeriod::from_seconds(60),
            idle_body: TimePeriod::from_seconds(20),
            keep_alive: TimePeriod::from_seconds(20),
        }
    }
}

impl Default for UfsRetriesSettings {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            budget_max: 32,
            budget_per_second: 4.0,
            pause: TimePeriod::from_millis(100),
            pause_max: TimePeriod::from_seconds(2),
        }
    }
}

impl Default for UfsCircuitSettings {
    fn default() -> Self {
        Self {
            failures_max: 16,
            open_for: TimePeriod::from_seconds(1),
            open_for_max: TimePeriod::from_seconds(30),
        }
    }
}
