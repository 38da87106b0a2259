//! No stale read after a write's acknowledgement, and never bytes of two versions in one body.

use super::*;

#[tokio::test]
async fn a_read_after_an_acknowledged_write_sees_it_on_every_mount() {
    for attributes in [
        AttributeFreshness::Immutable,
        AttributeFreshness::Ttl(Duration::from_secs(3600)),
        AttributeFreshness::AlwaysAsk,
    ] {
        let fixture =
            ReadSetup { workers: 3, attributes, ..ReadSetup::default() }.start_fixture().await;
        for round in 0..10 {
            for key in ["a", "b", "c"] {
                fixture.write(key, &content(round, 100_000 + round as usize)).await;
                assert!(
                    fixture.read(key).await == content(round, 100_000 + round as usize),
                    "{attributes:?} {round}"
                );
                assert!(
                    fixture.read(key).await == content(round, 100_000 + round as usize),
                    "{attributes:?} {round} again"
                );
            }
        }
    }
}

#[tokio::test]
async fn while_a_write_is_announced_reads_ask_the_store() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", b"one").await;
    assert_eq!(fixture.read("k").await, b"one");
    let announced =
        fixture.tier.announce_write(&fixture.mount.volume, &["k".to_owned()]).await.unwrap();
    fixture.put("k", b"two").await;
    let heads = fixture.store.heads();
    let mut got = fixture.get(of("k")).await;
    assert_eq!(got.body().await.0, b"two");
    assert_eq!((got.verdict().0, fixture.store.heads() - heads), ("miss", 1));
    fixture.tier.report_write(announced, verbs3_protocol::WriteOutcome::Done).await.unwrap();
    assert_eq!(fixture.read("k").await, b"two");
}

#[tokio::test]
async fn an_absence_ends_with_a_write() {
    let fixture = ReadSetup::default().start_fixture().await;
    assert!(fixture.try_get(of("k")).await.1.is_err());
    fixture.write("k", b"now").await;
    assert_eq!(fixture.read("k").await, b"now");
}

#[tokio::test]
async fn a_version_that_is_gone_before_the_first_byte_is_opened_anew() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", &content(1, 4 * BLOCK)).await;
    // Attributes and the first page are cached, block 3 is not.
    assert_eq!(fixture.get(ranged("k", 0, 9)).await.body().await.0, content(1, 10));
    fixture.put("k", &content(2, 4 * BLOCK)).await;
    let at = 3 * BLOCK + 77;
    let mut got = fixture.get(ranged("k", at as u64, at as u64 + 99)).await;
    let (body, error) = got.body().await;
    assert!(error.is_none());
    assert_eq!(body, &content(2, 4 * BLOCK)[at..at + 100]);
}

#[tokio::test]
async fn an_object_that_changes_under_a_read_is_never_mixed() {
    let reader =
        GatewayReadSettings { window: ByteSize(BLOCK as u64), ..GatewayReadSettings::default() };
    let fixture = ReadSetup { reader, ..ReadSetup::default() }.start_fixture().await;
    let (old, new) = (content(1, 12 * BLOCK), content(2, 12 * BLOCK));
    for taken in [1, 3 * BLOCK, 7 * BLOCK] {
        fixture.write("k", &old).await;
        let mut body = fixture.get(of("k")).await.output.body.unwrap();
        let mut bytes = Vec::new();
        while bytes.len() < taken {
            bytes.extend_from_slice(&body.next().await.unwrap().unwrap());
        }
        fixture.put("k", &new).await;
        let mut cut = false;
        while let Some(item) = body.next().await {
            match item {
                Ok(data) => bytes.extend_from_slice(&data),
                Err(_) => {
                    cut = true;
                    break;
                }
            }
        }
        assert!(bytes == old[..bytes.len()], "bytes of another version after {taken}");
        assert!(cut, "block 11 of the old version was nowhere, and yet the body ended well");
    }
}

#[tokio::test]
async fn an_object_deleted_under_a_read_cuts_the_body() {
    let reader =
        GatewayReadSettings { window: ByteSize(BLOCK as u64), ..GatewayReadSettings::default() };
    let fixture = ReadSetup { reader, ..ReadSetup::default() }.start_fixture().await;
    fixture.put("k", &content(1, 12 * BLOCK)).await;
    let mut got = fixture.get(of("k")).await;
    let delete =
        DeleteObjectInput { bucket: "train".into(), key: "k".into(), ..Default::default() };
    fixture.store.store.delete_object(plain(delete)).await.unwrap();
    let (bytes, error) = got.body().await;
    assert!(error.is_some() && bytes == content(1, 12 * BLOCK)[..bytes.len()]);
}
