//! Write notices: announcements and reports that reach a home by way of the coordinators.
//!
//! The carrier decides nothing. The home judges a notice as if it had come directly.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, ObjectVolume, WriteId};
use crate::messages::{AnnounceMessage, ReportMessage, WorkerRefusal, WorkerRequest};

/// Bytes of a notice beside its keys, for bounds on waiting notices.
const BESIDE_KEYS_BYTES: usize = 128;

/// Notice of a write: an announcement or a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteNotice {
    Announce(AnnounceMessage),
    Report(ReportMessage),
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

    /// Returns the request that a direct delivery would send.
    pub fn to_request(&self) -> WorkerRequest {
        match self.clone() {
            Self::Announce(announce) => WorkerRequest::Announce(announce),
            Self::Report(report) => WorkerRequest::Report(report),
        }
    }
}

/// Answer of the home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeAnswer {
    /// Noted, under the notice's epoch and with a lease.
    Done,
    /// Noted by a home whose lease is over: see
    /// [`WorkerReply::Unleased`](crate::WorkerReply::Unleased).
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
