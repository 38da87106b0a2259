//! A writer's word to a home, where it goes by way of the coordinators: an announcement or a
//! report, and nothing else.
//!
//! Who carries it decides nothing. The home judges it when it hears it, as if it had come by
//! itself.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, ObjectVolume, WriteId};
use crate::messages::{AnnounceMessage, ReportMessage, WorkerRefusal, WorkerRequest};

/// What stands beside the keys of a word, in bytes: for bounds on what waits.
const BESIDE_KEYS_BYTES: usize = 128;

/// What is carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteNotice {
    Announce(AnnounceMessage),
    Report(ReportMessage),
}

impl WriteNotice {
    /// Of the map by which the worker is the home of the keys.
    pub fn map_epoch(&self) -> Epoch {
        match self {
            Self::Announce(announce) => announce.epoch,
            Self::Report(report) => report.epoch,
        }
    }

    /// The keys of the write whose home is told. They lie in the volume of the notice.
    pub fn notice_keys(&self) -> &[String] {
        match self {
            Self::Announce(announce) => &announce.keys,
            Self::Report(report) => &report.keys,
        }
    }

    /// The write that is announced or reported. A notice that comes twice is known by it.
    pub fn write(&self) -> WriteId {
        match self {
            Self::Announce(announce) => announce.write,
            Self::Report(report) => report.write,
        }
    }

    /// Memory that it takes while it waits, about.
    pub fn memory_bytes(&self) -> usize {
        let volume: &ObjectVolume = match self {
            Self::Announce(announce) => &announce.volume,
            Self::Report(report) => &report.volume,
        };
        let keys: usize =
            self.notice_keys().iter().map(|key| key.len() + size_of::<String>()).sum();
        keys + volume.0.len() + BESIDE_KEYS_BYTES
    }

    /// The same as it goes to the home directly.
    pub fn to_request(&self) -> WorkerRequest {
        match self.clone() {
            Self::Announce(announce) => WorkerRequest::Announce(announce),
            Self::Report(report) => WorkerRequest::Report(report),
        }
    }
}

/// What the home has said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeAnswer {
    /// Noted, under the word's epoch and with a lease.
    Done,
    /// Noted, by a home whose lease is over: as [`Reply::Unleased`](crate::Reply::Unleased).
    Unleased,
    Refused(WorkerRefusal),
}

/// What came of carrying a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeRelayOutcome {
    /// The home has heard it.
    Heard(NoticeAnswer),
    /// The home did not ask for news in time, or its answer was lost: it may have heard it or not.
    /// If it stays silent, its lease ends, and the next map is without it.
    Silent,
    /// The coordinators give it no lease, or reach another process of this name: the next map says
    /// who is the home.
    NoLease,
    /// Another map is in force than the one that the word goes by.
    OtherEpoch(Epoch),
    /// As many words wait as may.
    Full,
}
