//! Asks a home in one message for the attributes of many objects: what it may say from memory.

use serde::{Deserialize, Serialize};

use crate::geometry::BlockGeometry;
use crate::ids::{Epoch, ObjectVolume};
use crate::object_open::OpenAnswer;

/// Most objects in one [`HeadListMessage`]. The answers to as many usual ones fit one message.
pub const LISTED_HEADS_MAX: usize = 128;

/// Asks about current versions of one home's objects. The answer is [`HeadListReply`]. Does not ask
/// the UFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadListMessage {
    pub volume: ObjectVolume,
    pub epoch: Epoch,
    pub geometry: BlockGeometry,
    /// See [`crate::OpenMessage`].
    pub attributes_age_ms_max: u64,
    /// See [`crate::OpenMessage`].
    pub absence_age_ms_max: u64,
    /// Up to [`LISTED_HEADS_MAX`].
    pub keys: Vec<String>,
}

/// Reply to `HeadListMessage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadListReply {
    /// Answers in the order of the keys: those that an open would get. `None`: open the object, the
    /// home has to ask the UFS, or the message has no room left.
    pub heads: Vec<Option<OpenAnswer>>,
}
