//! Pins: acknowledged when they would outlive a restart, and ended by an evict whatever is being
//! written.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::super::folder_store::PageWriteOutcome;
use super::super::metrics::DiskEvictionReason;
use super::super::simulated_medium::{MediumFaults, SimulatedMedium};
use super::super::{DiskTier, DiskTierParts, WorkerDiskSettings};
use super::disk_fixture::{DiskFixture, Gated, Options, Page};
use verbs3_settings::TimePeriod;

const LONG: Duration = Duration::from_secs(120);

/// A disk tier that has these pages and no other.
fn with_pages(medium: &Gated<SimulatedMedium>, pages: &[Page]) -> DiskTier {
    with_folders(&[(medium, pages)])
}

/// The same, of several folders.
fn with_folders(folders: &[(&Gated<SimulatedMedium>, &[Page])]) -> DiskTier {
    let mut fixtures = Vec::new();
    for (medium, pages) in folders {
        let fixture = DiskFixture::open((*medium).clone(), &Options::default());
        for page in *pages {
            assert_eq!(fixture.write(page, 1), PageWriteOutcome::Done);
        }
        fixtures.push(fixture);
    }
    let metrics = fixtures[0].metrics.clone();
    let stall_max = TimePeriod::from_millis(1);
    let settings = WorkerDiskSettings { stall_max, ..WorkerDiskSettings::default() };
    let folders = fixtures.into_iter().map(|fixture| fixture.folder).collect();
    let parts = DiskTierParts {
        metrics,
        arena_bytes: 1 << 20,
        resident: Arc::new(|_| false),
        tenants: Arc::default(),
    };
    DiskTier::new(&settings, folders, parts).unwrap()
}

fn later() -> Option<SystemTime> {
    Some(SystemTime::now() + Duration::from_secs(1000))
}

fn is_pinned(medium: &SimulatedMedium, page: &Page) -> bool {
    let fixture = DiskFixture::open(medium.clone(), &Options::default());
    fixture.folder.page_heat(page.key(), 2).expect("the page is there after a restart").1
}

/// What waited behind a hung write was once dropped with the pages that waited, and had been called
/// pinned.
#[tokio::test]
async fn pins_behind_a_hung_writer_are_written_when_it_goes_on() {
    let (medium, pages) = (SimulatedMedium::new(1), [Page::of(0), Page::of(1)]);
    let gated = Gated::new(medium.clone());
    let disk = with_pages(&gated, &pages);
    gated.shut();
    let hung = disk.pin_pages([pages[0].key()], later());
    assert!(gated.has_waiting(1, LONG));
    let behind = disk.pin_pages([pages[1].key()], later());
    assert_eq!((hung.accepted_pages(), behind.accepted_pages()), (1, 1));
    assert_eq!(
        (
            hung.wait_until_written(Duration::ZERO).await,
            behind.wait_until_written(Duration::ZERO).await
        ),
        (0, 0)
    );
    while disk.holds_page(pages[0].key()) {
        // Until the folder counts as hung, and rests.
        std::thread::yield_now();
        disk.look_over();
    }
    gated.open();
    assert_eq!(
        (hung.wait_until_written(LONG).await, behind.wait_until_written(LONG).await),
        (1, 1)
    );
    disk.abandon();
    assert!(is_pinned(&medium, &pages[0]) && is_pinned(&medium, &pages[1]));
}

#[tokio::test]
async fn a_pin_counts_only_if_its_header_is_written() {
    let (medium, page) = (SimulatedMedium::new(1), Page::of(0));
    let disk = with_pages(&Gated::new(medium.clone()), &[page]);
    medium.set_faults(MediumFaults { io_per_mille: 1000, ..MediumFaults::default() });
    let pins = disk.pin_pages([page.key(), Page::of(1).key()], later());
    assert_eq!((pins.accepted_pages(), pins.wait_until_written(LONG).await), (1, 0));
    medium.set_faults(MediumFaults::default());
    assert_eq!(disk.pin_pages([page.key()], later()).wait_until_written(LONG).await, 1);
    disk.abandon();
    assert!(is_pinned(&medium, &page));
    assert_eq!(
        disk.pin_pages([page.key()], later()).accepted_pages(),
        0,
        "there is nobody left who writes"
    );
}

/// An evict whose page's header was written anew meanwhile took it for another page, did nothing,
/// and was called done.
#[test]
fn an_evict_that_meets_the_writing_of_a_pin_leaves_nothing() {
    for pin_first in [false, true] {
        let (medium, page) = (SimulatedMedium::new(1), Page::of(0));
        let gated = Gated::new(medium.clone());
        let fixture = DiskFixture::open(gated.clone(), &Options::default());
        assert!(
            fixture.write(&page, 1) == PageWriteOutcome::Done
                && fixture.folder.pin_page(page.key(), u32::MAX)
        );
        gated.shut();
        let evicted = std::thread::scope(|scope| {
            let pin = || (fixture.folder.write_pin(page.key()), false);
            let evict = || (false, fixture.folder.evict_page(page.key(), LONG));
            let first = if pin_first { scope.spawn(pin) } else { scope.spawn(evict) };
            assert!(gated.has_waiting(1, LONG));
            let second = if pin_first { scope.spawn(evict) } else { scope.spawn(pin) };
            // It gets as far as it may meanwhile: to its own write, or to where it waits for the
            // other.
            gated.has_waiting(2, Duration::from_millis(300));
            gated.open();
            let (first, second) = (first.join().unwrap(), second.join().unwrap());
            first.1 || second.1
        });
        assert!(evicted && !fixture.folder.holds_page(page.key(), 2), "pin first: {pin_first}");
        let after = DiskFixture::open(medium, &Options::default());
        assert!(
            !after.folder.holds_page(page.key(), 2),
            "a restart finds it again; pin first: {pin_first}"
        );
    }
}

/// An evict once waited, without an end, for the pin of whatever page was with a device that hung;
/// each held a thread.
#[test]
fn an_evict_does_not_wait_for_a_folder_that_hangs() {
    let (hung, well) = (Gated::new(SimulatedMedium::new(1)), Gated::new(SimulatedMedium::new(2)));
    let (there, here) = (Page::of(0), Page::of(1));
    let disk = with_folders(&[(&hung, &[there]), (&well, &[here])]);
    hung.shut();
    let pin = disk.pin_pages([there.key()], later());
    assert!(hung.has_waiting(1, LONG));
    let (over, is_over) = std::sync::mpsc::channel();
    let evicted = std::thread::scope(|scope| {
        let disk = &disk;
        scope.spawn(move || {
            disk.evict_page(here.key());
            disk.evict_page(there.key());
            over.send(()).unwrap();
        });
        let evicted = is_over.recv_timeout(LONG);
        let waiting = disk.shelves.iter().map(|shelf| shelf.queue.pin_count()).sum::<usize>();
        assert_eq!((pin.accepted_pages(), waiting), (1, 0), "it is with the device");
        hung.open();
        evicted
    });
    assert!(evicted.is_ok(), "it waited for the device");
    assert!(!disk.holds_page(here.key()));
    let asked = disk.metrics.evictions[DiskEvictionReason::Asked].get();
    assert_eq!(asked, 1, "the other page is where nothing can be given up now");
    disk.abandon();
}
