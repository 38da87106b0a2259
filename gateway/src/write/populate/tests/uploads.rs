//! Multipart uploads: parts keep the place that they have in the completed object, or are given up.

use super::super::GatewayPopulateSettings;
use super::super::{BodySubject, PartName, PopulatedWrite};
use super::populate_fixture::{BLOCK, PAGE, PopulateFixture, content, pages_of, settings, version};

#[tokio::test]
async fn parts_in_any_order_make_the_pages_of_the_object() {
    let part = (BLOCK + 2 * PAGE) as usize;
    let content = content(7, 3 * part as u64 + 5);
    let parts: Vec<&[u8]> = content.chunks(part).collect();
    // The last one is short: it can't come before one from which the others' length is known.
    for order in [[0, 1, 2, 3], [2, 3, 0, 1], [1, 0, 3, 2]] {
        let fixture = PopulateFixture::new();
        for index in order {
            let etag = format!("p{index}");
            fixture.upload_part("u", index as i32 + 1, parts[index], &etag).await;
        }
        assert!(fixture.tier.versions.lock().is_empty());
        fixture.complete_upload("u", &[(1, "p0"), (2, "p1"), (3, "p2"), (4, "p3")]).await;
        let versions = fixture.tier.versions.lock();
        assert_eq!(versions[&version("whole", content.len() as u64)], pages_of(&content));
        assert_eq!(fixture.metric("verbs3_populate_uploads"), 0);
        assert_eq!(fixture.metric("verbs3_populate_parts"), 0);
    }
}

/// Parts of unequal length: what lies elsewhere than was guessed must not be read there.
#[tokio::test]
async fn a_part_that_lies_elsewhere_is_given_up() {
    let fixture = PopulateFixture::new();
    let content = content(8, 3 * BLOCK);
    let (one, rest) = content.split_at(BLOCK as usize / 2);
    let (two, three) = rest.split_at(BLOCK as usize);
    for (number, part) in [(1, one), (2, two), (3, three)] {
        fixture.upload_part("u", number, part, &format!("p{number}")).await;
    }
    // Only pages that have come can be counted as given up.
    fixture.settle().await;
    fixture.complete_upload("u", &[(1, "p1"), (2, "p2"), (3, "p3")]).await;
    fixture.settle().await;
    let mut expected = pages_of(&content);
    // Part 3 was taken to begin where part 2 is in its middle.
    expected.retain(|at, _| *at < 3 * BLOCK / 2);
    assert_eq!(fixture.tier.versions.lock()[&version("whole", 3 * BLOCK)], expected);
    assert!(fixture.tier.staged.lock().values().all(|pages| pages.is_empty()));
    let misplaced = fixture.given_up("misplaced");
    assert_eq!(misplaced, (3 * BLOCK / 2) / PAGE);
}

/// Its length is not known, and so neither the object's nor the places behind it.
#[tokio::test]
async fn a_part_that_went_elsewhere_leaves_nothing_readable() {
    for listed in
        [vec![(1, "p1"), (2, "other"), (3, "p3")], vec![(1, "p1"), (2, "p2"), (3, "p3"), (4, "p4")]]
    {
        let fixture = PopulateFixture::new();
        for number in 1..=3 {
            fixture.upload_part("u", number, &content(9, BLOCK), &format!("p{number}")).await;
        }
        fixture.complete_upload("u", &listed).await;
        fixture.settle().await;
        assert!(fixture.tier.versions.lock().is_empty());
        assert!(fixture.tier.staged.lock().values().all(|pages| pages.is_empty()));
    }
}

#[tokio::test]
async fn a_part_that_is_sent_again_replaces_the_earlier_one() {
    let fixture = PopulateFixture::new();
    let (old, new) = (content(1, BLOCK), content(2, BLOCK));
    fixture.upload_part("u", 1, &old, "old").await;
    fixture.upload_part("u", 1, &new, "new").await;
    fixture.complete_upload("u", &[(1, "new")]).await;
    assert_eq!(fixture.tier.versions.lock()[&version("whole", BLOCK)], pages_of(&new));
    assert_eq!(fixture.metric("verbs3_populate_parts"), 0);
}

#[tokio::test]
async fn parts_that_the_object_does_not_have_are_given_up() {
    let fixture = PopulateFixture::new();
    for number in 1..=3 {
        fixture
            .upload_part("u", number, &content(number as u8, BLOCK), &format!("p{number}"))
            .await;
    }
    fixture.complete_upload("u", &[(1, "p1"), (3, "p3")]).await;
    fixture.settle().await;
    // Part 3 was taken to lie behind part 2.
    assert_eq!(
        fixture.tier.versions.lock()[&version("whole", 2 * BLOCK)],
        pages_of(&content(1, BLOCK))
    );
    assert!(fixture.tier.staged.lock().values().all(|pages| pages.is_empty()));
}

#[tokio::test]
async fn uploads_and_parts_beyond_the_bounds_give_their_pages_up() {
    let bounds = GatewayPopulateSettings { uploads_max: 2, parts_max: 3, ..settings() };
    let fixture = PopulateFixture::with(&bounds);
    for upload in ["a", "b", "c"] {
        fixture.upload_part(upload, 1, &content(1, PAGE), "p").await;
    }
    assert_eq!(fixture.metric("verbs3_populate_uploads"), 2);
    fixture.complete_upload("a", &[(1, "p")]).await;
    assert!(fixture.tier.versions.lock().is_empty(), "it was forgotten");
    for number in 2..=9 {
        fixture.upload_part("c", number, &content(1, PAGE), "p").await;
        assert!(fixture.metric("verbs3_populate_parts") <= 3);
    }
    fixture.settle().await;
    let staged = fixture.tier.staged.lock().values().map(|pages| pages.len()).sum::<usize>();
    assert_eq!(staged as u64, fixture.metric("verbs3_populate_parts"));
}

#[tokio::test]
async fn an_upload_that_is_aborted_leaves_nothing() {
    let fixture = PopulateFixture::new();
    fixture.upload_part("u", 1, &content(1, BLOCK), "p").await;
    fixture.populator.forget_upload(fixture.mount.object_key("k"), "u".into());
    fixture.settle().await;
    assert!(fixture.tier.staged.lock().values().all(|pages| pages.is_empty()));
    assert_eq!(fixture.metric("verbs3_populate_uploads"), 0);
}

/// Under one id, an upload of another key is another upload.
#[tokio::test]
async fn an_upload_is_known_by_its_object_too() {
    let fixture = PopulateFixture::new();
    fixture.upload_part("u", 1, &content(1, BLOCK), "p").await;
    let (other, upload) = (fixture.mount.object_key("other"), "u".to_owned());
    fixture.populator.forget_upload(other, upload);
    fixture.complete_upload("u", &[(1, "p")]).await;
    assert!(fixture.tier.versions.lock().contains_key(&version("whole", BLOCK)));
}

/// A part's number comes from a client.
#[tokio::test]
async fn a_part_of_any_number_is_taken_or_left() {
    let fixture = PopulateFixture::new();
    for number in [i32::MIN, -1, 0, 10_000, i32::MAX] {
        let part = Some(PartName { upload: "u".into(), number });
        let subject = BodySubject { key: "k".into(), part, is_plain: true };
        let begun =
            PopulatedWrite::begin_write(&fixture.populator, &fixture.mount, subject, 1 << 40, None);
        assert!(begun.is_none_or(|mut write| write.take_feed().is_none()), "{number}");
    }
}
