//! Properties of the bookkeeping: no cell is leased twice, nothing is lost, empty extents change
//! class.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn pool(extents: u32) -> Pool {
    Pool::new(Classes::new(256 << 10), extents)
}

fn extent_of(offset: usize) -> ExtentId {
    ExtentId((offset / (2 << 20)) as u32)
}

fn lease(pool: &mut Pool, bytes: usize) -> Option<Slot> {
    let class = pool.classes.class_of(bytes).unwrap();
    pool.lease(class, bytes)
}

#[test]
fn objects_of_100_kb_waste_at_most_15_percent_including_extent_tails() {
    for object in [100_000usize, 100 << 10] {
        let mut pool = pool(32);
        let mut asked = 0u64;
        while lease(&mut pool, object).is_some() {
            asked += object as u64;
        }
        let usage = pool.usage();
        assert_eq!(usage.asked_bytes, asked);
        let waste = 1.0 - asked as f64 / usage.capacity_bytes as f64;
        assert!(waste <= 0.15, "{object}-byte objects waste {waste}");
    }
}

#[test]
fn an_empty_extent_serves_another_class() {
    let mut pool = pool(1);
    let small = lease(&mut pool, 4096).unwrap();
    assert_eq!(lease(&mut pool, 256 << 10), None);
    pool.release(small, 4096);
    assert_eq!(pool.usage().unassigned_bytes, 2 << 20);
    assert!(lease(&mut pool, 256 << 10).is_some());
}

#[test]
fn the_sparsest_extent_is_the_one_with_the_fewest_cells() {
    let mut pool = pool(3);
    assert_eq!(pool.sparsest(), None);
    let full: Vec<_> = (0..8).map(|_| lease(&mut pool, 256 << 10).unwrap()).collect();
    let second = lease(&mut pool, 256 << 10).unwrap();
    assert_eq!(pool.sparsest(), Some(extent_of(second.offset)));
    assert_ne!(extent_of(full[0].offset), extent_of(second.offset));
}

#[derive(Debug, Clone)]
enum Step {
    Lease(usize),
    Release(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1usize..=256 << 10).prop_map(Step::Lease),
        2 => any::<usize>().prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn leased_ranges_never_overlap_and_all_memory_comes_back(steps in steps()) {
        let mut pool = pool(4);
        let mut live: BTreeMap<usize, (Slot, usize)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Lease(bytes) => if let Some(slot) = lease(&mut pool, bytes) {
                    let width = pool.classes.width(slot.class);
                    let extent = extent_of(slot.offset);
                    prop_assert_eq!(extent, extent_of(slot.offset + width - 1));
                    if let Some((before, (other, _))) = live.range(..=slot.offset).next_back() {
                        prop_assert!(before + pool.classes.width(other.class) <= slot.offset);
                    }
                    if let Some((after, _)) = live.range(slot.offset..).next() {
                        prop_assert!(slot.offset + width <= *after);
                    }
                    live.insert(slot.offset, (slot, bytes));
                },
                Step::Release(nth) => if !live.is_empty() {
                    let key = *live.keys().nth(nth % live.len()).unwrap();
                    let (slot, bytes) = live.remove(&key).unwrap();
                    pool.release(slot, bytes);
                },
            }
            let asked: usize = live.values().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(pool.usage().asked_bytes, asked as u64);
        }
        for (slot, bytes) in live.into_values() {
            pool.release(slot, bytes);
        }
        let usage = pool.usage();
        prop_assert_eq!(usage.unassigned_bytes, usage.capacity_bytes);
        prop_assert_eq!(usage.leased_bytes, 0);
    }
}
