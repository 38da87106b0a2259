//! Tests the guarantees to borrowers: watermarks, pins, exclusive spans, memory that comes back.
#![allow(clippy::unwrap_used)]

use std::thread;

use super::*;

fn arena(extents: usize) -> Arena {
    Arena::map_memory(ArenaOptions {
        capacity_bytes: extents * (2 << 20),
        cell_bytes_max: 256 << 10,
        populate: false,
    })
    .unwrap()
}

#[test]
fn only_written_bytes_are_visible() {
    let arena = arena(1);
    let (mut writer, reader) = arena.allocate_cell(8192).unwrap().split_writer_reader();
    assert_eq!(reader.pinned_bytes(0..1), None);
    writer.spare_bytes()[..5].copy_from_slice(b"hello");
    assert_eq!(reader.pinned_bytes(0..5), None);
    writer.publish_bytes(5);
    assert_eq!(reader.pinned_bytes(0..5).unwrap(), "hello");
    assert_eq!(reader.pinned_bytes(1..3).unwrap(), "el");
    assert_eq!(reader.pinned_bytes(0..6), None);
    assert_eq!(writer.spare_bytes().len(), 8187);
}

#[test]
fn old_bytes_of_a_cell_that_is_loaned_again_stay_hidden() {
    let arena = arena(1);
    let (mut writer, reader) = arena.allocate_cell(4096).unwrap().split_writer_reader();
    writer.spare_bytes().fill(0xAA);
    writer.publish_bytes(4096);
    drop((writer, reader));
    let (mut writer, reader) = arena.allocate_cell(4096).unwrap().split_writer_reader();
    assert_eq!(writer.spare_bytes()[0], 0xAA, "the same memory is handed out");
    assert_eq!(reader.written_bytes(), 0);
    assert_eq!(reader.pinned_bytes(0..1), None);
}

#[test]
#[should_panic(expected = "bytes published")]
fn publishing_more_than_the_cell_holds_panics() {
    let (mut writer, _reader) = arena(1).allocate_cell(10).unwrap().split_writer_reader();
    writer.publish_bytes(11);
}

#[test]
fn a_view_pins_its_cell_until_it_is_dropped() {
    let arena = arena(1);
    let (mut writer, reader) = arena.allocate_cell(100_000).unwrap().split_writer_reader();
    writer.spare_bytes()[0] = 7;
    writer.publish_bytes(1);
    let view = reader.pinned_bytes(0..1).unwrap();
    let also = view.clone();
    drop(writer);
    assert!(reader.is_shared());
    drop(reader);
    drop(view);
    assert_eq!(arena.arena_usage().asked_bytes, 100_000);
    assert_eq!(also[0], 7);
    drop(also);
    assert_eq!(arena.arena_usage().asked_bytes, 0);
    assert_eq!(arena.arena_usage().unassigned_bytes, arena.arena_usage().capacity_bytes);
}

#[test]
fn a_sole_reader_is_not_shared() {
    let arena = arena(1);
    let (writer, reader) = arena.allocate_cell(1).unwrap().split_writer_reader();
    assert!(reader.is_shared());
    drop(writer);
    assert!(!reader.is_shared());
}

#[test]
fn a_full_arena_loans_nothing_until_a_cell_returns() {
    let arena = arena(1);
    let mut cells: Vec<_> = (0..8).map(|_| arena.allocate_cell(256 << 10).unwrap()).collect();
    assert!(arena.allocate_cell(256 << 10).is_none());
    assert!(arena.allocate_cell(1).is_none());
    cells.pop();
    assert!(arena.allocate_cell(256 << 10).is_some());
    assert!(arena.allocate_cell((256 << 10) + 1).is_none());
}

#[test]
fn an_arena_below_one_extent_names_the_setting_to_raise() {
    let error = Arena::map_memory(ArenaOptions {
        capacity_bytes: 1 << 20,
        cell_bytes_max: 256 << 10,
        populate: false,
    })
    .err()
    .unwrap();
    assert!(error.to_string().contains("raise gateway.memory.capacity"));
}

#[test]
#[cfg(not(miri))]
fn a_populated_arena_holds_its_memory_from_the_start() {
    let arena = Arena::map_memory(ArenaOptions {
        capacity_bytes: 4 << 20,
        cell_bytes_max: 256 << 10,
        populate: true,
    })
    .unwrap();
    let file = std::fs::File::from(arena.memory_fd().try_clone_to_owned().unwrap());
    let stat = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    assert_eq!(stat * 512, 4 << 20);
    file.set_len(4096).unwrap_err();
}

#[test]
fn spans_are_disjoint_and_keep_their_bytes() {
    let arena = arena(1);
    let mut rest = arena.allocate_cell(10_000).unwrap().into_span();
    let mut first = rest.split_to(3_000);
    let mut second = rest.split_to(3_000);
    second.as_mut().fill(2);
    first.as_mut().fill(1);
    rest.as_mut().fill(3);
    let (first, second) = (first.freeze(), second.freeze());
    drop(rest);
    assert!(first.iter().all(|&byte| byte == 1));
    assert!(second.iter().all(|&byte| byte == 2));
    assert_eq!(arena.arena_usage().asked_bytes, 10_000);
    drop((first, second));
    assert_eq!(arena.arena_usage().asked_bytes, 0);
}

/// Readers follow writers over reused memory: every byte below a watermark is the writer's, always.
#[test]
fn readers_never_see_a_byte_that_was_not_published() {
    let rounds = if cfg!(miri) { 4 } else { 400 };
    let arena = arena(1);
    thread::scope(|scope| {
        for seed in 0..4u8 {
            let arena = arena.clone();
            scope.spawn(move || {
                for round in 0..rounds {
                    let Some(cell) = arena.allocate_cell(4096 + usize::from(seed) * 5000) else {
                        continue;
                    };
                    let mark = seed.wrapping_mul(61).wrapping_add(round as u8);
                    let total = cell.len();
                    let (mut writer, reader) = cell.split_writer_reader();
                    let follower = thread::spawn(move || {
                        let mut seen = 0;
                        while seen < total {
                            let written = reader.written_bytes();
                            let view = reader.pinned_bytes(seen..written).unwrap();
                            assert!(view.iter().all(|&byte| byte == mark));
                            seen = written;
                            thread::yield_now();
                        }
                    });
                    while writer.written_bytes() < total {
                        let step = writer.spare_bytes().len().min(777);
                        writer.spare_bytes()[..step].fill(mark);
                        writer.publish_bytes(step);
                    }
                    drop(writer);
                    follower.join().unwrap();
                }
            });
        }
    });
    let usage = arena.arena_usage();
    assert_eq!(usage.unassigned_bytes, usage.capacity_bytes);
}
