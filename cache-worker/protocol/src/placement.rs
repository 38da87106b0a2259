//! The placement map: slot → ordered workers. One pure function for static and coordinated
//! clusters.
//!
//! Uses weighted rendezvous hashing with bounded loads. Each slot ranks the workers by a random
//! cost, divided by their weight. It takes the cheapest worker that has room for another slot.
//! Without this bound, one of a thousand equal workers would own 1.4 times the mean. A worker that
//! joins or leaves moves its own share, and the little that the bound then shifts.
//!
//! Every process computes the map by itself from the list of members ([`crate::MemberRoster`]). The
//! computation uses no float function of a platform's library, so all get the same result.

mod hot_spread;
mod slot_ranking;

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::ids::{Epoch, HashSlot, WorkerId};

/// Hash buckets of a cluster, whatever its size.
pub const SLOTS: usize = 1 << 16;

/// Version of the rules that rank slots. Raise it with every change of the map's computation.
/// Releases that disagree would send one key to two homes. So they refuse each other's maps and
/// stores, and static epochs differ.
pub const RANKING: u16 = 2;

/// Least length of a first block that is spread over replicas, in bytes. A shorter one comes in one
/// answer with its object's attributes, which only the home gives. A second question would cost
/// more than the bytes.
pub const SPREAD_BYTES_MIN: u32 = 256 << 10;

/// Worker in the placement map.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementMember {
    pub id: WorkerId,
    /// Relative capacity, > 0.
    pub weight: f64,
    /// What fails together, such as a rack; empty: unknown. The owners of a slot are in different
    /// zones if there are any.
    pub zone: String,
    /// Owns no more slots, but is still a member: it may be asked for what it owned.
    pub draining: bool,
}

impl PlacementMember {
    /// Creates a member without a zone.
    pub fn new(id: WorkerId, weight: f64) -> Self {
        Self { id, weight, zone: String::new(), draining: false }
    }
}

/// Reason why no map can be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlacementError {
    #[error("a placement map needs at least one worker that is not draining")]
    NoWorkers,
    #[error("worker {0} is listed twice; worker ids are unique in a cluster")]
    Duplicate(WorkerId),
    #[error("worker {id} has weight {weight}; a weight is a finite number above 0")]
    Weight { id: WorkerId, weight: f64 },
    #[error("{0} workers are more than the {max} a map can hold", max = u16::MAX)]
    TooMany(usize),
    #[error(
        "the map is ranked by rules {found} and this release ranks by {RANKING}: all processes of a cluster must agree; \
         stop them all, and start them in one release"
    )]
    Ranking { found: u16 },
}

/// Maps each slot to its ordered workers, of which the first is the owner.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementMap {
    epoch: Epoch,
    members: Vec<PlacementMember>,
    /// `SLOTS × ranks` indexes into `map_members`.
    table: Vec<u16>,
    ranks: usize,
}

impl PlacementMap {
    /// Ranks the members for every slot and keeps the first `ranks`. `ranks` is at least 1, and at
    /// most the number of members that own slots. Takes 0.2 to 0.3 s for a thousand members.
    pub fn new(
        epoch: Epoch,
        mut members: Vec<PlacementMember>,
        ranks: usize,
    ) -> Result<Self, PlacementError> {
        if members.len() > usize::from(u16::MAX) {
            return Err(PlacementError::TooMany(members.len()));
        }
        // Sorted by id, so that the order of a configuration file does not matter.
        members.sort_by(|a, b| a.id.cmp(&b.id));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(PlacementError::Duplicate(pair[0].id.clone()));
        }
        if let Some(member) = members.iter().find(|m| !m.weight.is_finite() || m.weight <= 0.0) {
            return Err(PlacementError::Weight { id: member.id.clone(), weight: member.weight });
        }
        let owning = members.iter().filter(|member| !member.draining).count();
        if owning == 0 {
            return Err(PlacementError::NoWorkers);
        }
        let ranks = ranks.clamp(1, owning);
        let table = slot_ranking::rank_slots(&members, ranks);
        Ok(Self { epoch, members, table, ranks })
    }

    /// Returns the epoch of a configured map without coordinators. It is the same for the same
    /// members, weights and ranks in any order. Gateways and workers each compute it from their own
    /// configuration. If it differs, they do not agree on objects' homes. Never 0.
    pub fn static_epoch(members: &[PlacementMember], ranks: usize) -> Epoch {
        let mut sorted: Vec<&PlacementMember> = members.iter().collect();
        sorted.sort_by(|a, b| a.id.cmp(&b.id));
        let mut hasher = SipHasher13::new_with_keys(0x7665_7262_7333_0003, 0x6570_6f63_6873_7462);
        hasher.write_u16(RANKING);
        hasher.write_u64(ranks.clamp(1, members.len().max(1)) as u64);
        for member in sorted {
            for text in [&member.id.0, &member.zone] {
                hasher.write_u64(text.len() as u64);
                hasher.write(text.as_bytes());
            }
            hasher.write_u64(member.weight.to_bits());
            hasher.write_u8(u8::from(member.draining));
        }
        Epoch(hasher.finish() | Epoch::STATIC_MIN.0)
    }

    /// Returns the map of a follower that knows none yet: epoch 0, without owners.
    pub fn without_members() -> Self {
        Self { epoch: Epoch(0), members: Vec::new(), table: Vec::new(), ranks: 0 }
    }

    /// Returns the epoch under which this map is in force. 0: nobody owns anything yet.
    pub fn map_epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the members, sorted by id.
    pub fn map_members(&self) -> &[PlacementMember] {
        &self.members
    }

    /// Returns a slot's workers as indexes into [`PlacementMap::map_members`], the owner first.
    pub fn slot_owners(&self, slot: HashSlot) -> &[u16] {
        let start = usize::from(slot.0) * self.ranks;
        &self.table[start..start + self.ranks]
    }

    /// Returns the owner of a slot.
    pub fn first_owner(&self, slot: HashSlot) -> &PlacementMember {
        &self.members[usize::from(self.slot_owners(slot)[0])]
    }

    /// Returns how many slots have another owner in `other`.
    pub fn count_moved_slots(&self, other: &Self) -> usize {
        let all = (0..SLOTS).map(|slot| HashSlot(slot as u16));
        all.filter(|&slot| self.first_owner(slot).id != other.first_owner(slot).id).count()
    }
}

#[cfg(test)]
mod tests;
