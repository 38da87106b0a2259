//! What is persisted of a job: its description, written once, and how far it has come.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use verbs3_protocol::{Epoch, WorkerId};

use crate::api::{JobState, PreloadCounters, PreloadFailureSummary, PreloadJobSpec, PreloadPhase};

/// Under `ID/spec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreloadJobRecord {
    pub(crate) id: String,
    pub(crate) spec: PreloadJobSpec,
    pub(crate) created_ms: u64,
}

/// The next page of the list. The first one by default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PreloadListCursor {
    /// Which of the plan's sources.
    pub(crate) source: usize,
    /// Of a prefix: the last key of the page before.
    pub(crate) after: Option<String>,
    /// Of paths, how many were there before; of a manifest, bytes.
    pub(crate) offset: u64,
    /// Of the manifest: its version when it was read first, and its length. Every phase goes
    /// through the same list.
    pub(crate) etag: Option<String>,
    pub(crate) bytes: u64,
}

impl PreloadListCursor {
    /// Where the next source begins.
    pub(crate) fn of_next_source(&self) -> Self {
        Self { source: self.source + 1, ..self.rewind_list() }
    }

    /// Where the list begins: the same manifest.
    pub(crate) fn rewind_list(&self) -> Self {
        Self { etag: self.etag.clone(), bytes: self.bytes, ..Self::default() }
    }
}

/// Who has answered in this round: a worker that was started anew has lost its memory, and another
/// map gives blocks to others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WorkerLifeTracker {
    /// What workers call their present lives.
    lives: BTreeMap<String, u64>,
    epoch: Option<u64>,
    /// There was more than one life of a worker, or more than one map.
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

/// Under `ID/progress`, after each page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PreloadProgress {
    pub(crate) state: JobState,
    pub(crate) phase: PreloadPhase,
    pub(crate) cursor: PreloadListCursor,
    pub(crate) counters: PreloadCounters,
    pub(crate) failures: PreloadFailureSummary,
    /// Of the file of failures: what lies beyond belongs to a page that is gone through again.
    pub(crate) failures_bytes: u64,
    pub(crate) reason: Option<String>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) resumed: u32,
    /// How often the list was gone through again because what had been loaded may be gone.
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
