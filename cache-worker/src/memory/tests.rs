#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use verbs3_instruction_counter::count_instructions;
use verbs3_rdma::arena::ArenaOptions;

const PAGE: usize = 256 << 10;
const NOBODY: TenantAccount = TenantAccount::NOBODY;

fn memory(mebibytes: usize, reserve: f64) -> MemoryTier {
    let options =
        ArenaOptions { capacity_bytes: mebibytes << 20, cell_bytes_max: PAGE, populate: false };
    let metrics = WorkerMetrics::new(&prometheus::Registry::new()).unwrap();
    MemoryTier::new(
        Arena::map_memory(options).unwrap(),
        reserve,
        &Default::default(),
        Arc::default(),
        metrics,
    )
}

fn key(number: u128) -> PageKey {
    PageKey((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn fill(memory: &MemoryTier, number: u128, bytes: usize) -> bool {
    let Some(cell) = memory.allocate_cell(bytes, MemoryUrgency::Demand, NOBODY) else {
        return false;
    };
    let (mut writer, reader) = cell.split_writer_reader();
    writer.spare_bytes()[..bytes].fill(number as u8);
    writer.publish_bytes(bytes);
    drop(writer);
    memory.insert_page(
        key(number),
        CachedPage { cell: reader, bytes: bytes as u32, checksum: number as u64 },
        0,
        NOBODY,
    );
    true
}

#[test]
fn instruction_counts_of_an_index_look_up() {
    let memory = memory(64, 0.0);
    let pages = 1000;
    for number in 0..pages {
        assert!(fill(&memory, number, 4096));
    }
    let mut number = 0;
    count_instructions("index-look-up", || {
        number = (number + 1) % pages;
        let (page, _) = memory.use_page(key(number), 0, NOBODY).unwrap();
        assert_eq!(page.checksum, number as u64);
    });
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
fn parts_count_apart_from_pages_and_never_go_to_disk() {
    let memory = memory(16, 0.0);
    let part = |number: u128, bytes: usize| {
        let cell = memory.allocate_cell(bytes, MemoryUrgency::Demand, NOBODY).unwrap();
        let (mut writer, cell) = cell.split_writer_reader();
        writer.publish_bytes(bytes);
        let (bytes, checksum) = (bytes as u32, 0);
        memory.insert_part(key(number), CachedPage { cell, bytes, checksum }, 0, NOBODY);
    };
    fill(&memory, 0, PAGE);
    part(1, 16 << 10);
    part(2, 5000);
    part(2, 5000);
    assert_eq!(memory.held_totals(), (1, PAGE as u64));
    assert_eq!(memory.part_totals(), (2, (16 << 10) + 5000));
    for _ in 0..4 {
        assert!(memory.use_page(key(0), 0, NOBODY).unwrap().1.is_some());
        assert!(memory.use_page(key(1), 0, NOBODY).unwrap().1.is_none());
    }
    memory.drop_part(key(1));
    memory.drop_part(key(1));
    assert_eq!(memory.part_totals(), (1, 5000));
    // Parts are given up like pages where room is needed, and are counted out.
    for number in 100..200 {
        part(number, 16 << 10);
        assert!(fill(&memory, number + 1000, PAGE));
    }
    let all = memory.held_totals().1 + memory.part_totals().1;
    assert_eq!(all, memory.page_arena().arena_usage().asked_bytes);
    for number in 0..200 {
        memory.drop_part(key(number));
    }
    assert_eq!(memory.part_totals(), (0, 0));
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
fn while_readers_hold_every_page_none_is_evicted_or_allocated() {
    let memory = memory(4, 0.0);
    let mut held = Vec::new();
    for number in 0..16 {
        assert!(fill(&memory, number, PAGE));
        let page = memory.get(key(number), 0).unwrap();
        held.push((number, page.cell.pinned_bytes(0..PAGE).unwrap()));
    }
    assert!(memory.allocate_cell(PAGE, MemoryUrgency::Demand, NOBODY).is_none());
    for (number, bytes) in &held {
        assert!(bytes.iter().all(|&byte| byte == *number as u8));
    }
    held.clear();
    assert!(memory.allocate_cell(PAGE, MemoryUrgency::Demand, NOBODY).is_some());
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

/// Gateways keep a page of each extent but one. Those are the sparsest once the others have gone.
#[test]
fn room_is_made_beside_pages_that_readers_keep() {
    let memory = memory(16, 0.0);
    for number in 0..64 {
        assert!(fill(&memory, number, PAGE));
    }
    let kept: Vec<_> = (0..7)
        .map(|extent| memory.use_page(key(extent * 8), 0, NOBODY).unwrap().0)
        .map(|page| page.cell.pinned_bytes(0..PAGE).unwrap())
        .collect();
    assert!((1000..1010).all(|number| fill(&memory, number, 10 << 10)));
    for (extent, page) in kept.iter().enumerate() {
        assert!(page.iter().all(|&byte| byte == extent as u8 * 8));
    }
}

#[test]
fn read_ahead_leaves_the_reserve_alone() {
    let memory = memory(4, 0.5);
    let mut cells = Vec::new();
    while let Some(cell) = memory.allocate_cell(PAGE, MemoryUrgency::Ahead, NOBODY) {
        cells.push(cell);
    }
    assert_eq!(cells.len(), 8);
    assert!(memory.allocate_cell(PAGE, MemoryUrgency::Demand, NOBODY).is_some());
}

#[test]
fn what_is_staged_gets_room_though_others_are_on_their_way() {
    let memory = memory(4, 0.5);
    for number in 0..16 {
        assert!(fill(&memory, number, PAGE));
    }
    // What gateways push lands beside the pages that it becomes.
    let landing: Vec<_> =
        (0..4).map(|_| memory.page_arena().allocate_cell(PAGE).unwrap()).collect();
    assert!(memory.allocate_cell(PAGE, MemoryUrgency::Ahead, NOBODY).is_none());
    let staged = memory.allocate_cell(PAGE, MemoryUrgency::Staged, NOBODY).unwrap();
    assert!(memory.page_arena().arena_usage().loaned_bytes <= 2 << 20);
    // Not more than the reserve leaves, whatever there is.
    let more = || memory.allocate_cell(PAGE, MemoryUrgency::Staged, NOBODY);
    let rest: Vec<_> = std::iter::from_fn(more).collect();
    assert_eq!(rest.len() + landing.len() + 1, 8);
    drop(staged);
}

#[test]
fn the_reserve_is_regained_after_a_fill() {
    let memory = memory(4, 0.5);
    for number in 0..64 {
        assert!(fill(&memory, number, PAGE));
        assert!(memory.page_arena().arena_usage().loaned_bytes <= 2 << 20);
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
    let options = ArenaOptions { capacity_bytes: 512 << 20, cell_bytes_max: PAGE, populate: false };
    let arena = Arena::map_memory(options).unwrap();
    let mut shard = MemoryTierShard::new(0, arena.clone(), Arc::default());
    let mut worst = 0;
    for number in 0..100_000u128 {
        let (_, cell) = arena.allocate_cell(4096).unwrap().split_writer_reader();
        let arrival = PageArrival { now_s: 0, account: NOBODY, standing: DiskStanding::Unsaved };
        shard.insert_page(key(number), CachedPage { cell, bytes: 4096, checksum: 0 }, arrival);
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

/// Accounts over a memory tier of 4 MiB, of which half is kept for the active tenants.
fn shared_memory() -> (MemoryTier, Arc<TenantAccounts>) {
    share_memory(50)
}

fn share_memory(share_percent: u32) -> (MemoryTier, Arc<TenantAccounts>) {
    let rules = crate::tenants::TenantRules {
        share_percent,
        active_for: std::time::Duration::from_secs(100),
        reserve_percent: 0,
    };
    let tenants = Arc::new(TenantAccounts::new(rules, verbs3_metrics::TableFamily::default()));
    let options = ArenaOptions { capacity_bytes: 4 << 20, cell_bytes_max: PAGE, populate: false };
    let metrics = WorkerMetrics::new(&prometheus::Registry::new()).unwrap();
    let memory = MemoryTier::new(
        Arena::map_memory(options).unwrap(),
        0.0,
        &Default::default(),
        tenants.clone(),
        metrics,
    );
    (memory, tenants)
}

fn fill_for(memory: &MemoryTier, number: u128, owner: TenantAccount) -> bool {
    fill_bytes_for(memory, number, PAGE, owner)
}

fn fill_bytes_for(memory: &MemoryTier, number: u128, bytes: usize, owner: TenantAccount) -> bool {
    let Some(cell) = memory.allocate_cell(bytes, MemoryUrgency::Demand, owner) else {
        return false;
    };
    let (mut writer, cell) = cell.split_writer_reader();
    writer.publish_bytes(bytes);
    let page = CachedPage { cell, bytes: bytes as u32, checksum: 0 };
    memory.insert_page(key(number), page, 0, owner);
    true
}

fn tenant(tenants: &TenantAccounts, name: &str, now_s: u32) -> TenantAccount {
    tenants.note_request(verbs3_protocol::TenantTag::new(name, 1).as_ref(), now_s)
}

#[test]
fn a_scan_takes_no_tenant_below_its_share_of_memory() {
    let (memory, tenants) = shared_memory();
    let [victim, scan] = ["victim", "scan"].map(|name| tenant(&tenants, name, 0));
    (0..4).for_each(|number| assert!(fill_for(&memory, number, victim)));
    (100..500).for_each(|number| assert!(fill_for(&memory, number, scan)));
    assert!((0..4).all(|number| memory.holds_page(key(number))), "a quarter is its own");
    assert_eq!(tenants.held_bytes(TenantTier::Memory, victim), 4 * PAGE as u64);
    // Who is gone keeps nothing.
    tenant(&tenants, "scan", 200);
    tenants.look_over(200);
    (500..900).for_each(|number| assert!(fill_for(&memory, number, scan)));
    assert_eq!(tenants.held_bytes(TenantTier::Memory, victim), 0);
    assert!(tenants.held_bytes(TenantTier::Memory, scan) >= 12 * PAGE as u64, "all is its own");
}

#[test]
fn a_shared_page_counts_once_and_stays_when_one_tenant_leaves() {
    let (memory, tenants) = shared_memory();
    let [first, second] = ["first", "second"].map(|name| tenant(&tenants, name, 0));
    (0..2).for_each(|number| assert!(fill_for(&memory, number, first)));
    memory.use_page(key(0), 0, second);
    let held = |account| tenants.held_bytes(TenantTier::Memory, account) / PAGE as u64;
    assert_eq!((held(first), held(second)), (1, 1), "it counts for who holds less");
    let scan = tenant(&tenants, "scan", 200);
    tenant(&tenants, "second", 200);
    tenants.look_over(200);
    memory.use_page(key(1), 200, second);
    assert_eq!((held(first), held(second)), (0, 2));
    (100..500).for_each(|number| assert!(fill_for(&memory, number, scan)));
    assert!((0..2).all(|number| memory.holds_page(key(number))));
    assert_eq!(memory.held_totals().1 / PAGE as u64, held(second) + held(scan));
}

#[test]
fn a_tenant_exactly_at_its_share_loses_nothing_to_another() {
    let (memory, tenants) = share_memory(100);
    let [one, other] = ["one", "other"].map(|name| tenant(&tenants, name, 0));
    (0..8).for_each(|number| assert!(fill_for(&memory, number, one)));
    (100..108).for_each(|number| assert!(fill_for(&memory, number, other)));
    let held = |account| tenants.held_bytes(TenantTier::Memory, account) / PAGE as u64;
    assert_eq!((held(one), held(other)), (8, 8), "all there is");
    (200..300).for_each(|number| assert!(fill_for(&memory, number, other)));
    assert!((0..8).all(|number| memory.holds_page(key(number))), "they are older, and stay");
    // A stranger has no share. It gets no memory, and its reader asks the store.
    assert!(!fill_for(&memory, 400, NOBODY));
    assert_eq!((held(one), held(other)), (8, 8));
}

#[test]
fn pages_under_read_stay_and_cost_no_tenant_within_its_share() {
    let (memory, tenants) = share_memory(100);
    let [reader, victim, scan] = ["reader", "victim", "scan"].map(|name| tenant(&tenants, name, 0));
    (0..4).for_each(|number| assert!(fill_for(&memory, number, victim)));
    (100..112).for_each(|number| assert!(fill_for(&memory, number, reader)));
    let pin = |number| memory.get(key(number), 0).unwrap().cell.pinned_bytes(0..PAGE).unwrap();
    let pins: Vec<_> = (100..112).map(pin).collect();
    assert!(!fill_for(&memory, 200, scan), "who is above has all its pages under read");
    drop(pins);
    (200..300).for_each(|number| assert!(fill_for(&memory, number, scan)));
    assert!((0..4).all(|number| memory.holds_page(key(number))));
}

#[test]
fn an_account_pays_for_the_cells_of_its_pages() {
    let (memory, tenants) = shared_memory();
    let [one, other] = ["one", "other"].map(|name| tenant(&tenants, name, 0));
    assert!(fill_bytes_for(&memory, 0, 1, one));
    let held = |account| tenants.held_bytes(TenantTier::Memory, account);
    assert_eq!(held(one), memory.page_arena().arena_usage().loaned_bytes);
    memory.use_page(key(0), 0, other);
    memory.give_up(key(0));
    assert_eq!((held(one), held(other)), (0, 0));
}

/// Small pages of one, each of them in an extent of its own, must not keep another from its share.
#[test]
fn places_of_another_width_keep_nobody_from_its_share() {
    let (memory, tenants) = share_memory(100);
    let [small, large] = ["small", "large"].map(|name| tenant(&tenants, name, 0));
    let small_pages = (4 << 20) / 4096;
    (0..small_pages).for_each(|number| assert!(fill_bytes_for(&memory, number, 4096, small)));
    for number in (0..small_pages).filter(|number| number % 8 != 0) {
        memory.give_up(key(number));
    }
    for number in 0..8 {
        assert!(fill_for(&memory, 10_000 + number, large), "{number}");
    }
    let held = |account| tenants.held_bytes(TenantTier::Memory, account);
    assert_eq!(held(large), 8 * PAGE as u64, "its share");
    assert!(held(small) > 0, "one extent is enough");
}

#[test]
fn more_tenants_than_pages_shut_nobody_out() {
    let (memory, tenants) = share_memory(100);
    for round in 0..3 {
        for name in 0..40 {
            let account = tenant(&tenants, &format!("t{name}"), 0);
            assert!(fill_for(&memory, round * 100 + name, account), "{round} {name}");
        }
    }
}
