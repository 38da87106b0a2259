//! The placement map: slot → ordered workers. One pure function for static and coordinated clusters.
//!
//! Weighted rendezvous hashing: each slot ranks the members by `-weight / ln(uniform(slot, member))`. A member that joins or
//! leaves moves only the slots that it wins or held.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::ids::{Epoch, Slot, WorkerId};

/// Hash buckets of a cluster, whatever its size.
pub const SLOTS: usize = 1 << 16;

/// A worker as the map sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub id: WorkerId,
    /// Relative capacity, > 0.
    pub weight: f64,
}

/// Why no map can be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlacementError {
    #[error("a placement map needs at least one worker")]
    NoWorkers,
    #[error("worker {0} is listed twice; worker ids are unique in a cluster")]
    Duplicate(WorkerId),
    #[error("worker {id} has weight {weight}; a weight is a finite number above 0")]
    Weight { id: WorkerId, weight: f64 },
    #[error("{0} workers are more than the {max} a map can hold", max = u16::MAX)]
    TooMany(usize),
}

/// Slot → ordered workers, the first being the owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    epoch: Epoch,
    members: Vec<Member>,
    /// `SLOTS × ranks` indexes into `members`.
    table: Vec<u16>,
    ranks: usize,
}

impl Placement {
    /// Ranks `members` for every slot, keeping the first `ranks` (at least 1, at most as many as there are members).
    pub fn new(epoch: Epoch, mut members: Vec<Member>, ranks: usize) -> Result<Self, PlacementError> {
        if members.is_empty() {
            return Err(PlacementError::NoWorkers);
        }
        if members.len() > usize::from(u16::MAX) {
            return Err(PlacementError::TooMany(members.len()));
        }
        // By id, so that the order of a configuration file does not matter.
        members.sort_by(|a, b| a.id.cmp(&b.id));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(PlacementError::Duplicate(pair[0].id.clone()));
        }
        if let Some(member) = members.iter().find(|m| !m.weight.is_finite() || m.weight <= 0.0) {
            return Err(PlacementError::Weight { id: member.id.clone(), weight: member.weight });
        }
        let ranks = ranks.clamp(1, members.len());
        let mut table = Vec::with_capacity(SLOTS * ranks);
        let mut ranking: Vec<(f64, u16)> = Vec::with_capacity(members.len());
        for slot in 0..SLOTS {
            ranking.clear();
            ranking
                .extend(members.iter().enumerate().map(|(index, member)| (score(slot as u16, member), index as u16)));
            let better_first = |a: &(f64, u16), b: &(f64, u16)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
            if ranks < ranking.len() {
                ranking.select_nth_unstable_by(ranks - 1, better_first);
            }
            ranking[..ranks].sort_by(better_first);
            table.extend(ranking[..ranks].iter().map(|&(_, index)| index));
        }
        Ok(Self { epoch, members, table, ranks })
    }

    /// The epoch of a map that is configured and not coordinated: the same for the same members, weights and ranks, in whatever
    /// order they are listed. Gateways and workers each compute it from their own configuration; where it differs, they
    /// do not agree on who is an object's home. Never 0.
    pub fn static_epoch(members: &[Member], ranks: usize) -> Epoch {
        let mut sorted: Vec<&Member> = members.iter().collect();
        sorted.sort_by(|a, b| a.id.cmp(&b.id));
        let mut hasher = SipHasher13::new_with_keys(0x7665_7262_7333_0003, 0x6570_6f63_6873_7461);
        hasher.write_u64(ranks.clamp(1, members.len().max(1)) as u64);
        for member in sorted {
            hasher.write_u64(member.id.0.len() as u64);
            hasher.write(member.id.0.as_bytes());
            hasher.write_u64(member.weight.to_bits());
        }
        Epoch(hasher.finish().max(1))
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Sorted by id.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Indexes into [`Placement::members`], the owner first.
    pub fn owners(&self, slot: Slot) -> &[u16] {
        let start = usize::from(slot.0) * self.ranks;
        &self.table[start..start + self.ranks]
    }

    /// The owner of a slot.
    pub fn owner(&self, slot: Slot) -> &Member {
        &self.members[usize::from(self.owners(slot)[0])]
    }
}

/// Rendezvous score: the logarithm method of weighted rendezvous hashing (Schindelhauer & Schomaker 2005).
fn score(slot: u16, member: &Member) -> f64 {
    let mut hasher = SipHasher13::new_with_keys(0x7665_7262_7333_0002, 0x736c_6f74_7261_6e6b);
    hasher.write_u16(slot);
    hasher.write(member.id.0.as_bytes());
    // 53 random bits in (0, 1): never 0, whose logarithm is infinite.
    let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -member.weight / uniform.ln()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn members(weights: &[f64]) -> Vec<Member> {
        weights.iter().enumerate().map(|(i, &weight)| Member { id: WorkerId(format!("w{i}")), weight }).collect()
    }

    fn map(weights: &[f64]) -> Placement {
        Placement::new(Epoch(1), members(weights), 2).unwrap()
    }

    fn owned(map: &Placement, id: &str) -> usize {
        (0..SLOTS).filter(|&slot| map.owner(Slot(slot as u16)).id.0 == id).count()
    }

    #[test]
    fn shares_follow_weights() {
        let map = map(&[1.0, 1.0, 2.0]);
        for (id, share) in [("w0", 0.25), ("w1", 0.25), ("w2", 0.5)] {
            let got = owned(&map, id) as f64 / SLOTS as f64;
            assert!((got - share).abs() < 0.01, "{id} owns {got}, wants {share}");
        }
    }

    #[test]
    fn a_joining_worker_moves_only_what_it_wins() {
        let (before, after) = (map(&[1.0; 4]), map(&[1.0; 5]));
        for slot in (0..SLOTS).map(|slot| Slot(slot as u16)) {
            let now = &after.owner(slot).id;
            assert!(now == &before.owner(slot).id || now.0 == "w4");
        }
    }

    #[test]
    fn a_static_epoch_is_that_of_its_members_weights_and_ranks() {
        let epoch = |members: &[Member], ranks| Placement::static_epoch(members, ranks);
        let three = members(&[1.0, 3.0, 2.0]);
        let mut reversed = three.clone();
        reversed.reverse();
        assert_eq!(epoch(&three, 2), epoch(&reversed, 2));
        assert_eq!(epoch(&three, 3), epoch(&three, 9), "more ranks than members are as many as members");
        let mut renamed = three.clone();
        renamed[0].id = WorkerId("w9".into());
        let others = [
            epoch(&three, 1),
            epoch(&three[..2], 2),
            epoch(&renamed, 2),
            epoch(&members(&[1.0, 3.0, 2.5]), 2),
            epoch(&members(&[3.0, 1.0, 2.0]), 2),
        ];
        for other in others {
            assert_ne!(other, epoch(&three, 2));
        }
        // Pinned: releases that disagree here would refuse each other.
        assert_eq!(epoch(&three, 2), Epoch(18_032_914_865_159_462_264));
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let mut reversed = members(&[1.0, 3.0, 2.0]);
        reversed.reverse();
        assert_eq!(Placement::new(Epoch(1), reversed, 2).unwrap(), map(&[1.0, 3.0, 2.0]));
    }

    #[test]
    fn replicas_are_different_workers() {
        let map = map(&[1.0; 3]);
        assert!((0..SLOTS).all(|slot| {
            let owners = map.owners(Slot(slot as u16));
            owners.len() == 2 && owners[0] != owners[1]
        }));
    }

    #[test]
    fn bad_lists_are_refused() {
        assert_eq!(Placement::new(Epoch(1), vec![], 1), Err(PlacementError::NoWorkers));
        let twice = vec![members(&[1.0])[0].clone(), members(&[1.0])[0].clone()];
        assert!(matches!(Placement::new(Epoch(1), twice, 1), Err(PlacementError::Duplicate(_))));
        assert!(matches!(Placement::new(Epoch(1), members(&[0.0]), 1), Err(PlacementError::Weight { .. })));
    }
}
