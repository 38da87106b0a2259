//! The resource `Preload`: what its author says, and what its status tells.
//! `deploy/helm/verbs3/files/preloads.yaml` is written from it.

pub(crate) mod resource_definition;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verbs3_preload::api::{PreloadFailure, PreloadJobSpec, PreloadPriority, PreloadTier};

/// A resource as the API server has it, as far as it is read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PreloadResource {
    pub metadata: ResourceMetadata,
    pub spec: PreloadResourceSpec,
    #[serde(default)]
    pub status: PreloadResourceStatus,
}

/// Who a resource is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceMetadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    /// When its deletion was asked for, in RFC 3339 form.
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
    #[serde(default)]
    pub finalizers: Vec<String>,
}

impl ResourceMetadata {
    pub(crate) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }
}

/// What to load, and with whose key. It never changes: a job that runs can't be told otherwise.
///
/// There is no endpoint in it: keys go where the operator of the controller says, and nowhere else.
/// There is no namespace in it either: the Secret is of the resource's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self == oldSelf",
        "message": "a Preload's spec does not change: delete it, and make another",
    },
    {
        "rule": "(has(self.prefixes) && size(self.prefixes) > 0) || \
            (has(self.paths) && size(self.paths) > 0)",
        "message": "name something in prefixes or paths",
    },
]))]
pub struct PreloadResourceSpec {
    /// What names of objects begin with: `s3://bucket/prefix`.
    #[serde(default)]
    #[schemars(length(max = 32), inner(length(max = 1024), regex(pattern = r"^s3://[^/]+")))]
    pub prefixes: Vec<String>,
    /// Objects: `s3://bucket/key`.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 1024), regex(pattern = r"^s3://[^/]+/.")))]
    pub paths: Vec<String>,
    /// Secret of the same namespace with the keys `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    /// The job may load what this key has the right "warm" for.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
    /// Which of the waiting jobs begins first.
    #[serde(default = "normal_priority")]
    pub priority: PreloadResourcePriority,
    /// Where to load to.
    #[serde(default = "memory_tier")]
    pub tier: PreloadResourceTier,
    /// Owners of each block that load it.
    #[serde(default = "one_replica")]
    #[schemars(range(min = 1, max = 64))]
    pub replicas: u16,
    /// When the job ends, finished or not, in RFC 3339 form.
    #[serde(default)]
    #[schemars(length(max = 64), extend("format" = "date-time"))]
    pub deadline: Option<String>,
    /// Most bytes a second that the job takes from the store.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub bandwidth_bytes_per_second: Option<u64>,
    /// Reads everything back in the end, and compares.
    #[serde(default)]
    pub verify: bool,
    /// Loads attributes alone.
    #[serde(default)]
    pub metadata_only: bool,
}

/// Priorities that a holder of keys may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PreloadResourcePriority {
    Low,
    Normal,
}

/// Tiers of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PreloadResourceTier {
    Memory,
    Disk,
}

/// What has become of it, as the endpoint said last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreloadResourceStatus {
    /// `Pending`, `Queued`, `Running`; then `Done`, `Incomplete`, `Failed` or `Stopped`.
    pub state: String,
    /// Id of the job, as `verbs3 preload show` takes it. None: the endpoint told of none.
    pub job_id: Option<String>,
    /// What it is at, or why it is not done.
    pub message: Option<String>,
    /// Objects that were counted.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    pub objects_loaded: u64,
    pub objects_failed: u64,
    /// Objects that were not there in the end.
    pub objects_missing: u64,
    /// Bytes that came from the store.
    pub bytes_loaded: u64,
    /// Bytes that were in the cache already.
    pub bytes_held: u64,
    /// The first few failures.
    pub failures: Vec<PreloadResourceFailure>,
    /// `Accepted`: the endpoint took the job. `Current`: the rest is what the endpoint says now.
    /// `Complete`: the job is over, and everything is there.
    pub conditions: Vec<PreloadResourceCondition>,
}

/// An object that was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreloadResourceFailure {
    pub path: String,
    pub reason: String,
}

/// One condition, as resources of Kubernetes have them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreloadResourceCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word, for programs.
    pub reason: String,
    /// A sentence, for people.
    pub message: String,
    /// When `status` changed last.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
}

fn normal_priority() -> PreloadResourcePriority {
    PreloadResourcePriority::Normal
}

fn memory_tier() -> PreloadResourceTier {
    PreloadResourceTier::Memory
}

fn one_replica() -> u16 {
    1
}

impl PreloadResourceSpec {
    /// Returns the job as an endpoint takes it. A job that is sent again under its id is the same.
    pub fn job_spec(&self, id: String) -> PreloadJobSpec {
        PreloadJobSpec {
            id: Some(id),
            paths: self.paths.clone(),
            prefixes: self.prefixes.clone(),
            replicas: self.replicas,
            tier: match self.tier {
                PreloadResourceTier::Memory => PreloadTier::Memory,
                PreloadResourceTier::Disk => PreloadTier::Disk,
            },
            priority: match self.priority {
                PreloadResourcePriority::Low => PreloadPriority::Low,
                PreloadResourcePriority::Normal => PreloadPriority::Normal,
            },
            deadline: self.deadline.clone(),
            bandwidth_bytes_per_second: self.bandwidth_bytes_per_second,
            verify: self.verify,
            metadata_only: self.metadata_only,
            ..PreloadJobSpec::default()
        }
    }
}

impl From<&PreloadFailure> for PreloadResourceFailure {
    fn from(failure: &PreloadFailure) -> Self {
        let PreloadFailure { path, reason } = failure;
        Self { path: bound_text(path, 1024), reason: bound_text(reason, 512) }
    }
}

/// The first `letters_max` letters of a text.
pub(crate) fn bound_text(text: &str, letters_max: usize) -> String {
    text.chars().take(letters_max).collect()
}
