//! How bodies are cut into pages.

use prometheus::IntGauge;
use proptest::prelude::*;

use super::super::page_cutter::{PageCutter, PageRun, QueueFull};
use super::super::populate_memory::PopulateMemory;
use super::populate_fixture::{BLOCK, GEOMETRY, PAGE, content};

fn gauge() -> IntGauge {
    IntGauge::new("g", "g").unwrap()
}

proptest! {
    /// Whatever the frames and the offset: each page that lies whole in the body is cut once, with
    /// the bytes that lie there in the object.
    #[test]
    fn pages_have_the_bytes_of_their_place(
        offset in prop_oneof![Just(0), Just(PAGE), Just(BLOCK), 0..3 * BLOCK],
        bytes in prop_oneof![Just(0), Just(1), PAGE - 1..=PAGE + 1, BLOCK - 1..=BLOCK + 1, 0..3 * BLOCK],
        frames in proptest::collection::vec(1usize..300_000, 1..5),
    ) {
        let object = content(1, offset + bytes);
        let gauge = gauge();
        let memory = PopulateMemory::new(u64::MAX, gauge.clone());
        let mut cutter = PageCutter::new(GEOMETRY, memory, offset, bytes);
        let (mut at, mut runs, mut turn) = (offset as usize, Vec::<PageRun>::new(), 0);
        while at < object.len() {
            let end = (at + frames[turn % frames.len()]).min(object.len());
            cutter.cut_bytes(&object[at..end], |run| runs.push(run)).unwrap();
            (at, turn) = (end, turn + 1);
        }
        let mut cut = Vec::new();
        for run in &runs {
            let first = u64::from(run.block.0) * BLOCK + u64::from(run.first_page) * PAGE;
            let pages = run.pages.len() as u64;
            prop_assert!((1..=16).contains(&pages) && u64::from(run.first_page) + pages <= 16);
            for (index, page) in run.pages.iter().enumerate() {
                let start = first + index as u64 * PAGE;
                let end = (start + PAGE).min(offset + bytes);
                prop_assert_eq!(&page[..], &object[start as usize..end as usize]);
                cut.push(start);
            }
        }
        let expected: Vec<u64> =
            (offset.next_multiple_of(PAGE)..offset + bytes).step_by(PAGE as usize).collect();
        prop_assert_eq!(cut, expected);
        prop_assert_eq!(cutter.pages_left(), 0);
        drop(runs);
        prop_assert_eq!(gauge.get(), 0);
    }
}

#[test]
fn memory_is_counted_until_the_last_clone_of_a_page_is_gone() {
    let gauge = gauge();
    let memory = PopulateMemory::new(2 * PAGE, gauge.clone());
    let mut cutter = PageCutter::new(GEOMETRY, memory.clone(), 0, 4 * PAGE);
    let mut runs = Vec::new();
    let body = content(2, 4 * PAGE);
    assert_eq!(cutter.cut_bytes(&body, |run| runs.push(run)), Err(QueueFull));
    assert_eq!((gauge.get() as u64, cutter.pages_left()), (2 * PAGE, 4));
    drop(cutter);
    assert_eq!(gauge.get(), 0);
    let mut cutter = PageCutter::new(GEOMETRY, memory, 0, 2 * PAGE);
    cutter.cut_bytes(&body[..2 * PAGE as usize], |run| runs.push(run)).unwrap();
    let kept = runs[0].pages[1].slice(5..6);
    drop((runs, cutter));
    assert_eq!(gauge.get() as u64, PAGE, "one byte keeps a page's memory");
    drop(kept);
    assert_eq!(gauge.get(), 0);
}

/// Such a body fails its checks; the copy must neither grow nor panic.
#[test]
fn what_comes_after_the_announced_end_is_not_copied() {
    let memory = PopulateMemory::new(u64::MAX, gauge());
    let mut cutter = PageCutter::new(GEOMETRY, memory, 0, 10);
    let mut runs = Vec::new();
    cutter.cut_bytes(&content(3, 30), |run| runs.push(run)).unwrap();
    cutter.cut_bytes(&content(3, 30), |run| runs.push(run)).unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(&runs[0].pages[0][..], &content(3, 30)[..10]);
}
