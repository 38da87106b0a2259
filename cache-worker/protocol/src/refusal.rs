//! Owns refusals: a worker says that it does not do what it is asked, and what to do instead.

use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::Epoch;
use crate::object_open::UfsAnswer;

/// Refusal of a request, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct WorkerRefusal {
    pub kind: RefusalKind,
    /// Text for the asking side's log.
    pub reason: String,
}

/// Kind of a refusal, which tells the asker what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// A write of this key is in flight, or its outcome is unknown: ask the UFS, cache nothing.
    Uncertain,
    /// No memory, or too many fills: ask another worker or the UFS.
    Busy,
    /// The object can't be cached (no strong ETag, encrypted with a client's key): ask the UFS.
    Uncacheable,
    /// The UFS no longer has this version: ask for attributes anew.
    VersionGone,
    /// The UFS answered with an error.
    Ufs(UfsAnswer),
    /// The UFS could not be reached, or its answer broke off.
    UfsUnreachable,
    /// This worker's configuration has no such volume.
    UnknownVolume,
    /// The asker and the worker have different block or page sizes.
    GeometryMismatch(BlockGeometry),
    /// The message makes no sense.
    Malformed,
    /// A node of the asker's role does not ask this.
    Denied,
    /// The asker and the worker have different placement maps, and perhaps different homes for this
    /// key. Holds the worker's own epoch.
    WrongEpoch(Epoch),
    /// The home has been cut off from the coordinators for too long to take part in writes.
    NoLease,
    /// Answers a read from a replica: neither this worker nor the owner holds the bytes. Ask the
    /// owner, which fills them.
    NotHeld,
}
