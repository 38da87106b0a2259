//! Random writes, reads, pins, crashes and faults: what is served afterwards is right, whatever
//! happened.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::folder_store::PageWriteOutcome;
use super::super::metrics::MediumOperation;
use super::super::segment_medium::MediumErrorKind;
use super::super::simulated_medium::{MediumFaults, SimulatedMedium};
use super::disk_fixture::{DiskFixture, Options, Page};

/// How a run is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    PowerCut,
    BitsFlipped,
    Misdirected,
}

fn seed() -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    seed
}

/// Schedules of one run of the tests; SCHEDULES=n for more.
fn schedules() -> u64 {
    std::env::var("SCHEDULES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(if cfg!(debug_assertions) { 15 } else { 300 })
}

/// More pages than fit, so that slots are used again all the time.
const PAGES: u64 = 600;

#[test]
fn whatever_a_crash_leaves_every_page_served_is_right() {
    let seed = seed();
    let (mut served, mut corrupt) = (0u64, 0);
    for schedule in 0..schedules() {
        let mut rng = StdRng::seed_from_u64(seed ^ schedule.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let medium = SimulatedMedium::new(rng.random());
        for life in 0..4u32 {
            medium.set_faults(MediumFaults {
                io_per_mille: [0, 0, 20][rng.random_range(0..3)],
                ..MediumFaults::default()
            });
            let fixture = DiskFixture::open(medium.clone(), &Options::default());
            served += read_all(&fixture, life);
            for _ in 0..rng.random_range(0..400) {
                step(&fixture, &medium, &mut rng, life);
            }
            corrupt += fixture.corrupt();
            drop(fixture);
            match [End::Killed, End::PowerCut, End::BitsFlipped, End::Misdirected]
                [rng.random_range(0..4)]
            {
                End::Killed => {}
                End::PowerCut => medium.cut_power(),
                End::BitsFlipped => medium.flip_bits(20),
                End::Misdirected => (0..20).for_each(|_| medium.misdirect_write()),
            }
        }
        medium.set_faults(MediumFaults::default());
        served += read_all(&DiskFixture::open(medium, &Options::default()), 9);
    }
    // Else the test looks away.
    assert!(
        served > 5000 && corrupt > 100,
        "{served} pages served after restarts, {corrupt} found corrupt"
    );
}

fn step(fixture: &DiskFixture, medium: &SimulatedMedium, rng: &mut StdRng, now_s: u32) {
    let page = Page::of(rng.random_range(0..PAGES));
    match rng.random_range(0..20) {
        0 => medium.flush_pending(),
        1 => {
            fixture.folder.pin_page(page.key(), [0, u32::MAX][rng.random_range(0..2)]);
            fixture.folder.write_pin(page.key());
        }
        2 => {
            fixture.folder.evict_page(page.key(), std::time::Duration::from_secs(120));
        }
        3..8 => {
            fixture.serves(&page, now_s);
        }
        _ => {
            fixture.write(&page, now_s);
        }
    }
}

fn read_all(fixture: &DiskFixture, now_s: u32) -> u64 {
    (0..PAGES).filter(|&number| fixture.serves(&Page::of(number), now_s)).count() as u64
}

#[test]
fn a_killed_process_loses_no_written_page_and_corrupts_none() {
    for seed in 0..if cfg!(debug_assertions) { 5 } else { 50 } {
        let medium = SimulatedMedium::new(seed);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut kept = Vec::new();
        for _life in 0..5 {
            let fixture = DiskFixture::open(medium.clone(), &Options::default());
            for page in &kept {
                assert!(fixture.serves(page, 1), "{page:?} is gone after a restart");
            }
            assert_eq!(fixture.corrupt(), 0);
            for _ in 0..rng.random_range(0..300) {
                fixture.write(&Page::of(rng.random_range(0..PAGES)), 1);
            }
            kept = (0..PAGES).map(Page::of).filter(|page| fixture.serves(page, 1)).collect();
        }
        assert!(kept.len() > 50, "{}", kept.len());
    }
}

/// The call at which a process is killed is chosen in turn: no step of a write leaves a slot that
/// lies.
#[test]
fn a_kill_between_any_calls_of_a_reused_slot_corrupts_no_page() {
    // One segment of 8 KiB slots, all of them in use, and one page more.
    let options = || Options { capacity: super::disk_fixture::SEGMENT, ..Options::default() };
    let page = |number: u64| Page { number, length: 8192 };
    for dies_at in 0..6 {
        let medium = SimulatedMedium::new(dies_at);
        let fixture = DiskFixture::open(medium.clone(), &options());
        let slots = (0..100)
            .take_while(|&number| {
                fixture.write(&page(number), 1) == PageWriteOutcome::Done
                    && fixture.folder.held().0.pages == number + 1
            })
            .count() as u64;
        assert!((20..40).contains(&slots), "{slots}");
        let dying = super::disk_fixture::Dying::new(medium.clone(), dies_at);
        let fixture = DiskFixture::open(dying, &options());
        fixture.write(&page(1000), 2);
        drop(fixture);
        let fixture = DiskFixture::open(medium, &options());
        let there =
            (0..=slots).chain([1000]).filter(|&number| fixture.serves(&page(number), 3)).count()
                as u64;
        assert_eq!(fixture.corrupt(), 0, "dies at call {dies_at}");
        assert!(there >= slots - 1, "{there} of {slots} left, dies at call {dies_at}");
    }
}

#[test]
fn a_page_that_rots_is_dropped_counted_and_can_be_written_again() {
    let medium = SimulatedMedium::new(1);
    let fixture = DiskFixture::open(medium.clone(), &Options::default());
    let pages: Vec<Page> = (0..60).map(Page::of).collect();
    for page in &pages {
        assert_eq!(fixture.write(page, 1), PageWriteOutcome::Done);
    }
    while fixture.corrupt() == 0 {
        medium.flip_bits(10);
        for page in &pages {
            fixture.serves(page, 1);
        }
    }
    let rotten: Vec<&Page> =
        pages.iter().filter(|page| !fixture.folder.holds_page(page.key(), 1)).collect();
    assert_eq!(rotten.len() as u64, fixture.corrupt());
    for page in rotten {
        assert!(fixture.write(page, 1) == PageWriteOutcome::Done && fixture.serves(page, 1));
    }
}

#[test]
fn a_failing_disk_rests_and_what_it_holds_is_not_asked_for() {
    let medium = SimulatedMedium::new(1);
    let fixture = DiskFixture::open(medium.clone(), &Options::default());
    let page = Page::of(0);
    assert_eq!(fixture.write(&page, 1), PageWriteOutcome::Done);
    medium.set_faults(MediumFaults { io_per_mille: 1000, ..MediumFaults::default() });
    for number in 1..4 {
        assert_eq!(fixture.write(&Page::of(number * 6), 1), PageWriteOutcome::Failed);
    }
    let calls = medium.call_count();
    assert_eq!(fixture.write(&Page::of(5), 1), PageWriteOutcome::Resting);
    assert!(!fixture.folder.holds_page(page.key(), 1) && !fixture.serves(&page, 1));
    assert_eq!(medium.call_count(), calls, "a resting folder is left alone");
    assert_eq!(fixture.errors(MediumOperation::Write, MediumErrorKind::Failing), 3);
    // A restart tries it at once, and has what is there.
    medium.set_faults(MediumFaults::default());
    assert!(DiskFixture::open(medium, &Options::default()).serves(&page, 1));
}

#[test]
fn a_full_disk_keeps_the_tier_at_the_size_that_it_has() {
    let medium = SimulatedMedium::new(1);
    medium.set_faults(MediumFaults { space: Some(700 << 10), ..MediumFaults::default() });
    let fixture = DiskFixture::open(medium.clone(), &Options::default());
    for number in 0..PAGES {
        assert!(
            matches!(fixture.write(&Page::of(number), 1), PageWriteOutcome::Done),
            "page {number}"
        );
        assert!(fixture.serves(&Page::of(number), 1));
    }
    assert_eq!(fixture.folder.held().0.file_bytes, 2 * super::disk_fixture::SEGMENT);
    assert_eq!(
        fixture.errors(MediumOperation::Create, MediumErrorKind::Full),
        1,
        "asked once, and again only a while later"
    );
}

#[test]
fn a_disk_that_turned_read_only_still_serves_until_it_rests() {
    let medium = SimulatedMedium::new(1);
    let fixture = DiskFixture::open(medium.clone(), &Options::default());
    assert_eq!(fixture.write(&Page::of(0), 1), PageWriteOutcome::Done);
    medium.set_faults(MediumFaults { read_only: true, ..MediumFaults::default() });
    assert_eq!(fixture.write(&Page::of(6), 1), PageWriteOutcome::Failed);
    assert!(fixture.serves(&Page::of(0), 1));
    assert_eq!(fixture.errors(MediumOperation::Write, MediumErrorKind::ReadOnly), 1);
}
