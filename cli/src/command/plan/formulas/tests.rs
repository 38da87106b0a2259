#![allow(clippy::unwrap_used)]
mod scale;

use verbs3_rdma::arena::{Arena, ArenaOptions};

use super::*;
use crate::command::plan::capacity_input::ObjectSizeClass;

fn input() -> CapacityInput {
    CapacityInput {
        sizes: vec![ObjectSizeClass { count: 1_000_000, bytes: 100 << 20 }],
        epochs: 3,
        readers_per_object: 1,
        warmed: true,
        nodes: 64,
        memory_bytes: 512 << 30,
        drives: 4,
        drive_bytes: 3 << 40,
        nics: 8,
        nic_gbits: 400.0,
        store_bytes_per_second: 10 << 30,
        store_first_byte_seconds: 0.02,
        replicas: 2,
        copies: 1,
        readers: 32,
    }
}

fn plan(input: &CapacityInput) -> CapacityPlan {
    compute_plan(input, &RootSettings::default())
}

#[test]
fn a_cell_is_as_wide_as_the_arena_makes_it() {
    let page = 256 << 10;
    let options = ArenaOptions { capacity_bytes: 2 << 20, cell_bytes_max: page, populate: false };
    let arena = Arena::map_memory(options).unwrap();
    for bytes in (1..=page).step_by(997).chain([1, 4096, 4097, 8192, 8193, 131_072, page]) {
        let wanted = arena.class_bytes(bytes) as u64;
        assert_eq!(cell_width(bytes as u64, CELL_STEPS), wanted, "{bytes}");
    }
}

#[test]
fn figures_are_those_of_the_place_that_they_name() {
    let worker = include_str!("../../../../../docs/configuration/worker.md").replace('\n', " ");
    let verbs = include_str!("../../../../../docs/configuration/verbs.md").replace('\n', " ");
    let held = [
        (worker.as_str(), format!("some {DISK_INDEX_BYTES} bytes of memory for each")),
        (worker.as_str(), format!("{GENERATION_BYTES} bytes each; keys share them")),
        (worker.as_str(), "half a KiB each".to_owned()),
        (verbs.as_str(), format!("Each is sure of {SURE_RECEIVES}")),
        (
            include_str!("../../../../../cache-worker/src/memory/tests.rs"),
            format!("at_most_{MEMORY_INDEX_BYTES}_bytes_of_index"),
        ),
        (
            include_str!("../../../../../rdma/src/verbs/chunk.rs"),
            format!("SPARE_RECEIVES: u16 = {SPARE_RECEIVES};"),
        ),
        (
            include_str!("../../../../../rdma/src/verbs/chunk_slots.rs"),
            format!("GRANT_SLOTS: u16 = {GRANT_SLOTS};"),
        ),
        (
            include_str!("../../../../../cache-worker/src/disk/disk_headers.rs"),
            format!("HEADER_BYTES: usize = {SLOT_HEADER_BYTES};"),
        ),
        (
            include_str!("../../../../../cache-worker/src/disk/segment_layout.rs"),
            "four widths for each doubling".to_owned(),
        ),
        (
            include_str!("../../../../../loadtest/PERFORMANCE.md"),
            format!("throughput ÷ direct | ≥ {STORE_PART} |"),
        ),
    ];
    for (text, wanted) in held {
        assert!(text.contains(&wanted), "{wanted}");
    }
    assert_eq!(ATTRIBUTES_BYTES, 1024 / 2);
}

/// loadtest/findings.md, "A million objects, and one of 100 GiB": 4,659 MiB resident.
#[test]
fn a_million_small_objects_take_what_was_measured() {
    let mut input = input();
    input.sizes = vec![ObjectSizeClass { count: 1_000_000, bytes: 4 << 10 }];
    let found = plan(&input);
    let index = found.data.pages * MEMORY_INDEX_BYTES + found.data.objects * ATTRIBUTES_BYTES;
    let mebibytes = (found.data.memory_bytes + index) >> 20;
    assert!(include_str!("../../../../../loadtest/findings.md").contains("37 / 4,659"));
    assert!((4659 * 95 / 100..=4659).contains(&mebibytes), "{mebibytes} MiB");
}

#[test]
fn a_nodes_memory_is_not_exceeded() {
    for drives in [0, 4, 16] {
        let input = CapacityInput { drives, ..input() };
        let found = plan(&input).node_memory;
        let sum = found.sum_bytes();
        assert!(sum <= input.memory_bytes, "{found:?}");
        assert!(sum > input.memory_bytes - (4 << 20), "{found:?}");
    }
}

#[test]
fn what_does_not_fit_fits_the_nodes_that_are_named() {
    let mut input = CapacityInput { nodes: 2, drives: 0, ..input() };
    let needed = plan(&input).nodes_needed.unwrap();
    assert!(needed > 200, "{needed}");
    for (nodes, fits) in [(needed, true), (needed * 9 / 10, false)] {
        input.nodes = u32::try_from(nodes).unwrap();
        let tier = plan(&input).memory_tier;
        assert_eq!(tier.planned_bytes <= tier.capacity_bytes, fits, "{nodes}: {tier:?}");
    }
}

#[test]
fn queue_pairs_grow_with_peers_and_not_with_nics() {
    let nic = plan(&input()).nic;
    // 63 other nodes, in both directions, and eight NICs are more than the four connections.
    assert_eq!((nic.queue_pairs, nic.queue_pairs_max), (126, 126));
    assert_eq!(nic.process_queue_pairs_max, 63 * 8);
    let one = plan(&CapacityInput { nics: 1, ..input() }).nic;
    assert_eq!((one.queue_pairs, one.queue_pairs_max), (126, 4 * 126));
    assert_eq!(one.locked_bytes, one.registered_bytes);
    assert_eq!(nic.locked_bytes, 8 * nic.registered_bytes);
    let none = plan(&CapacityInput { nics: 0, ..input() }).nic;
    assert_eq!((none.queue_pairs_max, none.registered_bytes), (0, 0));
}

#[test]
fn warm_up_is_bound_by_the_slowest_part() {
    let of_store = plan(&input()).warm_up;
    assert_eq!(of_store.limit, WarmUpLimit::StoreBandwidth);
    let expected = 1e6 * f64::from(100 << 20) / (0.9 * (10u64 << 30) as f64);
    assert!((of_store.seconds / expected - 1.0).abs() < 1e-9, "{}", of_store.seconds);
    let mut small = input();
    small.sizes = vec![ObjectSizeClass { count: 100_000_000, bytes: 4 << 10 }];
    let of_requests = plan(&small).warm_up;
    assert_eq!(of_requests.limit, WarmUpLimit::StoreRequests);
    assert!((of_requests.seconds - 1e8 * 0.02 / 64.0).abs() < 1e-6, "{}", of_requests.seconds);
    let slow = CapacityInput { nics: 0, nic_gbits: 1.0, ..input() };
    assert_eq!(plan(&slow).warm_up.limit, WarmUpLimit::Network);
}

#[test]
fn epochs_hit_what_was_warmed_or_read_before() {
    let cold = CapacityInput { warmed: false, readers_per_object: 4, ..input() };
    let epochs = plan(&cold).epochs;
    assert_eq!(epochs.len(), 3);
    // Three of four readers find what the first one brought.
    assert!((epochs[0].hit_ratio_min - 0.75).abs() < 1e-9, "{epochs:?}");
    assert_eq!(epochs[0].store_bytes_max, 1_000_000 * (100 << 20));
    assert!((epochs[1].hit_ratio_min - 1.0).abs() < 1e-9, "{epochs:?}");
    assert!((plan(&input()).epochs[0].hit_ratio_min - 1.0).abs() < 1e-9);
}

/// A simulated least-recently-used cache under epochs of random order.
#[test]
fn the_lower_bound_is_that_of_least_recently_used() {
    let mut random = 7u64;
    let mut next = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((random >> 33) as usize) % below
    };
    let objects = 1000usize;
    for held in [0.25, 0.5, 0.9] {
        let (mut order, mut recent) = ((0..objects).collect::<Vec<_>>(), Vec::<usize>::new());
        let (mut hits, mut reads) = (0usize, 0usize);
        for epoch in 0..30 {
            (1..objects).rev().for_each(|at| order.swap(at, next(at + 1)));
            for object in &order {
                let found = recent.iter().position(|one| one == object);
                hits += usize::from(found.is_some() && epoch > 0);
                reads += usize::from(epoch > 0);
                if let Some(at) = found {
                    recent.remove(at);
                } else if recent.len() >= (held * objects as f64) as usize {
                    recent.remove(0);
                }
                recent.push(*object);
            }
        }
        let (simulated, [least, most]) = (hits as f64 / reads as f64, reuse_bounds(held));
        assert!((simulated - least).abs() < 0.02, "{held}: {simulated}, {least}");
        assert!((most - held).abs() < 1e-9 && least < most);
    }
    assert_eq!(reuse_bounds(1.0), [1.0, 1.0]);
    assert_eq!(reuse_bounds(0.0), [0.0, 0.0]);
}
