//! What is kept and what is given up: heat, age, quotas, pins, widths.

use std::collections::HashMap;
use std::time::Duration;

use super::super::disk_headers::PageHeader;
use super::super::folder_store::PageWriteOutcome;
use super::super::simulated_medium::SimulatedMedium;
use super::super::slot_allocation::DiskSlotRefusal;
use super::super::volume_quota::VolumeQuotaRule;
use super::disk_fixture::{DiskFixture, Options, Page, SEGMENT};
use crate::tenants::{TenantAccounts, TenantRules, TenantTier};
use std::sync::Arc;
use verbs3_protocol::TenantTag;

fn page(number: u64) -> Page {
    Page { number, length: 4096 }
}

/// Pages of 4 KiB that a segment holds.
const SLOTS: u64 = 60;

#[test]
fn pages_that_are_read_again_outlive_those_that_are_not() {
    let fixture = DiskFixture::open(
        SimulatedMedium::new(1),
        &Options { capacity: SEGMENT, ..Options::default() },
    );
    for number in 0..10 {
        assert_eq!(fixture.write(&page(number), 1), PageWriteOutcome::Done);
    }
    for number in 100..1000 {
        for hot in 0..10 {
            assert!(fixture.serves(&page(hot), 1), "page {hot} was given up at {number}");
        }
        assert_eq!(fixture.write(&page(number), 1), PageWriteOutcome::Done);
    }
    let (held, _) = fixture.folder.held();
    assert!((SLOTS - 2..=SLOTS + 3).contains(&held.pages), "{held:?}");
}

#[test]
fn what_memory_holds_is_given_up_last() {
    let fixture = DiskFixture::open(
        SimulatedMedium::new(1),
        &Options { capacity: SEGMENT, ..Options::default() },
    );
    let resident = |key| (0..10).any(|number| page(number).key() == key);
    for number in (0..10).chain(100..500) {
        let page = page(number);
        assert_eq!(
            fixture.folder.write(page.header(), &page.content(), &resident, 1),
            PageWriteOutcome::Done
        );
    }
    assert!((0..10).all(|number| fixture.serves(&page(number), 1)));
}

#[test]
fn pages_of_age_are_not_served_and_leave() {
    let age_max = Some(Duration::from_secs(100));
    let fixture =
        DiskFixture::open(SimulatedMedium::new(1), &Options { age_max, ..Options::default() });
    fixture.write(&page(1), 1000);
    fixture.write(&page(2), 1050);
    assert!(
        fixture.serves(&page(1), 1100)
            && !fixture.serves(&page(1), 1101)
            && fixture.serves(&page(2), 1101)
    );
    fixture.folder.look_over(1101, 1000);
    assert_eq!(fixture.folder.held().0.pages, 1);
    // A clock that was set back makes nothing older.
    assert!(fixture.serves(&page(2), 5));
}

#[test]
fn a_pinned_page_survives_pressure_and_a_restart_until_its_time() {
    let medium = SimulatedMedium::new(1);
    let options =
        Options { capacity: SEGMENT, age_max: Some(Duration::from_secs(10)), ..Options::default() };
    let fixture = DiskFixture::open(medium.clone(), &options);
    fixture.write(&page(1), 1000);
    assert!(
        fixture.folder.pin_page(page(1).key(), 5000)
            && !fixture.folder.pin_page(page(2).key(), 5000)
    );
    // A shorter one takes nothing off.
    fixture.folder.pin_page(page(1).key(), 60);
    fixture.folder.write_pin(page(1).key());
    drop(fixture);
    let fixture = DiskFixture::open(medium, &options);
    for number in 100..400 {
        fixture.write(&page(number), 4000);
    }
    assert!(fixture.serves(&page(1), 4000));
    assert_eq!(fixture.folder.held().0.pinned_pages, 1);
    assert!(!fixture.serves(&page(1), 5001), "its time is over");
    fixture.folder.pin_page(page(1).key(), 0);
    assert_eq!(fixture.folder.held().0.pinned_pages, 0);
}

#[test]
fn where_all_is_pinned_nothing_is_written() {
    let fixture = DiskFixture::open(
        SimulatedMedium::new(1),
        &Options { capacity: SEGMENT, ..Options::default() },
    );
    let mut number = 0;
    while number < 100 && fixture.write(&page(number), 1) == PageWriteOutcome::Done {
        fixture.folder.pin_page(page(number).key(), 9);
        number += 1;
    }
    assert!((SLOTS - 2..=SLOTS + 3).contains(&number), "{number}");
    assert_eq!(fixture.write(&page(999), 2), PageWriteOutcome::Refused(DiskSlotRefusal::NoRoom));
    assert_eq!(
        fixture.write(&Page { number: 5000, length: 9000 }, 2),
        PageWriteOutcome::Refused(DiskSlotRefusal::NoRoom),
        "of another width too"
    );
    assert_eq!(fixture.write(&page(999), 10), PageWriteOutcome::Done);
}

#[test]
fn a_volume_over_its_quota_gives_up_its_own_pages() {
    let rule = VolumeQuotaRule { bytes_max: Some(10 * 4096), age_max: None };
    let options = Options { rules: HashMap::from([(7, rule)]), ..Options::default() };
    let medium = SimulatedMedium::new(1);
    let fixture = DiskFixture::open(medium.clone(), &options);
    for number in 0..40 {
        assert_eq!(fixture.write(&page(number), 1), PageWriteOutcome::Done);
    }
    for number in 100..200 {
        assert_eq!(fixture.write_as(&page(number), 7, 1), PageWriteOutcome::Done);
        assert!(fixture.serves(&page(100), 1), "its hot page stays");
    }
    let count = |fixture: &DiskFixture, range: std::ops::Range<u64>| {
        range.filter(|&number| fixture.serves(&page(number), 1)).count()
    };
    assert_eq!((count(&fixture, 0..40), count(&fixture, 100..200)), (40, 10));
    // The quota is of its place on disk, and holds after a restart.
    let fixture = DiskFixture::open(medium, &options);
    assert_eq!(fixture.write_as(&page(300), 7, 1), PageWriteOutcome::Done);
    assert_eq!((count(&fixture, 0..40), count(&fixture, 100..301)), (40, 10));
    let huge = Page { number: 5000, length: 50_000 };
    assert_eq!(fixture.write_as(&huge, 7, 1), PageWriteOutcome::Refused(DiskSlotRefusal::Quota));
}

#[test]
fn another_width_takes_the_segment_that_was_unused_for_longest() {
    let fixture = DiskFixture::open(
        SimulatedMedium::new(1),
        &Options { capacity: 4 * SEGMENT, ..Options::default() },
    );
    let wide = |number: u64| Page { number: 10_000 + number, length: 16 << 10 };
    for number in 0..4 * SLOTS {
        fixture.write(&page(number), 1);
    }
    assert_eq!(fixture.write(&wide(0), 100), PageWriteOutcome::Done);
    for number in 1..200 {
        assert_eq!(fixture.write(&wide(number), 100 + number as u32), PageWriteOutcome::Done);
    }
    // What nobody asks for any more makes place for what comes now, segment by segment, but for the
    // last.
    let wide_ones = (0..200).filter(|&number| fixture.serves(&wide(number), 300)).count();
    assert!(wide_ones >= 30, "{wide_ones}");
    let (held, _) = fixture.folder.held();
    assert_eq!(held.file_bytes, 4 * SEGMENT);
}

#[test]
fn a_smaller_capacity_removes_segments_at_the_next_start() {
    let medium = SimulatedMedium::new(1);
    let fixture = DiskFixture::open(medium.clone(), &Options::default());
    for number in 0..8 * SLOTS {
        fixture.write(&page(number), 1);
    }
    let before = fixture.folder.held().0;
    let fixture =
        DiskFixture::open(medium, &Options { capacity: 2 * SEGMENT, ..Options::default() });
    let (held, _) = fixture.folder.held();
    assert_eq!((before.file_bytes, held.file_bytes), (8 * SEGMENT, 2 * SEGMENT));
    assert!(
        (0..8 * SLOTS).filter(|&number| fixture.serves(&page(number), 1)).count() as u64
            >= 2 * SLOTS - 6
    );
    assert_eq!(fixture.write(&page(9999), 1), PageWriteOutcome::Done);
}

#[test]
fn objects_are_known_by_the_pages_of_their_first_block() {
    let fixture = DiskFixture::open(SimulatedMedium::new(1), &Options::default());
    let first = page(0);
    fixture.write(&first, 1);
    fixture.write(&page(3), 1);
    let PageHeader { object, page: number, .. } = first.header();
    assert!(fixture.folder.knows_object_page(object, number));
    assert!(!fixture.folder.knows_object_page(object, number + 1), "that page is of block 1");
    assert!(!fixture.folder.knows_object_page(object + 1, number));
    fixture.folder.evict_page(first.key(), Duration::from_secs(120));
    assert!(!fixture.folder.knows_object_page(object, number));
}

#[test]
fn more_pages_than_the_index_may_have_are_not_kept() {
    let medium = SimulatedMedium::new(1);
    let fixture =
        DiskFixture::open(medium.clone(), &Options { pages_max: 20, ..Options::default() });
    for number in 0..100 {
        let page = Page { number, length: [4096, 9000][(number % 2) as usize] };
        assert_eq!(fixture.write(&page, 1), PageWriteOutcome::Done);
        assert!(fixture.serves(&page, 1));
        assert!(fixture.folder.held().0.pages <= 20);
        assert_eq!(fixture.folder.has_room(4096), number < 19);
    }
    assert_eq!(fixture.folder.held().0.pages, 20);
    let fixture = DiskFixture::open(medium, &Options { pages_max: 5, ..Options::default() });
    assert_eq!(fixture.folder.held().0.pages, 5);
    assert_eq!(fixture.write(&page(999), 1), PageWriteOutcome::Done);
}

/// Accounts over a disk of so many bytes, of which half is kept for the active tenants.
fn shared_disk(capacity: u64) -> Arc<TenantAccounts> {
    share_disk(capacity, 50)
}

fn share_disk(capacity: u64, share_percent: u32) -> Arc<TenantAccounts> {
    let active_for = Duration::from_secs(100);
    let rules = TenantRules { share_percent, active_for, reserve_percent: 0 };
    let tenants = TenantAccounts::new(rules, verbs3_metrics::TableFamily::default());
    tenants.set_capacity(TenantTier::Disk, capacity, 0);
    Arc::new(tenants)
}

#[test]
fn a_scan_leaves_each_tenant_its_disk_share_after_a_restart_too() {
    let medium = SimulatedMedium::new(1);
    let open = || {
        let tenants = shared_disk(SEGMENT);
        let options = Options { capacity: SEGMENT, tenants: tenants.clone(), ..Options::default() };
        (DiskFixture::open(medium.clone(), &options), tenants)
    };
    let write = |fixture: &DiskFixture, tenants: &TenantAccounts, name: &str, number: u64| {
        let account = tenants.note_request(TenantTag::new(name, 1).as_ref(), 0);
        let header = PageHeader { tenant: tenants.stored_hash(account), ..page(number).header() };
        fixture.folder.write(header, &page(number).content(), &|_| false, 1)
    };
    let (fixture, tenants) = open();
    for number in 0..10 {
        assert_eq!(write(&fixture, &tenants, "victim", number), PageWriteOutcome::Done);
    }
    for number in 100..500 {
        assert_eq!(write(&fixture, &tenants, "scan", number), PageWriteOutcome::Done);
    }
    let is_there =
        |fixture: &DiskFixture| (0..10).all(|number| fixture.folder.lists_page(page(number).key()));
    assert!(is_there(&fixture));
    drop(fixture);
    let (fixture, tenants) = open();
    tenants.note_request(TenantTag::new("victim", 1).as_ref(), 0);
    for number in 500..900 {
        assert_eq!(write(&fixture, &tenants, "scan", number), PageWriteOutcome::Done);
    }
    assert!(is_there(&fixture), "pages say whose they are");
    // Without the other tenant everything is the scan's.
    tenants.note_request(TenantTag::new("scan", 1).as_ref(), 200);
    tenants.look_over(200);
    for number in 1000..1400 {
        assert_eq!(write(&fixture, &tenants, "scan", number), PageWriteOutcome::Done);
    }
    assert!((0..10).all(|number| !fixture.folder.lists_page(page(number).key())));
}

/// Slots of one width, some in each segment, must not keep another tenant from its share.
#[test]
fn segments_of_another_width_keep_nobody_from_its_share() {
    let capacity = 8 * SEGMENT;
    let tenants = share_disk(capacity, 100);
    let options = Options { capacity, tenants: tenants.clone(), ..Options::default() };
    let fixture = DiskFixture::open(SimulatedMedium::new(1), &options);
    let [small, large] =
        ["small", "large"].map(|name| tenants.note_request(TenantTag::new(name, 1).as_ref(), 0));
    let write = |account, page: Page| {
        let header = PageHeader { tenant: tenants.stored_hash(account), ..page.header() };
        fixture.folder.write(header, &page.content(), &|_| false, 1)
    };
    for number in 0..400 {
        write(small, page(number));
    }
    let held = |account| tenants.held_bytes(TenantTier::Disk, account);
    for number in 1000..1040 {
        assert_eq!(write(large, Page { number, length: 16 << 10 }), PageWriteOutcome::Done);
    }
    assert!(held(large) >= 40 * (16 << 10) - SEGMENT, "{} of {capacity}", held(large));
    assert!(held(small) > 0);
}

/// Shares are of bytes. Other bounds that one tenant has reached within its share must not keep the
/// other one out.
#[test]
fn a_tenant_finds_room_although_another_has_all_pages_or_quota() {
    let rule = VolumeQuotaRule { bytes_max: Some(10 * 4096), age_max: None };
    for (pages_max, rules) in [(20, HashMap::new()), (1000, HashMap::from([(7, rule)]))] {
        let tenants = shared_disk(SEGMENT);
        let options = Options {
            capacity: SEGMENT,
            pages_max,
            rules,
            tenants: tenants.clone(),
            ..Options::default()
        };
        let fixture = DiskFixture::open(SimulatedMedium::new(1), &options);
        let write = |name: &str, number: u64| {
            let account = tenants.note_request(TenantTag::new(name, 1).as_ref(), 0);
            let tenant = tenants.stored_hash(account);
            let header = PageHeader { tenant, volume: 7, ..page(number).header() };
            fixture.folder.write(header, &page(number).content(), &|_| false, 1)
        };
        for name in ["early", "late"] {
            tenants.note_request(TenantTag::new(name, 1).as_ref(), 0);
        }
        for number in 100..120 {
            assert_eq!(write("early", number), PageWriteOutcome::Done);
        }
        for number in 0..5 {
            assert_eq!(write("late", 200 + number), PageWriteOutcome::Done, "{pages_max}");
        }
    }
}
