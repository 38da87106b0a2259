//! Pins: acknowledged when they would outlive a restart.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::super::folder::Written;
use super::super::simulated::{Faults, Simulated};
use super::super::{Disk, DiskOptions};
use super::bed::{Bed, Gated, Options, Page};

const LONG: Duration = Duration::from_secs(120);

/// A disk tier that has these pages and no other.
fn with_pages(medium: &Gated<Simulated>, pages: &[Page]) -> Disk {
    let bed = Bed::open(medium.clone(), &Options::default());
    for page in pages {
        assert_eq!(bed.write(page, 1), Written::Done);
    }
    let options = DiskOptions { stall_max: Duration::from_millis(1), ..DiskOptions::default() };
    Disk::new(&options, vec![bed.folder], bed.metrics, 1 << 20, Arc::new(|_| false)).unwrap()
}

fn later() -> Option<SystemTime> {
    Some(SystemTime::now() + Duration::from_secs(1000))
}

fn is_pinned(medium: &Simulated, page: &Page) -> bool {
    let bed = Bed::open(medium.clone(), &Options::default());
    bed.folder.heat(page.key(), 2).expect("the page is there after a restart").1
}

/// What waited behind a hung write was once dropped with the pages that waited, and had been called pinned.
#[tokio::test]
async fn pins_that_wait_for_a_writer_that_hangs_are_written_when_it_goes_on() {
    let (medium, pages) = (Simulated::new(1), [Page::of(0), Page::of(1)]);
    let gated = Gated::new(medium.clone());
    let disk = with_pages(&gated, &pages);
    gated.shut();
    let hung = disk.pin([pages[0].key()], later());
    assert!(gated.has_waiting(1, LONG));
    let behind = disk.pin([pages[1].key()], later());
    assert_eq!((hung.taken(), behind.taken()), (1, 1));
    assert_eq!((hung.written(Duration::ZERO).await, behind.written(Duration::ZERO).await), (0, 0));
    while disk.holds(pages[0].key()) {
        // Until the folder counts as hung, and rests.
        std::thread::yield_now();
        disk.look_over();
    }
    gated.open();
    assert_eq!((hung.written(LONG).await, behind.written(LONG).await), (1, 1));
    disk.abandon();
    assert!(is_pinned(&medium, &pages[0]) && is_pinned(&medium, &pages[1]));
}

#[tokio::test]
async fn a_pin_counts_only_if_its_header_is_written() {
    let (medium, page) = (Simulated::new(1), Page::of(0));
    let disk = with_pages(&Gated::new(medium.clone()), &[page]);
    medium.set_faults(Faults { io_per_mille: 1000, ..Faults::default() });
    let pins = disk.pin([page.key(), Page::of(1).key()], later());
    assert_eq!((pins.taken(), pins.written(LONG).await), (1, 0));
    medium.set_faults(Faults::default());
    assert_eq!(disk.pin([page.key()], later()).written(LONG).await, 1);
    disk.abandon();
    assert!(is_pinned(&medium, &page));
    assert_eq!(disk.pin([page.key()], later()).taken(), 0, "there is nobody left who writes");
}
