#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

const GEOMETRY: BlockGeometry = BlockGeometry::DEFAULT;
const PAGE: u64 = 256 << 10;
const BLOCK: u64 = 4 << 20;

fn plan(spec: &PreloadJobSpec) -> PreloadPlan {
    PreloadPlan {
        sources: Vec::new(),
        ranges: merge_ranges(&spec.ranges),
        replicas: 1,
        tier: WarmTier::Memory,
        pin_until_ms: 0,
        deadline_ms: None,
        bandwidth: None,
        verify: false,
        metadata_only: spec.metadata_only,
        action: spec.action,
        dry_run: false,
    }
}

fn spec() -> PreloadJobSpec {
    PreloadJobSpec { prefixes: vec!["s3://train/".into()], ..PreloadJobSpec::default() }
}

#[test]
fn a_whole_object_is_wanted_block_by_block() {
    let pieces: Vec<_> = plan(&spec()).wanted_pieces(GEOMETRY, 2 * BLOCK + 1).collect();
    assert_eq!(pieces, [(BlockIndex(0), 0..16), (BlockIndex(1), 0..16), (BlockIndex(2), 0..1)]);
    assert_eq!(plan(&spec()).first_pages(GEOMETRY, None), 0..16);
    assert_eq!(plan(&spec()).first_pages(GEOMETRY, Some(4096)), 0..1);
    assert_eq!(plan(&spec()).first_pages(GEOMETRY, Some(0)), 0..0);
    assert_eq!(plan(&spec()).first_pages(GEOMETRY, Some(9 * BLOCK)), 0..16);
    assert_eq!(plan(&spec()).wanted_pieces(GEOMETRY, 0).count(), 0);
}

#[test]
fn long_objects_are_loaded_from_all_groups_in_turn() {
    let plan = plan(&spec());
    let bytes = 40 * BLOCK + 1;
    let blocks: Vec<u32> = plan.spread_pieces(GEOMETRY, bytes).map(|(block, _)| block.0).collect();
    assert_eq!(blocks[..5], [0, 16, 32, 1, 17]);
    let mut sorted = blocks;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..41).collect::<Vec<_>>());
}

#[test]
fn of_ranges_the_pages_that_they_touch_are_wanted_once() {
    let range = |first, last| PreloadByteRange { first, last };
    let spec = PreloadJobSpec {
        ranges: vec![
            range(BLOCK - 1, Some(BLOCK)),
            range(5, Some(PAGE)),
            range(PAGE + 9, Some(2 * PAGE)),
        ],
        ..spec()
    };
    let pieces: Vec<_> = plan(&spec).wanted_pieces(GEOMETRY, 9 * BLOCK).collect();
    assert_eq!(pieces, [(BlockIndex(0), 0..3), (BlockIndex(0), 15..16), (BlockIndex(1), 0..1)]);
    assert_eq!(plan(&spec).wanted_bytes(GEOMETRY, 9 * BLOCK), 5 * PAGE);
    assert_eq!(plan(&spec).wanted_bytes(GEOMETRY, PAGE + 7), PAGE + 7);
    let tail = PreloadJobSpec { ranges: vec![range(3 * BLOCK, None)], ..self::spec() };
    assert_eq!(plan(&tail).first_pages(GEOMETRY, None), 0..0);
    assert_eq!(
        plan(&tail).wanted_pieces(GEOMETRY, 3 * BLOCK + 1).collect::<Vec<_>>(),
        [(BlockIndex(3), 0..1)]
    );
    assert_eq!(plan(&tail).wanted_pieces(GEOMETRY, BLOCK).count(), 0);
}

#[test]
fn attributes_alone_are_no_pages() {
    let plan = plan(&PreloadJobSpec { metadata_only: true, ..spec() });
    assert_eq!(
        (plan.first_pages(GEOMETRY, Some(5)), plan.wanted_pieces(GEOMETRY, BLOCK).count()),
        (0..0, 0)
    );
}

proptest! {
    #[test]
    fn every_wanted_byte_is_in_one_piece_and_no_piece_is_empty(
        ranges in prop::collection::vec((0u64..30 << 20, prop::option::of(0u64..9 << 20)), 0..6), bytes in 0u64..30 << 20,
        listed in prop::option::of(0u64..5 << 20)
    ) {
        let ranges: Vec<PreloadByteRange> =
            ranges.into_iter().map(|(first, more)| PreloadByteRange { first, last: more.map(|more| first + more) }).collect();
        let plan = plan(&PreloadJobSpec { ranges: ranges.clone(), ..spec() });
        let mut seen = std::collections::BTreeSet::new();
        for (block, pages) in plan.wanted_pieces(GEOMETRY, bytes) {
            prop_assert!(!pages.is_empty() && piece_bytes(GEOMETRY, bytes, block, &pages) > 0);
            for page in pages {
                prop_assert!(seen.insert((block, page)), "page {page} of block {block:?} twice");
            }
        }
        // Whatever length was listed, the pages asked for with the attributes and the other pages
        // are together the same.
        let first = plan.first_pages(GEOMETRY, listed);
        let others: Vec<_> = plan.other_pieces(GEOMETRY, bytes, first.clone(), 2).collect();
        for replica in 0..2 {
            let of_replica = others.iter().filter(|(_, _, of)| *of == replica);
            let pages = of_replica.flat_map(|(block, pages, _)| pages.clone().map(|page| (*block, page)));
            let begun = first.clone().filter(|_| replica == 0).map(|page| (BlockIndex(0), page));
            let both: Vec<_> = pages.chain(begun.filter(|at| seen.contains(at))).collect();
            let distinct: std::collections::BTreeSet<_> = both.iter().copied().collect();
            prop_assert_eq!((both.len(), &distinct), (seen.len(), &seen), "replica {}", replica);
        }
        let pages = bytes.div_ceil(PAGE);
        for page in 0..pages {
            let (start, end) = (page * PAGE, (page + 1) * PAGE);
            let touches = |range: &PreloadByteRange| range.first < end.min(bytes) && range.last.is_none_or(|last| last >= start);
            let wanted = ranges.is_empty() || ranges.iter().any(touches);
            let at = (BlockIndex((page / 16) as u32), (page % 16) as u16);
            prop_assert_eq!(wanted, seen.contains(&at), "page {}", page);
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let refused = |spec: PreloadJobSpec| validate_spec(&spec).unwrap_err().to_string();
    let wrong = [
        (PreloadJobSpec::default(), "nothing is to be loaded"),
        (PreloadJobSpec { id: Some("a/b".into()), ..spec() }, "id \"a/b\""),
        (PreloadJobSpec { replicas: 0, ..spec() }, "replicas of 0"),
        (PreloadJobSpec { pin_ttl: Some(5), ..spec() }, "tier disk"),
        (PreloadJobSpec { skip_if_cached: false, ..spec() }, "skip_if_cached"),
        (PreloadJobSpec { bandwidth_bytes_per_second: Some(0), ..spec() }, "bandwidth"),
        (
            PreloadJobSpec { ranges: vec![PreloadByteRange { first: 9, last: Some(3) }], ..spec() },
            "range 9",
        ),
        (PreloadJobSpec { metadata_only: true, verify: true, ..spec() }, "leave out verify"),
    ];
    for (spec, reason) in wrong {
        let said = refused(spec);
        assert!(said.contains(reason), "{said}");
    }
    assert!(deadline_ms("tomorrow").is_err());
    assert_eq!(deadline_ms("1970-01-01T00:00:01Z"), Ok(1000));
    assert!(serde_json::from_str::<PreloadJobSpec>(r#"{"prefix": "s3://train/"}"#).is_err());
}

#[test]
fn paths_name_mounts_that_are_cached() {
    let none = PreloadMountTable::default();
    assert!(matches!(parse_path(&none, "train/x"), Err(SpecError::Path(_))));
    assert!(matches!(parse_path(&none, "s3:///x"), Err(SpecError::Path(_))));
    assert!(matches!(parse_path(&none, "s3://train/x"), Err(SpecError::Mount { .. })));
}
