//! Write notices: announcements and reports, and what homes answer. They reach a home directly, or
//! by way of the coordinators.
//!
//! The carrier decides nothing. The home judges a notice as if it had come directly.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, KeyGeneration, ObjectVolume, WriteId};
use crate::refusal::WorkerRefusal;
use crate::tenant_tag::TenantTag;

/// Bytes of a notice and its tenant's tag beside its keys, for bounds on waiting notices.
const BESIDE_KEYS_BYTES: usize = 200;

/// Announces that a write is about to become visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnounceMessage {
    pub volume: ObjectVolume,
    /// Keys of this home; a batch delete names many.
    pub keys: Vec<String>,
    pub write: WriteId,
    pub epoch: Epoch,
    /// How long reads of these keys ask the UFS if no report follows. Another announcement renews
    /// it.
    pub uncertain_ms: u64,
}

/// Reports that a write is over, with any outcome. Invalidates; never installs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportMessage {
    pub volume: ObjectVolume,
    pub keys: Vec<String>,
    pub write: WriteId,
    pub epoch: Epoch,
    pub outcome: WriteOutcome,
}

/// Outcome of a write as far as the gateway knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOutcome {
    /// The UFS has acknowledged the write.
    Done,
    /// The UFS has refused it, or it was never sent: nothing changed.
    Refused,
    /// It was sent and no answer came: the key stays uncertain until its time is over.
    Unknown,
}

/// Notice of a write: an announcement or a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteNotice {
    Announce(AnnounceMessage),
    Report(ReportMessage),
}

/// Notice of a write, and whose write it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantNotice {
    pub word: WriteNotice,
    /// The tenant whose client writes. The home counts the write for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantTag>,
}

impl From<WriteNotice> for TenantNotice {
    /// Makes a notice of nobody's write.
    fn from(word: WriteNotice) -> Self {
        Self { word, tenant: None }
    }
}

impl WriteNotice {
    /// Returns the epoch of the map by which the worker is the keys' home.
    pub fn map_epoch(&self) -> Epoch {
        match self {
            Self::Announce(announce) => announce.epoch,
            Self::Report(report) => report.epoch,
        }
    }

    /// Returns the keys of the write that belong to this home. They lie in the volume of the
    /// notice.
    pub fn notice_keys(&self) -> &[String] {
        match self {
            Self::Announce(announce) => &announce.keys,
            Self::Report(report) => &report.keys,
        }
    }

    /// Returns the id of the announced or reported write, which identifies repeated notices.
    pub fn write(&self) -> WriteId {
        match self {
            Self::Announce(announce) => announce.write,
            Self::Report(report) => report.write,
        }
    }

    /// Returns about how much memory the notice takes while it waits.
    pub fn memory_bytes(&self) -> usize {
        let volume: &ObjectVolume = match self {
            Self::Announce(announce) => &announce.volume,
            Self::Report(report) => &report.volume,
        };
        let keys: usize =
            self.notice_keys().iter().map(|key| key.len() + size_of::<String>()).sum();
        keys + volume.0.len() + BESIDE_KEYS_BYTES
    }
}

/// Whether a home held its worker lease when it noted a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteLeaseState {
    Leased,
    /// The lease is over. The acknowledgement counts only if every member of the map stands by the
    /// same map.
    Unleased,
}

/// Acknowledgement of a change by a home. No gateway reads on from what the change invalidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeAcknowledgement {
    /// Newest generation of the keys.
    pub generation: KeyGeneration,
    pub hold: WriteLeaseState,
}

/// Answer of a home to a notice that the coordinators carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeAnswer {
    /// Noted, under the notice's epoch and with a lease.
    Done,
    /// Noted by a home whose lease is over: see [`WriteLeaseState::Unleased`].
    Unleased,
    Refused(WorkerRefusal),
}

/// Outcome of relaying a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeRelayOutcome {
    /// The home has heard it.
    Heard(NoticeAnswer),
    /// The home did not ask for news in time, or its answer was lost: it may have heard the notice
    /// or not. If it stays silent, its lease ends, and the next map is without it.
    Silent,
    /// The coordinators give the home no lease, or reach another process of this name. The next map
    /// names the home.
    NoLease,
    /// Another map is in force than the notice's.
    OtherEpoch(Epoch),
    /// As many notices wait as may.
    Full,
}
