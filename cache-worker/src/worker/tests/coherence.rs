//! The coherence contract, as one home keeps it.

use std::time::Duration;

use verbs3_protocol::{
    AnnounceMessage, ByteRange, Epoch, ListedAttributes, ListedEntry, ListingMessage, NoticeAnswer,
    ObjectVolume, OpenMessage, RefusalKind, ReportMessage, TenantNotice, WorkerRequest, WriteId,
    WriteNotice, WriteOutcome,
};
use verbs3_rdma::inprocess::InProcessMode;

use super::holding_store::Stored;
use super::worker_fixture::{
    BLOCK, PAGE, WRITE, WorkerFixture, modes, open, read, volume, with_settings,
};
use verbs3_settings::TimePeriod;

const ALL: Option<ByteRange> = Some(ByteRange::All);

fn other(sequence: u64) -> WriteId {
    WriteId { gateway: 2, sequence }
}

async fn assert_uncertain(fixture: &WorkerFixture, key: &str) {
    let asked = fixture.store.asked();
    assert_eq!(fixture.open(open(key, ALL)).await.refused(), Some(&RefusalKind::Uncertain));
    assert_eq!(fixture.open(open(key, None)).await.refused(), Some(&RefusalKind::Uncertain));
    assert_eq!(fixture.store.asked(), asked);
}

#[tokio::test]
async fn a_key_is_uncertain_until_its_report_and_then_asked_anew() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        fixture.store.put("k", Stored::new(1, 1000));
        fixture.store.put("l", Stored::new(7, 1000));
        fixture.open(open("k", ALL)).await;
        fixture.open(open("l", ALL)).await;
        assert!(fixture.announce("k", WRITE, 10_000).await.is_done());
        assert_uncertain(&fixture, "k").await;
        fixture.store.put("k", Stored::new(2, 1000));
        assert!(fixture.report("k", WRITE, WriteOutcome::Done).await.is_done());
        let got = fixture.open(open("k", ALL)).await;
        assert_eq!(got.bytes, Stored::new(2, 1000).content(0..1000));
        assert!(!got.opened().attributes_cached);
        assert!(fixture.open(open("l", ALL)).await.opened().attributes_cached);
    }
}

#[tokio::test]
async fn a_write_ends_an_absence() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.open(open("k", ALL)).await.absent();
    fixture.announce("k", WRITE, 10_000).await;
    fixture.store.put("k", Stored::new(2, 1000));
    fixture.report("k", WRITE, WriteOutcome::Done).await;
    assert_eq!(fixture.open(open("k", ALL)).await.bytes.len(), 1000);
}

#[tokio::test]
async fn an_unannounced_report_invalidates_all_the_same() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.open(open("k", ALL)).await;
    fixture.store.put("k", Stored::new(2, 1000));
    fixture.report("k", WRITE, WriteOutcome::Done).await;
    assert_eq!(fixture.open(open("k", ALL)).await.bytes, Stored::new(2, 1000).content(0..1000));
}

#[tokio::test]
async fn forgetting_makes_void() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.open(open("k", ALL)).await;
    fixture.store.put("k", Stored::new(2, 1000));
    assert!(fixture.forget("k").await.is_done());
    assert_eq!(fixture.open(open("k", ALL)).await.bytes, Stored::new(2, 1000).content(0..1000));
}

fn shown(stored: &Stored) -> Option<ListedAttributes> {
    Some(ListedAttributes {
        etag: Some(stored.etag()),
        bytes: Some(stored.bytes),
        last_modified_ms: None,
    })
}

#[tokio::test]
async fn only_a_listing_that_contradicts_invalidates() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let (old, new) = (Stored::new(1, 1000), Stored::new(2, 1000));
    fixture.store.put("k", old.clone());
    let known = fixture.open(open("k", ALL)).await.opened().attributes.clone();
    let seconds = known.last_modified.unwrap();
    assert!(fixture.listed("k", shown(&old)).await.is_done());
    let late = Some(ListedAttributes {
        last_modified_ms: Some(seconds * 1000 + 250),
        ..ListedAttributes::default()
    });
    assert!(fixture.listed("k", late).await.is_done());
    assert!(fixture.listed("unknown", shown(&new)).await.is_done());
    assert!(fixture.open(open("k", ALL)).await.opened().attributes_cached);
    fixture.store.put("k", new.clone());
    assert!(fixture.listed("k", shown(&new)).await.is_done());
    let got = fixture.open(open("k", ALL)).await;
    assert_eq!(got.bytes, new.content(0..1000));
    assert!(!got.opened().attributes_cached);
    let touched = Some(ListedAttributes {
        last_modified_ms: Some((seconds + 60) * 1000),
        ..ListedAttributes::default()
    });
    fixture.listed("k", touched).await;
    assert!(
        !fixture.open(open("k", ALL)).await.opened().attributes_cached,
        "its metadata may be others"
    );
}

#[tokio::test]
async fn a_listing_ends_an_absence_and_a_delete_marker_a_presence() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let new = Stored::new(2, 1000);
    fixture.open(open("k", ALL)).await.absent();
    fixture.listed("k", None).await;
    assert!(fixture.open(open("k", ALL)).await.absent().cached, "it is absent in the listing, too");
    fixture.store.put("k", new.clone());
    fixture.listed("k", shown(&new)).await;
    assert_eq!(fixture.open(open("k", ALL)).await.bytes.len(), 1000);
    fixture.store.objects.lock().remove("k");
    fixture.listed("k", None).await;
    fixture.open(open("k", ALL)).await.absent();
}

/// An uncached mount of a gateway may be of a UFS that no worker has.
#[tokio::test]
async fn a_write_of_what_the_home_can_not_cache_is_acknowledged() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let (volume, keys, epoch) =
        (ObjectVolume::new("archive", "bucket"), vec!["k".to_owned()], Epoch(1));
    let announce = AnnounceMessage {
        volume: volume.clone(),
        keys: keys.clone(),
        write: WRITE,
        epoch,
        uncertain_ms: 1000,
    };
    assert!(fixture.ask(WorkerRequest::Announce(announce)).await.is_done());
    let report = ReportMessage { volume, keys, write: WRITE, epoch, outcome: WriteOutcome::Done };
    assert!(fixture.ask(WorkerRequest::Report(report)).await.is_done());
}

#[tokio::test]
async fn a_listing_of_nothing_or_of_a_foreign_volume_is_refused() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let nothing = fixture
        .ask(WorkerRequest::Listed(ListingMessage { volume: volume(), entries: vec![] }))
        .await;
    assert_eq!(nothing.refused(), Some(&RefusalKind::Malformed));
    let entries = vec![ListedEntry { key: "k".into(), shown: None }];
    let foreign = fixture
        .ask(WorkerRequest::Listed(ListingMessage {
            volume: ObjectVolume::new("main", "other"),
            entries,
        }))
        .await;
    assert_eq!(foreign.refused(), Some(&RefusalKind::UnknownVolume));
}

/// The UFS has answered the check with the old version, but the answer is still on its way while a
/// write passes.
#[tokio::test]
async fn a_late_answer_of_the_old_version_is_neither_kept_nor_given() {
    for mode in modes() {
        let fixture = WorkerFixture::new(mode);
        fixture.store.put("k", Stored::new(1, 1000));
        fixture.store.hold();
        let reading = fixture.open(open("k", ALL));
        let writing = async {
            fixture.store.wait_held(1).await;
            fixture.announce("k", WRITE, 10_000).await;
            fixture.store.put("k", Stored::new(2, 1000));
            fixture.report("k", WRITE, WriteOutcome::Done).await;
            fixture.store.release();
        };
        let (got, ()) = tokio::join!(reading, writing);
        let new = Stored::new(2, 1000).content(0..1000);
        assert_eq!(got.bytes, new);
        assert_eq!(fixture.open(open("k", ALL)).await.bytes, new);
    }
}

#[tokio::test]
async fn a_late_answer_while_the_write_is_open_is_uncertain() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.store.hold();
    let reading = fixture.open(open("k", ALL));
    let writing = async {
        fixture.store.wait_held(1).await;
        fixture.announce("k", WRITE, 10_000).await;
        fixture.store.release();
    };
    let (got, ()) = tokio::join!(reading, writing);
    assert_eq!(got.refused(), Some(&RefusalKind::Uncertain));
}

/// A reader that accepts no age must not have the answer of a check that was sent before it came,
/// even where no gateway announced the change.
#[tokio::test]
async fn a_read_that_accepts_no_age_waits_for_a_check_of_its_own() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.store.hold();
    let always = || OpenMessage { attributes_age_ms_max: 0, ..open("k", ALL) };
    let first = fixture.open(always());
    let second = async {
        fixture.store.wait_held(1).await;
        fixture.store.put("k", Stored::new(2, 1000));
        let second = fixture.open(always());
        let release = async { fixture.store.release() };
        tokio::join!(second, release).0
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.bytes, Stored::new(1, 1000).content(0..1000));
    assert_eq!(second.bytes, Stored::new(2, 1000).content(0..1000));
}

#[tokio::test]
async fn a_read_after_a_write_joins_no_check_from_before_it() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.store.hold();
    let first = fixture.open(open("k", ALL));
    let second = async {
        fixture.store.wait_held(1).await;
        fixture.announce("k", WRITE, 10_000).await;
        fixture.store.put("k", Stored::new(2, 1000));
        fixture.report("k", WRITE, WriteOutcome::Done).await;
        let second = fixture.open(open("k", ALL));
        let release = async { fixture.store.release() };
        tokio::join!(second, release).0
    };
    let (_, second) = tokio::join!(first, second);
    assert_eq!(second.bytes, Stored::new(2, 1000).content(0..1000));
}

#[tokio::test]
async fn a_write_without_a_report_stays_uncertain_for_its_time() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.open(open("k", ALL)).await;
    fixture.announce("k", WRITE, 10_000).await;
    fixture.clock.advance_time(Duration::from_millis(9_999));
    assert_uncertain(&fixture, "k").await;
    fixture.announce("k", WRITE, 10_000).await;
    fixture.clock.advance_time(Duration::from_millis(9_999));
    assert_uncertain(&fixture, "k").await;
    fixture.store.put("k", Stored::new(2, 1000));
    fixture.clock.advance_time(Duration::from_millis(1));
    let got = fixture.open(open("k", ALL)).await;
    assert!(!got.opened().attributes_cached);
    assert_eq!(got.bytes, Stored::new(2, 1000).content(0..1000));
}

#[tokio::test]
async fn a_write_of_unknown_outcome_stays_uncertain() {
    let longest = TimePeriod::from_seconds(20);
    let worker = with_settings(|settings| settings.writes.uncertain_for_max = longest);
    let fixture = WorkerFixture::with(InProcessMode::Share, 8, worker);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.announce("k", WRITE, 10_000).await;
    fixture.clock.advance_time(Duration::from_secs(9));
    fixture.report("k", WRITE, WriteOutcome::Unknown).await;
    fixture.clock.advance_time(Duration::from_secs(9));
    assert_uncertain(&fixture, "k").await;
    fixture.clock.advance_time(Duration::from_secs(1));
    assert_eq!(fixture.open(open("k", ALL)).await.bytes.len(), 1000);
    // Nothing is known of this one: it gets the longest time.
    fixture.report("k", other(9), WriteOutcome::Unknown).await;
    fixture.clock.advance_time(Duration::from_secs(19));
    assert_uncertain(&fixture, "k").await;
    fixture.clock.advance_time(Duration::from_secs(1));
    assert_eq!(fixture.open(open("k", ALL)).await.bytes.len(), 1000);
}

#[tokio::test]
async fn uncertainty_has_a_longest_time() {
    let longest = TimePeriod::from_seconds(1);
    let worker = with_settings(|settings| settings.writes.uncertain_for_max = longest);
    let fixture = WorkerFixture::with(InProcessMode::Share, 8, worker);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.announce("k", WRITE, u64::MAX).await;
    assert_uncertain(&fixture, "k").await;
    fixture.clock.advance_time(Duration::from_secs(1));
    assert_eq!(fixture.open(open("k", ALL)).await.bytes.len(), 1000);
}

#[tokio::test]
async fn two_writes_of_a_key_are_both_waited_for() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, 1000));
    fixture.announce("k", WRITE, 10_000).await;
    fixture.announce("k", other(1), 10_000).await;
    fixture.report("k", WRITE, WriteOutcome::Done).await;
    assert_uncertain(&fixture, "k").await;
    fixture.report("k", other(1), WriteOutcome::Refused).await;
    assert_eq!(fixture.open(open("k", ALL)).await.bytes.len(), 1000);
}

#[tokio::test]
async fn open_writes_beyond_the_bound_are_refused_and_change_nothing() {
    let fixture = WorkerFixture::with(
        InProcessMode::Share,
        8,
        with_settings(|settings| settings.writes.open_max = 2),
    );
    fixture.store.put("c", Stored::new(1, 1000));
    fixture.announce("a", WRITE, 10_000).await;
    fixture.announce("b", WRITE, 20_000).await;
    assert_eq!(fixture.announce("c", WRITE, 10_000).await.refused(), Some(&RefusalKind::Busy));
    assert_eq!(fixture.open(open("c", ALL)).await.bytes.len(), 1000);
    assert!(fixture.announce("a", WRITE, 10_000).await.is_done(), "a renewal takes no place");
    fixture.clock.advance_time(Duration::from_secs(10));
    assert!(
        fixture.announce("c", WRITE, 10_000).await.is_done(),
        "an expired write gives its place back"
    );
}

/// Replaced behind the gateways' backs, in the middle of a read: the old version's held pages are
/// right, and nothing of the new one is ever given for them.
#[tokio::test]
async fn an_object_replaced_in_mid_read_is_never_mixed() {
    for ignores_conditions in [false, true] {
        let fixture = WorkerFixture::new(InProcessMode::Share);
        *fixture.store.ignores_conditions.lock() = ignores_conditions;
        let old = Stored::new(1, 2 * BLOCK);
        fixture.store.put("k", old.clone());
        // The first block alone: a request for both would bring the old bytes of both.
        let first = ByteRange::From { first: 0, last: Some(BLOCK - 1) };
        fixture.open(open("k", Some(first))).await;
        fixture.store.put("k", Stored::new(2, 2 * BLOCK));
        assert_eq!(fixture.read(read("k", &old, 0, 5..10)).await.bytes, old.content(5..10));
        let got = fixture.read(read("k", &old, 1, 0..BLOCK as u32)).await;
        assert_eq!((got.refused(), got.bytes.len()), (Some(&RefusalKind::VersionGone), 0));
    }
}

/// The attributes of a replaced version are not answered when its bytes can't be had.
#[tokio::test]
async fn an_open_that_finds_its_version_gone_asks_again() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored::new(1, BLOCK));
    fixture.open(open("k", Some(ByteRange::From { first: 0, last: Some(10) }))).await;
    let new = Stored::new(2, BLOCK);
    fixture.store.put("k", new.clone());
    let got = fixture
        .open(open("k", Some(ByteRange::From { first: 5 * PAGE, last: Some(5 * PAGE + 9) })))
        .await;
    assert_eq!(got.bytes, new.content(5 * PAGE..5 * PAGE + 10));
    assert_eq!(got.opened().attributes.version.etag, new.etag());
}

#[tokio::test]
async fn an_object_that_is_deleted_in_mid_read_is_gone() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let old = Stored::new(1, BLOCK);
    let got = fixture.read(read("k", &old, 0, 0..10)).await;
    assert_eq!(got.refused(), Some(&RefusalKind::VersionGone));
}

#[tokio::test]
async fn a_named_version_is_cached_beside_the_current_one() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    fixture.store.put("k", Stored { version_id: Some("one".into()), ..Stored::new(1, 1000) });
    let named = || OpenMessage { version_id: Some("one".into()), ..open("k", ALL) };
    assert_eq!(fixture.open(named()).await.bytes.len(), 1000);
    assert!(fixture.open(named()).await.opened().attributes_cached);
    assert!(!fixture.open(open("k", ALL)).await.opened().attributes_cached);
    fixture.report("k", WRITE, WriteOutcome::Done).await;
    assert!(
        !fixture.open(named()).await.opened().attributes_cached,
        "a delete by version id makes void, too"
    );
}

#[tokio::test]
async fn a_version_id_is_part_of_identity() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let one = Stored { version_id: Some("one".into()), ..Stored::new(1, 1000) };
    fixture.store.put("k", one.clone());
    let got = fixture.open(open("k", ALL)).await;
    assert_eq!(got.opened().attributes.version.version_id.as_deref(), Some("one"));
    let named = OpenMessage { version_id: Some("two".into()), ..open("k", ALL) };
    let refused = fixture.open(named).await;
    assert_eq!(refused.refused(), Some(&RefusalKind::Uncacheable));
    fixture.store.put("k", Stored { version_id: Some("two".into()), ..Stored::new(1, 1000) });
    let far = fixture
        .read(super::worker_fixture::read("k", &Stored { bytes: 1000, ..one }, 0, 0..10))
        .await;
    assert_eq!(far.bytes.len(), 10, "the held version stays readable");
}

/// A listing is acknowledged while a check of its key is under way, which saw what was before.
#[tokio::test]
async fn a_check_that_is_older_than_a_listing_is_not_believed() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let (old, new) = (Stored::new(1, 1000), Stored::new(2, 1000));
    for (before, after, state) in [
        (Some(&old), Some(&new), shown(&new)),
        (None, Some(&new), shown(&new)),
        (Some(&old), None, None),
    ] {
        fixture.store.objects.lock().clear();
        fixture.forget("k").await;
        if let Some(before) = before {
            fixture.store.put("k", before.clone());
        }
        fixture.store.hold();
        let change = async {
            fixture.store.wait_held(1).await;
            fixture.store.objects.lock().clear();
            if let Some(after) = after {
                fixture.store.put("k", after.clone());
            }
            assert!(fixture.listed("k", state).await.is_done());
            fixture.store.release();
        };
        let (asked, ()) = tokio::join!(fixture.open(open("k", ALL)), change);
        let now = fixture.open(open("k", ALL)).await;
        match after {
            Some(after) => assert_eq!(
                (asked.bytes, now.bytes),
                (after.content(0..1000), after.content(0..1000))
            ),
            None => {
                assert!(now.absent().cached && asked.absent().generation == now.absent().generation)
            }
        }
    }
}

/// The second listing comes late, and shows what the check has seen.
#[tokio::test]
async fn a_check_that_one_of_two_listings_contradicts_is_asked_again() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let (old, new) = (Stored::new(1, 1000), Stored::new(2, 1000));
    fixture.store.put("k", old.clone());
    fixture.store.hold();
    let change = async {
        fixture.store.wait_held(1).await;
        fixture.store.put("k", new.clone());
        assert!(fixture.listed("k", shown(&new)).await.is_done());
        assert!(fixture.listed("k", shown(&old)).await.is_done());
        fixture.store.release();
    };
    let (asked, ()) = tokio::join!(fixture.open(open("k", ALL)), change);
    let known = fixture.open(open("k", ALL)).await;
    assert_eq!((asked.bytes, known.bytes), (new.content(0..1000), new.content(0..1000)));
}

/// A reader was told by the store that the version is gone, after the check had been answered.
#[tokio::test]
async fn a_check_does_not_bring_back_a_version_that_is_gone() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let (old, new) = (Stored::new(1, 1000), Stored::new(2, 1000));
    fixture.store.put("k", old.clone());
    fixture.store.hold();
    let change = async {
        fixture.store.wait_held(1).await;
        fixture.store.put("k", new.clone());
        assert!(fixture.gone("k", &old).await.is_done());
        fixture.store.release();
    };
    let (asked, ()) = tokio::join!(fixture.open(open("k", ALL)), change);
    let known = fixture.open(open("k", ALL)).await;
    assert_eq!((asked.bytes, known.bytes), (new.content(0..1000), new.content(0..1000)));
    // News of a version that is not known change nothing.
    assert!(fixture.gone("k", &old).await.is_done());
    assert!(fixture.open(open("k", ALL)).await.opened().attributes_cached);
}

#[tokio::test]
async fn a_check_that_a_listing_agrees_with_is_asked_once() {
    let fixture = WorkerFixture::new(InProcessMode::Share);
    let stored = Stored::new(1, 1000);
    fixture.store.put("k", stored.clone());
    fixture.store.hold();
    let list = async {
        fixture.store.wait_held(1).await;
        assert!(fixture.listed("k", shown(&stored)).await.is_done());
        fixture.store.release();
    };
    tokio::join!(fixture.open(open("k", ALL)), list);
    assert!(fixture.open(open("k", ALL)).await.opened().attributes_cached);
    assert_eq!(fixture.store.asked(), (1, 0));
}

/// The store completes a write long after its writer has given it up, where attributes are believed
/// for ever.
#[tokio::test]
async fn what_is_learnt_behind_a_lost_write_is_not_believed_for_ever() {
    let worker = with_settings(|settings| {
        settings.writes.doubt_for = TimePeriod::from_seconds(600);
        settings.writes.doubt_age_max = TimePeriod::from_seconds(5);
    });
    for before in [Some(Stored::new(1, 1000)), None] {
        let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker.clone());
        if let Some(before) = &before {
            fixture.store.put("k", before.clone());
        }
        fixture.store.put("other", Stored::new(3, 1000));
        fixture.announce("k", WRITE, 10_000).await;
        fixture.report("k", WRITE, WriteOutcome::Unknown).await;
        fixture.clock.advance_time(Duration::from_secs(11));
        let asked = |fixture: &WorkerFixture| fixture.store.asked();
        for key in ["k", "other"] {
            fixture.open(open(key, ALL)).await;
        }
        let learnt = asked(&fixture);
        fixture.open(open("k", ALL)).await;
        assert_eq!(asked(&fixture), learnt, "for a short time it is believed");
        let late = Stored::new(2, 1000);
        fixture.store.put("k", late.clone());
        fixture.clock.advance_time(Duration::from_secs(6));
        assert_eq!(fixture.open(open("k", ALL)).await.bytes, late.content(0..1000));
        let learnt = asked(&fixture);
        fixture.open(open("other", ALL)).await;
        assert_eq!(asked(&fixture), learnt, "no other key is in doubt");
        // Once the doubt is over, the key is asked about once more, and believed for ever again.
        fixture.clock.advance_time(Duration::from_secs(600));
        fixture.worker.look_over();
        assert_eq!(fixture.open(open("k", ALL)).await.bytes, late.content(0..1000));
        let learnt = asked(&fixture);
        fixture.clock.advance_time(Duration::from_secs(10_000));
        assert!(fixture.open(open("k", ALL)).await.opened().attributes_cached);
        assert_eq!(asked(&fixture), learnt);
    }
}

#[tokio::test]
async fn open_writes_of_one_tenant_do_not_stop_those_of_another() {
    let worker = with_settings(|settings| settings.writes.open_max = 100);
    let fixture = WorkerFixture::with(InProcessMode::Share, 8, worker);
    let [eve, bob] = ["eve", "bob"].map(|name| verbs3_protocol::TenantTag::new(name, 1));
    let key = |number: u64| vec![format!("eve/{number}")];
    let mut opened = 0;
    while fixture.announce_for(eve, key(opened), other(opened), 10_000).await.is_done() {
        opened += 1;
    }
    assert_eq!(opened, 99, "nobody else is there: all but a tenth of the reserve");
    let refused = fixture.announce_for(eve, key(opened), other(opened), 10_000).await;
    assert_eq!(refused.refused(), Some(&RefusalKind::Busy));
    let own = vec!["bob/k".to_owned()];
    assert!(fixture.announce_for(bob, own, WRITE, 10_000).await.is_done());
    assert!(fixture.announce_for(eve, key(0), other(0), 10_000).await.is_done(), "a renewal");
    let refusals = |name| fixture.worker.metrics.tenants.select_table(name).write_refusals.get();
    assert_eq!([refusals("eve"), refusals("bob")], [2, 0]);
}

/// The coordinators say whose writes they carry.
#[tokio::test]
async fn relayed_writes_of_one_tenant_do_not_stop_those_of_another() {
    let worker = with_settings(|settings| settings.writes.open_max = 100);
    let fixture = WorkerFixture::with(InProcessMode::Share, 8, worker);
    let [eve, bob] = ["eve", "bob"].map(|name| verbs3_protocol::TenantTag::new(name, 1));
    let relay = |tenant, number| {
        let (volume, keys, write) = (volume(), vec![format!("k{number}")], other(number));
        let (epoch, uncertain_ms) = (Epoch(1), 10_000);
        let announce = AnnounceMessage { volume, keys, write, epoch, uncertain_ms };
        let notice = TenantNotice { word: WriteNotice::Announce(announce), tenant };
        fixture.worker.apply_relayed_word(&notice) == NoticeAnswer::Done
    };
    assert_eq!((0..).take_while(|&number| relay(eve, number)).count(), 99);
    assert!(relay(bob, 1000), "a part of the reserve was left");
    let refusals = |name| fixture.worker.metrics.tenants.select_table(name).write_refusals.get();
    assert_eq!([refusals("eve"), refusals("bob")], [1, 0]);
}

/// More writes are lost than are remembered by name, and than may put buckets in doubt. What else the
/// tenant may have written is believed for a short time, and nothing of others.
#[tokio::test]
async fn many_lost_writes_put_the_prefix_of_their_tenant_in_doubt() {
    let worker = with_settings(|settings| {
        settings.writes.open_max = 2000;
        settings.writes.doubt_for = TimePeriod::from_seconds(600);
        settings.writes.doubt_age_max = TimePeriod::from_seconds(5);
    });
    let fixture = WorkerFixture::with(InProcessMode::Share, 32, worker);
    let eve = verbs3_protocol::TenantTag::new("eve", 1);
    // The prefix of the last two waves is in doubt.
    for wave in 0..5 {
        let keys = (0..1000).map(|number| format!("eve/{wave}/{number}")).collect();
        assert!(fixture.announce_for(eve, keys, other(wave), 1000).await.is_done());
        fixture.clock.advance_time(Duration::from_secs(2));
        fixture.worker.look_over();
    }
    let (below, late) = (Stored::new(1, 1000), Stored::new(2, 1000));
    fixture.store.put("eve/any", below);
    fixture.store.put("bob/k", Stored::new(3, 1000));
    for key in ["eve/any", "bob/k"] {
        fixture.open(open(key, ALL)).await;
    }
    fixture.store.put("eve/any", late.clone());
    fixture.clock.advance_time(Duration::from_secs(6));
    assert_eq!(fixture.open(open("eve/any", ALL)).await.bytes, late.content(0..1000));
    assert!(fixture.open(open("bob/k", ALL)).await.opened().attributes_cached);
    // What is learnt in doubt is void at its end, however long nobody reads it, then believed for
    // ever.
    fixture.store.put("eve/other", Stored::new(5, 1000));
    fixture.open(open("eve/other", ALL)).await;
    let last = Stored::new(4, 1000);
    fixture.store.put("eve/any", last.clone());
    fixture.clock.advance_time(Duration::from_secs(600));
    fixture.worker.look_over();
    assert_eq!(fixture.worker.home.coherence.doubt_count(), 0);
    assert_eq!(fixture.worker.home.voids.held_count(), 1);
    assert_eq!(fixture.open(open("eve/any", ALL)).await.bytes, last.content(0..1000));
    fixture.clock.advance_time(Duration::from_secs(10_000));
    for key in ["eve/any", "bob/k"] {
        assert!(fixture.open(open(key, ALL)).await.opened().attributes_cached, "{key}");
    }
    // Nothing that stays is left of the doubt.
    fixture.worker.look_over();
    assert_eq!(fixture.worker.home.voids.held_count(), 0);
    let changed = Stored::new(6, 1000);
    fixture.store.put("eve/other", changed.clone());
    assert_eq!(fixture.open(open("eve/other", ALL)).await.bytes, changed.content(0..1000));
}
