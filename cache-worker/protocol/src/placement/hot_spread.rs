//! Chooses the workers of a hot block: its slot's, and as many more as it needs. Every process
//! computes the same ones, so nobody has to announce them.
//!
//! Owns neither load nor count: the coordinator decides how many workers a block has.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::PlacementMap;
use crate::ids::BlockHash;

impl PlacementMap {
    /// Returns a block's `workers` as indexes into [`PlacementMap::map_members`], the owner first.
    /// The ranked workers of its slot come first. Then come those with the lowest random number
    /// divided by weight: a number for each block, because the blocks of a group share their slot
    /// and are often hot together. There are at most as many as members that own slots, and at
    /// least one if there is a map.
    ///
    /// Costs a hash for each member if the map ranks fewer workers. That happens for a few hundred
    /// blocks whenever list or map change.
    pub fn spread_workers(&self, block: BlockHash, workers: usize) -> Vec<u16> {
        if self.members.is_empty() {
            return Vec::new();
        }
        let ranked = self.slot_owners(block.hash_slot());
        let workers = workers.max(1);
        let mut found: Vec<u16> = ranked.iter().take(workers).copied().collect();
        if found.len() == workers {
            return found;
        }
        let others = (0..)
            .zip(&self.members)
            .filter(|(at, member)| !member.draining && !ranked.contains(at));
        let mut costs: Vec<(f64, u16)> = others
            .map(|(at, member)| {
                let mut hasher =
                    SipHasher13::new_with_keys(0x7665_7262_7333_0004, 0x686f_7462_6c6f_636b);
                hasher.write_u64(block.0);
                hasher.write(member.id.0.as_bytes());
                // Division rounds in the same way everywhere.
                ((hasher.finish() >> 11) as f64 / member.weight, at)
            })
            .collect();
        // Equal costs keep the order of members, which is that of their ids.
        let by_cost = |a: &(f64, u16), b: &(f64, u16)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let wanted = workers - found.len();
        // Each block wants a few of thousands, so the others need no order.
        if wanted < costs.len() {
            costs.select_nth_unstable_by(wanted, by_cost);
            costs.truncate(wanted);
        }
        costs.sort_unstable_by(by_cost);
        found.extend(costs.into_iter().map(|(_, at)| at));
        found
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;

    use super::*;
    use crate::ids::{Epoch, HashSlot, WorkerId};
    use crate::placement::PlacementMember;

    fn map(count: usize, ranks: usize, without: Option<usize>) -> PlacementMap {
        let members = (0..count).filter(|n| Some(*n) != without);
        let members = members.map(|n| {
            PlacementMember::new(WorkerId(format!("w{n:03}")), if n == 0 { 3.0 } else { 1.0 })
        });
        PlacementMap::new(Epoch(1), members.collect(), ranks).unwrap()
    }

    /// A block of the slot.
    fn block_of(slot: u16) -> BlockHash {
        BlockHash(u64::from(slot) << 48 | 7)
    }

    fn ids(map: &PlacementMap, slot: u16, workers: usize) -> Vec<String> {
        map.spread_workers(block_of(slot), workers)
            .iter()
            .map(|&at| map.map_members()[usize::from(at)].id.0.clone())
            .collect()
    }

    #[test]
    fn the_slots_own_workers_come_first_and_nobody_twice() {
        let map = map(20, 2, None);
        for slot in (0..=u16::MAX).step_by(97) {
            let owners = map.slot_owners(HashSlot(slot));
            assert_eq!(map.spread_workers(block_of(slot), 1), owners[..1]);
            assert_eq!(map.spread_workers(block_of(slot), 2), owners);
            let six = map.spread_workers(block_of(slot), 6);
            assert_eq!((&six[..2], six.iter().collect::<HashSet<_>>().len()), (owners, 6));
            assert_eq!(
                map.spread_workers(block_of(slot), 5),
                six[..5],
                "more workers change none of the fewer"
            );
            assert_eq!(map.spread_workers(block_of(slot), 20)[..6], six);
        }
    }

    #[test]
    fn the_blocks_of_one_slot_spread_over_different_workers() {
        let map = map(20, 1, None);
        let first = block_of(9).0;
        let spread = (first..first + 16).map(|block| map.spread_workers(BlockHash(block), 3));
        let spread: Vec<_> = spread.collect();
        assert!(spread.iter().all(|workers| workers[0] == spread[0][0]), "one owner");
        let others: HashSet<u16> =
            spread.iter().flat_map(|workers| workers[1..].to_vec()).collect();
        assert!(others.len() > 8, "{others:?}");
    }

    #[test]
    fn there_are_no_more_than_own_slots_and_none_without_a_map() {
        assert_eq!(map(3, 1, None).spread_workers(block_of(9), 100).len(), 3);
        assert_eq!(map(3, 1, None).spread_workers(block_of(9), 0).len(), 1);
        assert_eq!(PlacementMap::without_members().spread_workers(block_of(9), 3), [0u16; 0]);
        let mut members: Vec<PlacementMember> = map(4, 1, None).map_members().to_vec();
        members[2].draining = true;
        let map = PlacementMap::new(Epoch(1), members, 1).unwrap();
        assert!(
            (0..500).all(|slot| !map.spread_workers(block_of(slot), 4).contains(&2)),
            "a worker that drains"
        );
    }

    #[test]
    fn weights_count_and_a_lost_worker_takes_only_its_own_places() {
        let (all, without) = (map(20, 1, None), map(20, 1, Some(7)));
        let (mut heavy, mut kept, mut had) = (0u32, 0u32, 0u32);
        let slots = || (0..=u16::MAX).step_by(31);
        for slot in slots() {
            let (before, after) = (ids(&all, slot, 4), ids(&without, slot, 4));
            heavy += u32::from(before[1..].contains(&"w000".to_owned()));
            if before.contains(&"w007".to_owned()) {
                continue;
            }
            had += 1;
            kept += u32::from(before == after);
        }
        // Three of 22 parts, three times: somewhat more than a third; with equal weights it would
        // be 3 of 20.
        let share = f64::from(heavy) / slots().count() as f64;
        assert!((0.25..0.45).contains(&share), "{share}");
        assert!(f64::from(kept) > 0.9 * f64::from(had), "{kept} of {had}");
    }
}
