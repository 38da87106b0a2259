//! What the coordinators' store keeps of the cluster's membership.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use verbs3_protocol::{ClusterMember, Epoch, MemberRoster, WorkerId};

/// The persisted state of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterDocument {
    /// Number of won elections. A leader's first write raises it, which ends every write of the
    /// leader before.
    pub term: u64,
    /// Highest epoch that was ever used.
    pub highest: Epoch,
    /// The map in force.
    pub active: MemberRoster,
    /// The map before it.
    pub former: MemberRoster,
    /// Members of the map in force that have only a part of their share.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moving: BTreeMap<WorkerId, SlotShareMove>,
    /// Newest lost map that another one has yet to replace. A leader that ends before it has done so
    /// leaves that to the next one, to whom nobody may show the loss again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostMap>,
    /// Places where members of the map in force listen, as far as known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<WorkerId, u64>,
    /// Members of earlier maps that went without notice, so that a person learns of them. At most
    /// [`MISSING_MAX`].
    #[serde(default)]
    pub missing: Vec<ClusterMember>,
}

/// The newest map that was shown and that the store never had in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostMap {
    pub epoch: Epoch,
    /// Highest epoch of the document that the leader found who heard of it.
    pub found: Epoch,
    /// Highest epoch when that leader began. Those between the two were never given out.
    pub begun: Epoch,
}

/// Member of the map in force that has only a part of its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotShareMove {
    /// Above 0 and below the whole.
    pub steps: u8,
    /// The share shrinks to nothing.
    pub draining: bool,
}

/// Most missing workers that are remembered; nobody would read a longer list.
pub(super) const MISSING_MAX: usize = 200;

impl ClusterDocument {
    /// Creates the document of a new cluster. Its first epoch follows `epoch`, or the floor of the
    /// term that begins, where that is higher.
    pub fn new(epoch: Epoch, replicas: u16) -> Self {
        let none = MemberRoster::new(Epoch(0), replicas, Vec::new());
        Self {
            term: 0,
            highest: epoch,
            active: none.clone(),
            former: none,
            moving: BTreeMap::new(),
            lost: None,
            places: BTreeMap::new(),
            missing: Vec::new(),
        }
    }

    /// Begins a leader's term. No epoch up to `floor` is given out any more: the document may be an
    /// older copy than what processes have heard since.
    pub(crate) fn begin_term(self, floor: Epoch) -> Self {
        Self { term: self.term + 1, highest: self.highest.max(floor), ..self }
    }
}
