//! Types of the API of preload jobs, which travel as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pattern of a job's id.
const JOB_ID: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$";
/// Pattern of `s3://MOUNT/KEY`.
const OBJECT_PATH: &str = r"^s3://[^/]+/[\s\S]+$";
/// Pattern of `s3://MOUNT/PREFIX`.
const PREFIX_PATH: &str = r"^s3://[^/]+(/[\s\S]*)?$";

/// Body of `POST /v1/preload`: what to load, and how. The answer is a [`JobView`].
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreloadJobSpec {
    /// Id of the job: 1 to 64 letters, digits, `.`, `_` and `-`. Sending the same job again under
    /// its id creates no second one. Default: a random id.
    #[schemars(regex(pattern = JOB_ID))]
    pub id: Option<String>,
    pub action: PreloadJobAction,
    /// Objects: `s3://mount/key`.
    #[schemars(inner(regex(pattern = OBJECT_PATH)))]
    pub paths: Vec<String>,
    /// Prefixes of objects: `s3://mount/prefix`.
    #[schemars(inner(regex(pattern = PREFIX_PATH)))]
    pub prefixes: Vec<String>,
    /// An object that lists objects, one `s3://mount/key` a line.
    #[schemars(regex(pattern = OBJECT_PATH))]
    pub manifest: Option<String>,
    /// Only these bytes of each object. Default: all.
    pub ranges: Vec<PreloadByteRange>,
    /// Number of a block's owners that load it. Each reads the UFS itself.
    #[schemars(range(min = 1))]
    pub replicas: u16,
    pub tier: PreloadTier,
    /// Seconds from the job's creation for which pages stay on disk. Only with `"tier": "disk"`.
    pub pin_ttl: Option<u64>,
    /// Decides which of the waiting jobs begins first.
    pub priority: PreloadPriority,
    /// When the job ends, finished or not, in RFC 3339 form: `2026-11-22T08:00:00Z`.
    #[schemars(extend("format" = "date-time"))]
    pub deadline: Option<String>,
    /// Most bytes a second that the job takes from UFSs.
    #[schemars(range(min = 1))]
    pub bandwidth_bytes_per_second: Option<u64>,
    /// Skips pages that are in the tier. `false` is refused: pages never change, so there is
    /// nothing to renew.
    pub skip_if_cached: bool,
    /// Reads everything back from the tier at the end, as a reader would: from memory what is
    /// there, whatever `tier` says. Compares it with the UFS's checksums, if there are any.
    pub verify: bool,
    /// Loads only attributes.
    pub metadata_only: bool,
    /// Lists and counts without loading.
    pub dry_run: bool,
}

impl Default for PreloadJobSpec {
    fn default() -> Self {
        Self {
            id: None,
            action: PreloadJobAction::Load,
            paths: Vec::new(),
            prefixes: Vec::new(),
            manifest: None,
            ranges: Vec::new(),
            replicas: 1,
            tier: PreloadTier::Memory,
            pin_ttl: None,
            priority: PreloadPriority::Normal,
            deadline: None,
            bandwidth_bytes_per_second: None,
            skip_if_cached: true,
            verify: false,
            metadata_only: false,
            dry_run: false,
        }
    }
}

/// Body of `POST /v1/preload?owner=NAME`: a job as a gateway passes it on.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnedPreloadJob {
    pub job: PreloadJobSpec,
    /// Tenant of the owner: its identities share the places of running jobs as one.
    #[serde(default)]
    pub tenant: Option<String>,
    /// What the gateway takes each mount for that the job names. Where a coordinator takes one for
    /// something else, it refuses the job: nobody would have judged what it loads.
    #[serde(default)]
    pub judged_mounts: Vec<JudgedMount>,
}

/// Mount as a gateway has it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgedMount {
    /// Bucket name that clients see.
    pub mount: String,
    /// Identity of the store, as it stands in the names of volumes.
    pub store: String,
    pub bucket: String,
    /// Prefix that is put before each key.
    pub prefix: String,
}

/// Action on each object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreloadJobAction {
    #[default]
    Load,
    /// All owners of its blocks give up its pages, pinned or not.
    Evict,
    /// Its pages on disk may be given up again.
    Unpin,
}

/// Byte range of an object, its last byte included; without a last one, to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreloadByteRange {
    pub first: u64,
    #[serde(default)]
    pub last: Option<u64>,
}

/// Tier that a job loads pages into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreloadTier {
    Memory,
    Disk,
}

/// Order in which waiting jobs begin; within one priority the oldest comes first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PreloadPriority {
    Low,
    Normal,
    High,
}

/// State of a job. `Queued` and `Running` jobs are not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job waits for its turn.
    Queued,
    Running,
    /// Everything that was asked for was done, or is in the tier.
    Done,
    /// The job has ended with something missing: `reason` says what.
    Incomplete,
    /// The job could not go on: `reason` says why.
    Failed,
    /// A `DELETE` stopped the job.
    Stopped,
}

impl JobState {
    /// Returns whether the job has ended, with any result.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// Phase of a running job. Each phase goes through the whole list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreloadPhase {
    /// Counts the objects.
    Count,
    Load,
    /// Checks whether everything is there, or reads it back (`verify`).
    Check,
}

/// Counts of what a job has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(default)]
pub struct PreloadCounters {
    /// Objects that were counted, and the wanted bytes of those whose length the list showed.
    pub objects: u64,
    pub bytes: u64,
    /// Objects that the load phase has finished.
    pub objects_loaded: u64,
    pub objects_failed: u64,
    /// Bytes that came from UFSs, for any reader, and bytes that were in the tier already. Counted
    /// for each replica.
    pub bytes_loaded: u64,
    pub bytes_held: u64,
    /// Objects that were listed, but deleted before their turn.
    pub objects_vanished: u64,
    /// Objects that the check phase has finished, and their bytes that are in the tier.
    pub objects_checked: u64,
    pub bytes_checked: u64,
    /// Objects that the check phase found missing, incomplete or wrong in the tier.
    pub objects_missing: u64,
    pub bytes_missing: u64,
    /// Objects whose bytes were compared with a checksum of the UFS.
    pub objects_compared: u64,
    /// Bytes that were given up in memory and on disk.
    pub bytes_evicted: u64,
    /// Repeated questions, because a worker or a UFS was busy or away.
    pub retries: u64,
}

/// Reason why an object was not loaded, or is not there.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PreloadFailure {
    pub path: String,
    pub reason: String,
}

/// Summary of a job's failures.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(default)]
pub struct PreloadFailureSummary {
    pub count: u64,
    /// File with all of them, one JSON object a line, on the host that ran the job.
    pub file: Option<String>,
    /// Failures that did not fit into the file.
    pub left_out: u64,
    /// The first few failures.
    pub first: Vec<PreloadFailure>,
}

/// Answer to `GET /v1/preload?limit=N&after=NEXT`: a page of jobs, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct JobsPage {
    pub jobs: Vec<JobView>,
    /// Token of the next page; `None`: this is the last one.
    #[serde(default)]
    pub next: Option<String>,
}

/// Answer to `GET /v1/preload/ID`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct JobView {
    #[schemars(regex(pattern = JOB_ID))]
    pub id: String,
    /// Name of the identity that began the job with its access key. None: an operator's.
    pub owner: Option<String>,
    pub state: JobState,
    pub phase: PreloadPhase,
    /// Reason why the job is not done. Of a job that runs: why it does not get on, and tries again.
    pub reason: Option<String>,
    pub counters: PreloadCounters,
    pub failures: PreloadFailureSummary,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    pub ended_ms: Option<u64>,
    /// How often the job was resumed after its coordinator ended.
    pub resumed: u32,
    /// How often its list was repeated because workers restarted or the map changed.
    pub rounds: u32,
    /// Grows with every change of this view, within one life of its coordinator.
    pub news: u64,
    pub spec: PreloadJobSpec,
}

/// Body of `POST /v1/evict`, `/v1/unpin` and `/v1/pin`: a job for these objects, as in
/// [`PreloadJobSpec`].
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreloadSelection {
    #[schemars(regex(pattern = JOB_ID))]
    pub id: Option<String>,
    #[schemars(inner(regex(pattern = OBJECT_PATH)))]
    pub paths: Vec<String>,
    #[schemars(inner(regex(pattern = PREFIX_PATH)))]
    pub prefixes: Vec<String>,
    #[schemars(regex(pattern = OBJECT_PATH))]
    pub manifest: Option<String>,
    /// For pins: seconds for which pages stay on disk, loaded if need be. Other actions have none.
    pub ttl: Option<u64>,
}

/// Body of `POST /v1/invalidate`: the cached state of these objects may be out of date.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InvalidationRequest {
    /// Objects: `s3://mount/key`.
    #[schemars(inner(regex(pattern = OBJECT_PATH)))]
    pub paths: Vec<String>,
    /// Prefixes of objects, deleted ones included.
    #[schemars(inner(regex(pattern = PREFIX_PATH)))]
    pub prefixes: Vec<String>,
}

/// Result of an invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct InvalidationSummary {
    /// Paths and prefixes that were named.
    pub invalidated: u64,
}

/// Result of a notification.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct NotificationSummary {
    /// Objects whose homes were notified.
    pub invalidated: u64,
    /// Events that change nothing that is cached.
    pub ignored: u64,
    /// Events of buckets without a mount.
    pub unknown: u64,
    /// Job that loads the created objects, if that was asked for.
    pub job: Option<String>,
}

/// Answer to `GET /v1/objects/BUCKET/KEY`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ObjectView {
    pub path: String,
    /// UFS and bucket.
    pub volume: String,
    /// Key in the UFS.
    pub key: String,
    /// Worker that answers for its attributes.
    pub home: Option<String>,
    pub slot: u16,
    pub etag: String,
    pub bytes: u64,
    pub version_id: Option<String>,
    pub blocks_total: u64,
    /// Blocks from the asked one on, 1024 at most.
    pub blocks: Vec<BlockView>,
    /// Workers that could not be asked what they have, and the reason.
    pub silent: Vec<String>,
}

/// Block of an object, as `GET /v1/objects/BUCKET/KEY` shows it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct BlockView {
    pub block: u32,
    pub bytes: u32,
    /// Workers that the map gives it, the owner first.
    pub owners: Vec<String>,
    /// Workers that have some of it.
    pub places: Vec<PlaceView>,
}

/// What one worker has of a block, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PlaceView {
    pub worker: String,
    pub memory_bytes: u32,
    pub disk_bytes: u32,
    /// The pinned part of the bytes on disk.
    pub pinned_bytes: u32,
    /// Uses of its hottest page since it came or was last passed over, 0 to 3.
    #[schemars(range(max = 3))]
    pub uses: u8,
    /// Seconds since one of its pages was used last, or came.
    pub idle_seconds: u32,
}
