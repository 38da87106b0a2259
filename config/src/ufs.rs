//! The under file stores: where they are, how to sign in, and how hard they may be asked.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, Period};
use crate::secret::Secret;

/// One `[[ufs]]` entry: a remote object store, or a local folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ufs {
    /// Name that mounts refer to; part of every cached object's identity, so the same in every process. No `/`. Required.
    pub name: String,
    /// `"s3"`: any S3 store. `"local"`: a folder of this host, for trying things out. Default: `"s3"`.
    pub kind: UfsKind,
    /// Folder of a `local` store, made if absent; one process only may use it. Default: none.
    pub path: Option<PathBuf>,
    /// URL of an `s3` store, such as `"https://rgw.example:8443"`; none means AWS in `region`. Default: none.
    pub endpoint: Option<String>,
    /// Region of an `s3` store, as signatures name it. Default: `"us-east-1"`.
    pub region: String,
    /// Put the bucket in the path (`/bucket/key`) and not in the host name. Most stores other than AWS want it. Default: `true`.
    pub path_style: bool,
    /// Send checksums of uploads to the store as trailers (aws-chunked). Off, because several stores refuse them; uploads are
    /// verified by the gateway in both cases. Default: `false`.
    pub trailing_checksums: bool,
    /// How to sign in to an `s3` store.
    pub credentials: Credentials,
    /// How hard the store may be asked.
    pub limits: UfsLimits,
    /// How long to wait for it.
    pub deadlines: UfsDeadlines,
}

/// What stands behind a UFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UfsKind {
    S3,
    Local,
}

/// The `[ufs.credentials]` table. Which settings count depends on `kind`; one that does not count is an error.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Credentials {
    /// `"default"`: the AWS chain (environment, profile, web identity, container, instance), refreshed as needed.
    /// `"static"`: the keys below. `"environment"`: `AWS_ACCESS_KEY_ID` and its companions. `"profile"`: a profile of the
    /// shared AWS files. `"web_identity"`: a token file (IRSA). `"instance"`: instance metadata. `"assume_role"`: a role, assumed with
    /// what the default chain gives. `"anonymous"`: requests are not signed. Default: `"default"`.
    pub kind: CredentialsKind,
    /// Access key id, for `static`. Default: none.
    pub access_key_id: Option<String>,
    /// Secret key, for `static`. Better kept in `secret_access_key_file`. Default: none.
    pub secret_access_key: Option<Secret>,
    /// File that holds the secret key, for `static`. Default: none.
    pub secret_access_key_file: Option<PathBuf>,
    /// Session token that came with temporary keys, for `static`. Default: none.
    pub session_token: Option<Secret>,
    /// Name of the profile, for `profile`; none means the AWS default profile. Default: none.
    pub profile: Option<String>,
    /// Role to assume, for `assume_role` and `web_identity`. Default: none.
    pub role_arn: Option<String>,
    /// Name of the session, for `assume_role` and `web_identity`. Default: none.
    pub session_name: Option<String>,
    /// External id that the role demands, for `assume_role`. Default: none.
    pub external_id: Option<String>,
    /// File that holds the token, for `web_identity`; read again when it changes. Default: none.
    pub token_file: Option<PathBuf>,
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
pub struct UfsLimits {
    /// Heads and reads of the cache under way at once; more wait, and are throttled when they wait too long. Default: `256`. Range: `1` to `65536`.
    pub requests_in_flight_max: u32,
    /// How long a head or read may wait for its turn. Default: `"10s"`. Range: `"100ms"` to `"5m"`.
    pub wait_max: Period,
    /// Attempts of one head or read before its first byte; writes are never repeated. Default: `3`. Range: `1` to `10`.
    pub attempts_max: u32,
    /// Idle connections kept open to the store. Default: `128`. Range: `1` to `65536`.
    pub connections_idle_max: u32,
    /// Largest error body that is kept and passed on to the client. Default: `"64KiB"`. Range: `"1KiB"` to `"64KiB"`.
    pub error_body_max: ByteSize,
}

/// The `[ufs.deadlines]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UfsDeadlines {
    /// For a new connection. Default: `"3s"`. Range: `"10ms"` to `"1m"`.
    pub connect: Period,
    /// From a request to the first byte of its answer. Default: `"30s"`. Range: `"100ms"` to `"10m"`.
    pub first_byte: Period,
    /// Between two pieces of a body. Default: `"30s"`. Range: `"100ms"` to `"10m"`.
    pub idle_body: Period,
}

impl Default for Ufs {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: UfsKind::S3,
            path: None,
            endpoint: None,
            region: "us-east-1".to_owned(),
            path_style: true,
            trailing_checksums: false,
            credentials: Credentials::default(),
            limits: UfsLimits::default(),
            deadlines: UfsDeadlines::default(),
        }
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            kind: CredentialsKind::Default,
            access_key_id: None,
            secret_access_key: None,
            secret_access_key_file: None,
            session_token: None,
            profile: None,
            role_arn: None,
            session_name: None,
            external_id: None,
            token_file: None,
        }
    }
}

impl Default for UfsLimits {
    fn default() -> Self {
        Self {
            requests_in_flight_max: 256,
            wait_max: Period::seconds(10),
            attempts_max: 3,
            connections_idle_max: 128,
            error_body_max: ByteSize::kib(64),
        }
    }
}

impl Default for UfsDeadlines {
    fn default() -> Self {
        Self { connect: Period::seconds(3), first_byte: Period::seconds(30), idle_body: Period::seconds(30) }
    }
}
