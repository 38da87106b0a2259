#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use verbs3_rdma::arena::ArenaOptions;

const PAGE: usize = 256 << 10;

fn memory(mebibytes: usize, reserve: f64) -> MemoryTier {
    let options =
        ArenaOptions { capacity_bytes: mebibytes << 20, cell_bytes_max: PAGE, populate: false };
    let metrics = WorkerMetrics::new(&prometheus::Registry::new()).unwrap();
    MemoryTier::new(Arena::map_memory(options).unwrap(), reserve, metrics)
}

fn key(number: u128) -> PageKey {
    PageKey((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn fill(memory: &MemoryTier, number: u128, bytes: usize) -> bool {
    let Some(cell) = memory.allocate_cell(bytes, MemoryUrgency::Demand) else { return false };
    let (mut writer, reader) = cell.split_writer_reader();
    writer.spare_bytes()[..bytes].fill(number as u8);
    writer.publish_bytes(bytes);
    drop(writer);
    memory.insert_page(
        key(number),
        CachedPage { cell: reader, bytes: bytes as u32, checksum: number as u64 },
        0,
    );
    true
}

#[test]
fn a_full_arena_gives_up_cold_pages() {
    let memory = memory(4, 0.0);
    for number in 0..100 {
        assert!(fill(&memory, number, PAGE));
    }
    let (pages, bytes) = memory.held_totals();
    assert_eq!(bytes, memory.page_arena().arena_usage().asked_bytes);
    assert!((8..=16).contains(&pages), "{pages}");
    assert!(memory.get(key(99), 0).is_some());
    assert!(memory.get(key(0), 0).is_none());
}

#[test]
fn a_page_that_is_read_again_survives_a_scan() {
    let memory = memory(8, 0.0);
    for number in 0..4 {
        fill(&memory, number, PAGE);
    }
    for number in 100..400 {
        for hot in 0..4 {
            assert!(
                memory.get(key(hot), 0).is_some(),
                "page {hot} was given up after {} others",
                number - 100
            );
        }
        assert!(fill(&memory, number, PAGE));
    }
}

#[test]
fn pages_that_readers_hold_are_not_given_up_and_their_lack_is_an_answer() {
    let memory = memory(4, 0.0);
    let mut held = Vec::new();
    for number in 0..16 {
        assert!(fill(&memory, number, PAGE));
        let page = memory.get(key(number), 0).unwrap();
        held.push((number, page.cell.pinned_bytes(0..PAGE).unwrap()));
    }
    assert!(memory.allocate_cell(PAGE, MemoryUrgency::Demand).is_none());
    for (number, bytes) in &held {
        assert!(bytes.iter().all(|&byte| byte == *number as u8));
    }
    held.clear();
    assert!(memory.allocate_cell(PAGE, MemoryUrgency::Demand).is_some());
}

#[test]
fn room_of_another_size_is_made_by_emptying_an_extent() {
    let memory = memory(4, 0.0);
    let mut number = 0;
    while memory.page_arena().arena_usage().unassigned_bytes > 0 || memory.held_totals().0 < 30 {
        assert!(fill(&memory, number, 100 << 10));
        number += 1;
    }
    for number in 1000..1032 {
        assert!(fill(&memory, number, PAGE), "page {number}");
        assert!(fill(&memory, number + 1000, 10 << 10), "page {number}");
    }
}

#[test]
fn read_ahead_leaves_the_reserve_alone() {
    let memory = memory(4, 0.5);
    let mut cells = Vec::new();
    while let Some(cell) = memory.allocate_cell(PAGE, MemoryUrgency::Ahead) {
        cells.push(cell);
    }
    assert_eq!(cells.len(), 8);
    assert!(memory.allocate_cell(PAGE, MemoryUrgency::Demand).is_some());
}

#[test]
fn the_reserve_is_regained_after_a_fill() {
    let memory = memory(4, 0.5);
    for number in 0..64 {
        assert!(fill(&memory, number, PAGE));
        assert!(memory.page_arena().arena_usage().leased_bytes <= 2 << 20);
    }
}

#[test]
fn idle_pages_are_swept() {
    let memory = memory(4, 0.0);
    fill(&memory, 1, PAGE);
    fill(&memory, 2, PAGE);
    memory.get(key(2), 50);
    memory.sweep_idle(10, 100);
    assert!(!memory.holds_page(key(1)) && memory.holds_page(key(2)));
}

#[test]
fn a_small_object_costs_at_most_200_bytes_of_index() {
    let mut shard = MemoryTierShard::new(0);
    let options = ArenaOptions { capacity_bytes: 512 << 20, cell_bytes_max: PAGE, populate: false };
    let arena = Arena::map_memory(options).unwrap();
    let mut worst = 0;
    for number in 0..100_000u128 {
        let (_, cell) = arena.allocate_cell(4096).unwrap().split_writer_reader();
        shard.insert_page(key(number), CachedPage { cell, bytes: 4096, checksum: 0 }, 0);
        // Below some thousand entries a constant part shows; a worker holds millions.
        if number > 20_000 {
            worst = worst.max(shard.index_bytes() / (number as usize + 1));
        }
    }
    // The cell's own bookkeeping (an `Arc` of 56 bytes, which malloc rounds to 64), a ghost's 4 and
    // 2 lost per chunk are not in there.
    let total = worst + 64 + 4;
    println!("index: {worst} bytes of table and entry, {total} in all, per small object");
    assert_eq!(size_of::<slab::MemoryPageEntry>(), 64);
    assert!(total <= 200, "{total}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Random fills, reads, held pages and sweeps against a map: what is found is what was put,
    /// nothing leaks.
    #[test]
    fn the_index_agrees_with_a_map(steps in prop::collection::vec((0u8..8, 0u128..40, 1usize..PAGE), 1..300)) {
        let memory = memory(4, 0.1);
        let mut model: HashMap<u128, usize> = HashMap::new();
        let mut held = Vec::new();
        for (action, number, bytes) in steps {
            match action {
                0..=3 if !memory.holds_page(key(number)) => {
                    if fill(&memory, number, bytes) {
                        model.insert(number, bytes);
                    }
                }
                0..=5 => {
                    if let Some(page) = memory.get(key(number), 1) {
                        prop_assert_eq!(Some(&(page.bytes as usize)), model.get(&number));
                        prop_assert_eq!(page.checksum, number as u64);
                        let view = page.cell.pinned_bytes(0..page.bytes as usize).unwrap();
                        prop_assert!(view.iter().all(|&byte| byte == number as u8));
                        if action == 5 {
                            held.push(view);
                        }
                    }
                }
                6 => held.truncate(number as usize / 8),
                _ => memory.sweep_idle(1, bytes % 8),
            }
        }
        held.clear();
        let (pages, bytes) = memory.held_totals();
        prop_assert!(pages <= model.len() as u64);
        prop_assert_eq!(bytes, memory.page_arena().arena_usage().asked_bytes);
    }
}
