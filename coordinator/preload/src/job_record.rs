//! Defines what is persisted of a job: its description, written once, and its progress.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use verbs3_protocol::{Epoch, WorkerId};

use crate::api::{
    JobState, JudgedMount, PreloadCounters, PreloadFailureSummary, PreloadJobSpec, PreloadPhase,
};

/// Who began a job with an access key of their own: the identity's name at the gateways. They see
/// and end their own jobs alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobOwner(pub String);

/// Entry `ID/spec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreloadJobRecord {
    pub(crate) id: String,
    /// `None`: an operator's.
    pub(crate) owner: Option<JobOwner>,
    /// Tenant of the owner, if its gateway knows it.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// What the owner's gateway judged. Kept, so that a coordinator with other mounts, or this one
    /// after a change of them, does not resume what nobody judged.
    #[serde(default)]
    pub(crate) judged_mounts: Vec<JudgedMount>,
    pub(crate) spec: PreloadJobSpec,
    pub(crate) created_ms: u64,
}

/// Position of the next page of the list; by default the first page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PreloadListCursor {
    /// Index among the plan's sources.
    pub(crate) source: usize,
    /// For a prefix: the last key of the previous page.
    pub(crate) after: Option<String>,
    /// For paths, how many came before; for a manifest, bytes.
    pub(crate) offset: u64,
    /// For a manifest: its version at the first read, and its length. Every phase uses the same
    /// list.
    pub(crate) etag: Option<String>,
    pub(crate) bytes: u64,
}

impl PreloadListCursor {
    /// Returns the cursor at the start of the next source.
    pub(crate) fn of_next_source(&self) -> Self {
        Self { source: self.source + 1, ..self.rewind_list() }
    }

    /// Returns the cursor at the list's start, with the same manifest.
    pub(crate) fn rewind_list(&self) -> Self {
        Self { etag: self.etag.clone(), bytes: self.bytes, ..Self::default() }
    }
}

/// Tracks which workers answered in this round. A restarted worker has lost its memory, and another
/// map gives blocks to other workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WorkerLifeTracker {
    /// Present lives of the workers, by worker.
    lives: BTreeMap<String, u64>,
    epoch: Option<u64>,
    /// A worker had more than one life, or there was more than one map.
    pub(crate) is_unsettled: bool,
}

impl WorkerLifeTracker {
    pub(crate) fn record_answer(&mut self, worker: &WorkerId, life: u64, epoch: Epoch) {
        let before = match self.lives.get_mut(&worker.0) {
            Some(known) => Some(std::mem::replace(known, life)),
            None => self.lives.insert(worker.0.clone(), life),
        };
        let epoch_before = self.epoch.replace(epoch.0);
        let is_other = before.is_some_and(|before| before != life);
        self.is_unsettled |= is_other || epoch_before.is_some_and(|before| before != epoch.0);
    }
}

/// Entry `ID/progress`, written after each page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PreloadProgress {
    pub(crate) state: JobState,
    pub(crate) phase: PreloadPhase,
    pub(crate) cursor: PreloadListCursor,
    pub(crate) counters: PreloadCounters,
    pub(crate) failures: PreloadFailureSummary,
    /// Persisted length of the failure file. Bytes beyond it belong to a page that will be
    /// repeated.
    pub(crate) failures_bytes: u64,
    pub(crate) reason: Option<String>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) resumed: u32,
    /// How often the list was repeated because loaded pages may be gone.
    pub(crate) rounds: u32,
    pub(crate) heard: WorkerLifeTracker,
}

impl Default for PreloadProgress {
    fn default() -> Self {
        Self {
            state: JobState::Queued,
            phase: PreloadPhase::Count,
            cursor: PreloadListCursor::default(),
            counters: PreloadCounters::default(),
            failures: PreloadFailureSummary::default(),
            failures_bytes: 0,
            reason: None,
            ended_ms: None,
            resumed: 0,
            rounds: 0,
            heard: WorkerLifeTracker::default(),
        }
    }
}

pub(crate) fn spec_key(id: &str) -> String {
    format!("{id}/spec")
}

pub(crate) fn progress_key(id: &str) -> String {
    format!("{id}/progress")
}
