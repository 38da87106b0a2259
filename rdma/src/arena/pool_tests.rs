//! Tests properties of the bookkeeping: no cell is loaned twice, nothing is lost, empty extents
//! change class.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn make_pool(extents: u32) -> ArenaCellPool {
    ArenaCellPool::new(SizeClasses::new(256 << 10), extents)
}

fn extent_of(offset: usize) -> ExtentId {
    ExtentId((offset / (2 << 20)) as u32)
}

fn allocate_bytes(pool: &mut ArenaCellPool, bytes: usize) -> Option<CellLocation> {
    let class = pool.classes.class_of(bytes).unwrap();
    pool.allocate_slot(class, bytes)
}

#[test]
fn objects_of_100_kb_waste_15_percent_at_most_with_extent_tails() {
    for object in [100_000usize, 100 << 10] {
        let mut pool = make_pool(32);
        let mut asked = 0u64;
        while allocate_bytes(&mut pool, object).is_some() {
            asked += object as u64;
        }
        let usage = pool.pool_usage();
        assert_eq!(usage.asked_bytes, asked);
        let waste = 1.0 - asked as f64 / usage.capacity_bytes as f64;
        assert!(waste <= 0.15, "{object}-byte objects waste {waste}");
    }
}

#[test]
fn an_empty_extent_serves_another_class() {
    let mut pool = make_pool(1);
    let small = allocate_bytes(&mut pool, 4096).unwrap();
    assert_eq!(allocate_bytes(&mut pool, 256 << 10), None);
    pool.release_slot(small, 4096);
    assert_eq!(pool.pool_usage().unassigned_bytes, 2 << 20);
    assert!(allocate_bytes(&mut pool, 256 << 10).is_some());
}

#[test]
fn the_sparsest_extent_is_the_one_with_the_fewest_cells() {
    let mut pool = make_pool(3);
    assert_eq!(pool.sparsest_extent(), None);
    let full: Vec<_> = (0..8).map(|_| allocate_bytes(&mut pool, 256 << 10).unwrap()).collect();
    let second = allocate_bytes(&mut pool, 256 << 10).unwrap();
    assert_eq!(pool.sparsest_extent(), Some(extent_of(second.offset)));
    assert_ne!(extent_of(full[0].offset), extent_of(second.offset));
}

#[derive(Debug, Clone)]
enum PoolTestStep {
    Loan(usize),
    Release(usize),
}

fn step_sequences() -> impl Strategy<Value = Vec<PoolTestStep>> {
    let step = prop_oneof![
        3 => (1usize..=256 << 10).prop_map(PoolTestStep::Loan),
        2 => any::<usize>().prop_map(PoolTestStep::Release),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn loaned_ranges_never_overlap_and_all_memory_comes_back(steps in step_sequences()) {
        let mut pool = make_pool(4);
        let mut live: BTreeMap<usize, (CellLocation, usize)> = BTreeMap::new();
        for step in steps {
            match step {
                PoolTestStep::Loan(bytes) => if let Some(slot) = allocate_bytes(&mut pool, bytes) {
                    let width = pool.classes.class_width(slot.class);
                    let extent = extent_of(slot.offset);
                    prop_assert_eq!(extent, extent_of(slot.offset + width - 1));
                    if let Some((before, (other, _))) = live.range(..=slot.offset).next_back() {
                        prop_assert!(before + pool.classes.class_width(other.class) <= slot.offset);
                    }
                    if let Some((after, _)) = live.range(slot.offset..).next() {
                        prop_assert!(slot.offset + width <= *after);
                    }
                    live.insert(slot.offset, (slot, bytes));
                },
                PoolTestStep::Release(nth) => if !live.is_empty() {
                    let key = *live.keys().nth(nth % live.len()).unwrap();
                    let (slot, bytes) = live.remove(&key).unwrap();
                    pool.release_slot(slot, bytes);
                },
            }
            let asked: usize = live.values().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(pool.pool_usage().asked_bytes, asked as u64);
        }
        for (slot, bytes) in live.into_values() {
            pool.release_slot(slot, bytes);
        }
        let usage = pool.pool_usage();
        prop_assert_eq!(usage.unassigned_bytes, usage.capacity_bytes);
        prop_assert_eq!(usage.loaned_bytes, 0);
    }
}
