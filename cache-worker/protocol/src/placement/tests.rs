#![allow(clippy::unwrap_used)]
use super::*;
use crate::{BlockIndex, ObjectKey, ObjectVolume};
use proptest::prelude::*;
use std::hint::black_box;
use verbs3_instruction_counter::count_instructions;

fn members(weights: &[f64]) -> Vec<PlacementMember> {
    weights
        .iter()
        .enumerate()
        .map(|(i, &weight)| PlacementMember::new(WorkerId(format!("w{i}")), weight))
        .collect()
}

fn map_of(members: Vec<PlacementMember>) -> PlacementMap {
    PlacementMap::new(Epoch(1), members, 2).unwrap()
}

fn map(weights: &[f64]) -> PlacementMap {
    map_of(members(weights))
}

fn slots() -> impl Iterator<Item = HashSlot> {
    (0..SLOTS).map(|slot| HashSlot(slot as u16))
}

fn owned(map: &PlacementMap, id: &str) -> usize {
    slots().filter(|&slot| map.first_owner(slot).id.0 == id).count()
}

/// The most that one owns, as a multiple of its share by weight.
fn imbalance(map: &PlacementMap) -> f64 {
    let mut owned = vec![0u32; map.map_members().len()];
    slots().for_each(|slot| owned[usize::from(map.slot_owners(slot)[0])] += 1);
    let weights: f64 = map.map_members().iter().map(|member| member.weight).sum();
    let ratios = owned
        .iter()
        .zip(map.map_members())
        .map(|(&owned, member)| f64::from(owned) / (member.weight / weights));
    ratios.fold(0.0, f64::max) / SLOTS as f64
}

#[test]
fn instruction_counts_of_a_place() {
    let map = map(&[1.0; 100]);
    let object =
        ObjectKey { volume: ObjectVolume::new("store", "bucket"), key: "set/shard-000123".into() };
    count_instructions("placement-of-a-block", || {
        let slot = black_box(&object).block_slot(BlockIndex(7));
        assert!(map.first_owner(slot).weight > 0.0);
    });
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
fn among_few_a_joining_worker_moves_only_what_it_wins() {
    let (before, after) = (map(&[1.0; 4]), map(&[1.0; 5]));
    for slot in slots() {
        let now = &after.first_owner(slot).id;
        assert!(now == &before.first_owner(slot).id || now.0 == "w4");
    }
}

#[test]
fn a_thousand_workers_are_balanced_and_one_more_moves_its_share() {
    let (before, after) = (map(&[1.0; 1000]), map(&[1.0; 1001]));
    for map in [&before, &after] {
        assert!(imbalance(map) <= 1.15, "{}", imbalance(map));
    }
    let moved = before.count_moved_slots(&after) as f64 / SLOTS as f64;
    assert!(moved <= 1.0 / 1001.0 + 0.02, "{moved} of the slots moved");
}

#[test]
fn owners_of_a_slot_stand_in_different_zones() {
    let mut members = members(&[1.0; 9]);
    for (index, member) in members.iter_mut().enumerate() {
        member.zone = format!("rack-{}", index % 3);
    }
    let map = PlacementMap::new(Epoch(1), members, 4).unwrap();
    for slot in slots() {
        let zone =
            |rank: usize| map.map_members()[usize::from(map.slot_owners(slot)[rank])].zone.as_str();
        assert!(
            zone(0) != zone(1) && zone(1) != zone(2) && zone(0) != zone(2),
            "three racks, three owners"
        );
        let distinct: std::collections::BTreeSet<_> = map.slot_owners(slot).iter().collect();
        assert_eq!(distinct.len(), 4, "the fourth is another worker at least");
    }
}

#[test]
fn a_draining_worker_owns_nothing_and_the_others_keep_theirs() {
    let before = map(&[1.0; 5]);
    let mut drained = members(&[1.0; 5]);
    drained[2].draining = true;
    let after = map_of(drained);
    assert_eq!(after.map_members().len(), 5);
    assert!(slots().all(|slot| after.slot_owners(slot).iter().all(|&at| at != 2)));
    let kept = |slot: &HashSlot| {
        before.first_owner(*slot).id == after.first_owner(*slot).id
            || before.first_owner(*slot).id.0 == "w2"
    };
    assert!(slots().all(|slot| kept(&slot)));
    assert_eq!(
        PlacementMap::new(
            Epoch(1),
            vec![PlacementMember { draining: true, ..members(&[1.0])[0].clone() }],
            1
        ),
        Err(PlacementError::NoWorkers)
    );
}

#[test]
fn a_static_epoch_is_that_of_its_members_weights_and_ranks() {
    let epoch = |members: &[PlacementMember], ranks| PlacementMap::static_epoch(members, ranks);
    let three = members(&[1.0, 3.0, 2.0]);
    let mut reversed = three.clone();
    reversed.reverse();
    assert_eq!(epoch(&three, 2), epoch(&reversed, 2));
    assert_eq!(
        epoch(&three, 3),
        epoch(&three, 9),
        "more ranks than members are as many as members"
    );
    let changed = |change: fn(&mut PlacementMember)| {
        let mut changed = three.clone();
        change(&mut changed[0]);
        changed
    };
    let others = [
        epoch(&three, 1),
        epoch(&three[..2], 2),
        epoch(&changed(|member| member.id = WorkerId("w9".into())), 2),
        epoch(&changed(|member| member.zone = "a".into()), 2),
        epoch(&changed(|member| member.draining = true), 2),
        epoch(&members(&[1.0, 3.0, 2.5]), 2),
        epoch(&members(&[3.0, 1.0, 2.0]), 2),
    ];
    for other in others {
        assert_ne!(other, epoch(&three, 2));
    }
}

/// Releases that disagree here would send one key to two homes.
#[test]
fn maps_and_static_epochs_stay_as_they_are() {
    use std::hash::Hasher;
    let digest = |map: &PlacementMap| {
        let mut hasher = SipHasher13::new();
        slots().for_each(|slot| map.slot_owners(slot).iter().for_each(|&at| hasher.write_u16(at)));
        hasher.finish()
    };
    let zoned = members(&[1.0, 3.0, 2.0, 0.7]).into_iter().enumerate();
    let zoned = zoned
        .map(|(at, member)| PlacementMember { zone: format!("z{}", at / 2), ..member })
        .collect::<Vec<_>>();
    assert_eq!(
        (
            digest(&map(&[1.0; 3])),
            digest(&map_of(zoned.clone())),
            PlacementMap::static_epoch(&zoned, 2)
        ),
        (2_537_868_371_229_468_420, 5_684_357_835_780_551_997, Epoch(12_138_047_722_992_691_845))
    );
    let many = members(&[1.0; 120]).into_iter().enumerate();
    let many = many
        .map(|(at, member)| PlacementMember { zone: format!("z{}", at % 6), ..member })
        .collect::<Vec<_>>();
    let mixed = many
        .iter()
        .enumerate()
        .map(|(at, member)| PlacementMember { weight: 1.0 + (at % 3) as f64, ..member.clone() });
    assert_eq!(
        (digest(&map_of(many.clone())), digest(&map_of(mixed.collect()))),
        (1_368_510_996_911_833_037, 9_569_488_122_440_954_982)
    );
}

#[test]
fn the_order_of_the_list_does_not_matter() {
    let mut reversed = members(&[1.0, 3.0, 2.0]);
    reversed.reverse();
    assert_eq!(map_of(reversed), map(&[1.0, 3.0, 2.0]));
}

#[test]
fn owners_of_a_slot_are_different_workers() {
    let map = map(&[1.0; 3]);
    assert!(slots().all(|slot| map.slot_owners(slot).len() == 2
        && map.slot_owners(slot)[0] != map.slot_owners(slot)[1]));
}

#[test]
fn bad_lists_are_refused() {
    assert_eq!(PlacementMap::new(Epoch(1), vec![], 1), Err(PlacementError::NoWorkers));
    let twice = vec![members(&[1.0])[0].clone(), members(&[1.0])[0].clone()];
    assert!(matches!(PlacementMap::new(Epoch(1), twice, 1), Err(PlacementError::Duplicate(_))));
    assert!(matches!(
        PlacementMap::new(Epoch(1), members(&[0.0]), 1),
        Err(PlacementError::Weight { .. })
    ));
}

#[test]
fn a_worker_of_another_weight_moves_its_share_of_equal_ones() {
    let moved = map(&[3.0; 2]).count_moved_slots(&map(&[3.0, 3.0, 1.0])) as f64 / SLOTS as f64;
    assert!(moved <= 1.0 / 7.0 + 0.02, "{moved} of the slots moved");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn who_joins_or_leaves_moves_its_share_and_little_more(
        weights in prop::collection::vec(1u32..5, 2..40), joining in 1u32..5
    ) {
        let mut weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let fewer = map(&weights);
        weights.push(f64::from(joining));
        let more = map(&weights);
        let share = f64::from(joining) / weights.iter().sum::<f64>();
        let moved = fewer.count_moved_slots(&more) as f64 / SLOTS as f64;
        prop_assert!(moved <= share + 0.02, "moved {moved}, share {share}");
        prop_assert!(imbalance(&fewer) <= 1.15 && imbalance(&more) <= 1.15);
    }
}
