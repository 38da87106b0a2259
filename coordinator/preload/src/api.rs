//! What the API of preload jobs carries, as JSON.

use serde::{Deserialize, Serialize};

/// `POST /v1/preload`: what is to be loaded, and how. Answered with a [`JobView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreloadJobSpec {
    /// Names the job: 1 to 64 letters, digits, `.`, `_` and `-`. The same job sent again under its
    /// id is the same job. Default: a random one.
    pub id: Option<String>,
    pub action: PreloadJobAction,
    /// Objects: `s3://mount/key`.
    pub paths: Vec<String>,
    /// All objects whose names begin so: `s3://mount/prefix`.
    pub prefixes: Vec<String>,
    /// An object that lists objects, one `s3://mount/key` a line.
    pub manifest: Option<String>,
    /// Only these bytes of each object. Default: all.
    pub ranges: Vec<PreloadByteRange>,
    /// Owners of a block that load it, of those that the map gives it. Each reads the UFS itself.
    pub replicas: u16,
    pub tier: PreloadTier,
    /// Seconds from the job's creation for which pages are kept on disk. With `"tier": "disk"`
    /// only.
    pub pin_ttl: Option<u64>,
    /// Which of the waiting jobs begins first.
    pub priority: PreloadPriority,
    /// When the job ends, finished or not, as RFC 3339 has it: `2026-11-22T08:00:00Z`.
    pub deadline: Option<String>,
    /// Bytes that the job takes from UFSs, at most.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// Pages that are in the tier are not loaded again. `false` is refused: pages never change, so
    /// there is nothing to renew.
    pub skip_if_cached: bool,
    /// Reads everything back from the tier in the end, as a reader would: from memory what is
    /// there, whatever `tier` says. Compares it with the UFS's checksums where it has some.
    pub verify: bool,
    /// Loads attributes alone.
    pub metadata_only: bool,
    /// Lists and counts, and loads nothing.
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

/// What is done with each object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreloadJobAction {
    #[default]
    Load,
    /// Its pages are given up, pinned or not, at all owners of its blocks.
    Evict,
    /// Its pages on disk may be given up again.
    Unpin,
}

/// Bytes of an object, the last one included; without one, to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreloadByteRange {
    pub first: u64,
    #[serde(default)]
    pub last: Option<u64>,
}

/// Tier that a job loads pages into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreloadTier {
    Memory,
    Disk,
}

/// Order in which waiting jobs begin; within one priority the oldest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreloadPriority {
    Low,
    Normal,
    High,
}

/// Where a job stands. `Queued` and `Running` are the states of a job that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for its turn.
    Queued,
    Running,
    /// Everything that was asked for is in the tier, or was done.
    Done,
    /// The job has ended, and something is missing: `reason` says what.
    Incomplete,
    /// The job could not go on: `reason` says why.
    Failed,
    /// By `DELETE`.
    Stopped,
}

impl JobState {
    /// Whether the job has ended, however it ended.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// What a running job does. Each phase goes through the whole list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreloadPhase {
    /// Counts.
    Count,
    Load,
    /// Looks whether all is there, or reads it back (`verify`).
    Check,
}

/// What a job has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreloadCounters {
    /// Objects that were counted, and the wanted bytes of those whose length the list said.
    pub objects: u64,
    pub bytes: u64,
    /// Objects that were gone through in the load phase.
    pub objects_loaded: u64,
    pub objects_failed: u64,
    /// Bytes that came from UFSs, for whomever, and bytes that were in the tier already. For each
    /// replica.
    pub bytes_loaded: u64,
    pub bytes_held: u64,
    /// Objects that were listed, and had been deleted when their turn came.
    pub objects_vanished: u64,
    /// Objects that were gone through in the check phase, and their bytes that are in the tier.
    pub objects_checked: u64,
    pub bytes_checked: u64,
    /// Objects of which something is not in the tier, or not right, in the check phase.
    pub objects_missing: u64,
    pub bytes_missing: u64,
    /// Objects whose bytes were compared with a checksum of the UFS.
    pub objects_compared: u64,
    /// Bytes that were given up, in memory and on disk.
    pub bytes_evicted: u64,
    /// Questions that were put again, because a worker or a UFS was busy or away.
    pub retries: u64,
}

/// Why an object was not loaded, or is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreloadFailure {
    pub path: String,
    pub reason: String,
}

/// What failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreloadFailureSummary {
    pub count: u64,
    /// The file that has them all, a JSON object a line, on the host that ran the job.
    pub file: Option<String>,
    /// Those that the file has no room for.
    pub left_out: u64,
    /// The first few.
    pub first: Vec<PreloadFailure>,
}

/// `GET /v1/preload?limit=N&after=NEXT`: the newest jobs first, not all in one answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsPage {
    pub jobs: Vec<JobView>,
    /// Where the next page begins; `None`: this is the last one.
    #[serde(default)]
    pub next: Option<String>,
}

/// `GET /v1/preload/ID`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    pub id: String,
    pub state: JobState,
    pub phase: PreloadPhase,
    /// Why the job is not done.
    pub reason: Option<String>,
    pub counters: PreloadCounters,
    pub failures: PreloadFailureSummary,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    pub ended_ms: Option<u64>,
    /// How often the job was taken up again after its coordinator ended.
    pub resumed: u32,
    /// How often its list was gone through again, because workers were started anew or the map has
    /// changed.
    pub rounds: u32,
    /// Grows with every change of this view, within one life of its coordinator.
    pub news: u64,
    pub spec: PreloadJobSpec,
}

/// `POST /v1/evict`, `/v1/unpin` and `/v1/pin`: a job for these objects, as in [`PreloadJobSpec`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreloadSelection {
    pub id: Option<String>,
    pub paths: Vec<String>,
    pub prefixes: Vec<String>,
    pub manifest: Option<String>,
    /// Of pins: seconds for which pages are kept on disk, loaded if need be. Others have none.
    pub ttl: Option<u64>,
}

/// `POST /v1/invalidate`: what is known of these objects may be out of date.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InvalidationRequest {
    /// Objects: `s3://mount/key`.
    pub paths: Vec<String>,
    /// All objects whose names begin so, those that are there no more included.
    pub prefixes: Vec<String>,
}

/// What became of a notification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationSummary {
    /// Objects whose homes have been told.
    pub invalidated: u64,
    /// Events that change nothing that is cached.
    pub ignored: u64,
    /// Events of buckets that no mount has.
    pub unknown: u64,
    /// The job that loads what was created, where that was asked.
    pub job: Option<String>,
}

/// `GET /v1/objects/BUCKET/KEY`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectView {
    pub path: String,
    /// UFS and bucket.
    pub volume: String,
    /// As the UFS names it.
    pub key: String,
    /// The worker that answers for its attributes.
    pub home: Option<String>,
    pub slot: u16,
    pub etag: String,
    pub bytes: u64,
    pub version_id: Option<String>,
    pub blocks_total: u64,
    /// From the asked one on, 1024 at most.
    pub blocks: Vec<BlockView>,
    /// Workers that could not be asked what they have, and why.
    pub silent: Vec<String>,
}

/// One block of an object, as `GET /v1/objects/BUCKET/KEY` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockView {
    pub block: u32,
    pub bytes: u32,
    /// Workers that the map gives it, the first one first.
    pub owners: Vec<String>,
    /// Where something of it is.
    pub places: Vec<PlaceView>,
}

/// What one worker has of a block, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceView {
    pub worker: String,
    pub memory_bytes: u32,
    pub disk_bytes: u32,
    /// Of those on disk.
    pub pinned_bytes: u32,
    /// How hot its hottest page is: uses since it came or was last passed over, 0 to 3.
    pub uses: u8,
    /// Since one of its pages was used last, or came.
    pub idle_seconds: u32,
}
