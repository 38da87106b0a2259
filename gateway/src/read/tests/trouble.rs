//! Workers that die, memory that runs out, clients in excess: right bytes, or a clean answer.

use super::*;
use crate::auth::Tenant;
use crate::tenant_metrics::SharedResource;

#[tokio::test]
async fn a_worker_that_dies_in_the_middle_of_a_body_is_not_seen() {
    for workers in [1, 2] {
        for nth in [1, 2, 3, 5, 8, 13, 21] {
            let fixture = ReadSetup { workers, ..ReadSetup::default() }.start_fixture().await;
            let expected = content(nth, 5 * BLOCK + 99);
            fixture.put("k", &expected).await;
            for fault in &fixture.faults {
                fault.drop_at_event(nth);
            }
            assert!(fixture.read("k").await == expected, "{workers} workers, broken at {nth}");
        }
    }
}

#[tokio::test]
async fn without_any_worker_reads_go_to_the_store() {
    let fixture = ReadSetup::default().start_fixture().await;
    let expected = content(3, 2 * BLOCK + 1);
    fixture.put("k", &expected).await;
    fixture.faults[0].refuse_connects(1000);
    for _ in 0..5 {
        let mut got = fixture.get(of("k")).await;
        assert!(got.body().await.0 == expected);
        assert_eq!(got.verdict(), ("bypass", "ufs"));
    }
    let input = HeadObjectInput { bucket: "train".into(), key: "k".into(), ..Default::default() };
    assert_eq!(
        fixture.head(input).await.unwrap().output.content_length,
        Some(expected.len() as i64)
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_read_past_the_workers_keeps_to_the_stores_rate() {
    let waits = || Tenant::unknown().metrics().waits[SharedResource::StoreBytes].get();
    for (dies_at, verdict) in [(None, "bypass"), (Some(3), "miss")] {
        let fixture =
            ReadSetup { store_rate: BLOCK as u64, ..ReadSetup::default() }.start_fixture().await;
        let expected = content(3, 5 * BLOCK + 1);
        fixture.put("k", &expected).await;
        match dies_at {
            None => fixture.faults[0].refuse_connects(1000),
            Some(event) => fixture.faults[0].drop_at_event(event),
        }
        let before = waits();
        let mut got = fixture.get(of("k")).await;
        assert!(got.body().await.0 == expected);
        assert_eq!(got.verdict().0, verdict);
        assert!(waits() > before, "{verdict}");
    }
}

#[tokio::test]
async fn without_memory_for_landings_reads_go_to_the_store() {
    let fixture =
        ReadSetup { landings: 2 << 20, workers: 2, ..ReadSetup::default() }.start_fixture().await;
    let expected = content(4, 6 * BLOCK);
    fixture.put("k", &expected).await;
    let fixture = Arc::new(fixture);
    let readers = (0..8).map(|_| {
        let (fixture, expected) = (fixture.clone(), expected.clone());
        tokio::spawn(async move { fixture.read("k").await == expected })
    });
    for right in futures::future::join_all(readers).await {
        assert!(right.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn over_the_bytes_in_flight_a_read_is_told_to_slow_down() {
    let reader = GatewayReadSettings {
        bytes_in_flight_max: Some(ByteSize(BLOCK as u64)),
        ..GatewayReadSettings::default()
    };
    let fixture = ReadSetup { reader, ..ReadSetup::default() }.start_fixture().await;
    fixture.put("k", &content(5, BLOCK)).await;
    let held = fixture.get(of("k")).await;
    let error = fixture.try_get(of("k")).await.1.err().unwrap();
    assert_eq!((error.code().as_str(), error.status_code().unwrap().as_u16()), ("SlowDown", 503));
    assert_eq!(error.headers().unwrap()[http::header::RETRY_AFTER], "1");
    drop(held);
    assert!(fixture.read("k").await == content(5, BLOCK));
}

#[tokio::test(start_paused = true)]
async fn over_the_reads_past_the_tier_a_read_is_told_to_slow_down() {
    let reader = GatewayReadSettings { bypass_in_flight_max: 1, ..GatewayReadSettings::default() };
    let mut fixture = ReadSetup { reader, ..ReadSetup::default() }.start_fixture().await;
    fixture.mount =
        Arc::new(MountedBucket { cached: false, ..MountedBucket::clone(&fixture.mount) });
    fixture.put("k", &content(5, BLOCK)).await;
    let mut held = fixture.get(of("k")).await;
    assert_eq!(fixture.try_get(of("k")).await.1.err().unwrap().code().as_str(), "SlowDown");
    assert!(held.body().await.0 == content(5, BLOCK));
    assert!(fixture.read("k").await == content(5, BLOCK));
}

#[tokio::test]
async fn a_client_that_goes_away_gives_everything_back() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", &content(6, 8 * BLOCK)).await;
    for _ in 0..20 {
        let mut body = fixture.get(of("k")).await.output.body.unwrap();
        body.next().await.unwrap().unwrap();
    }
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.reader.shared.metrics.bytes_in_flight.get(), 0);
    assert_eq!(fixture.reader.shared.metrics.bypasses_in_flight.get(), 0);
    assert!(fixture.read("k").await == content(6, 8 * BLOCK));
}

#[tokio::test]
async fn workers_that_stop_leave_the_store() {
    let fixture = ReadSetup::default().start_fixture().await;
    let expected = content(7, 3 * BLOCK);
    fixture.put("k", &expected).await;
    assert!(fixture.read("k").await == expected);
    for worker in &fixture.workers {
        worker.shutdown().await;
    }
    assert!(fixture.read("k").await == expected);
}

/// The rest of a body past the tier is of the same version, or the body is cut.
#[tokio::test]
async fn a_body_that_continues_at_the_store_keeps_its_version() {
    let reader =
        GatewayReadSettings { window: ByteSize(BLOCK as u64), ..GatewayReadSettings::default() };
    let fixture = ReadSetup { reader, ..ReadSetup::default() }.start_fixture().await;
    let (old, new) = (content(1, 12 * BLOCK), content(2, 12 * BLOCK));
    fixture.put("k", &old).await;
    let mut body = fixture.get(of("k")).await.output.body.unwrap();
    let mut bytes = body.next().await.unwrap().unwrap().to_vec();
    fixture.faults[0].refuse_connects(1000);
    fixture.faults[0].drop_at_event(1);
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
    assert!(cut && bytes == old[..bytes.len()], "cut: {cut}, after {} bytes", bytes.len());
}

/// A credential may read objects (s3:GetObject) and not versions by their name
/// (s3:GetObjectVersion).
#[tokio::test]
async fn a_body_goes_on_at_a_store_that_lets_nobody_name_versions() {
    let reader =
        GatewayReadSettings { window: ByteSize(BLOCK as u64), ..GatewayReadSettings::default() };
    for replaced in [false, true] {
        let fixture =
            ReadSetup { reader: reader.clone(), ..ReadSetup::default() }.start_fixture().await;
        *fixture.store.version_id.lock() = Some("v1".to_owned());
        let expected = content(1, 12 * BLOCK);
        fixture.put("k", &expected).await;
        let mut body = fixture.get(of("k")).await.output.body.unwrap();
        let mut bytes = body.next().await.unwrap().unwrap().to_vec();
        fixture.faults[0].refuse_connects(1000);
        fixture.faults[0].drop_at_event(1);
        if replaced {
            *fixture.store.version_id.lock() = Some("v2".to_owned());
        }
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
        assert_eq!(cut, replaced);
        assert!(
            bytes == expected[..bytes.len()] && (replaced || bytes.len() == expected.len()),
            "{}",
            bytes.len()
        );
    }
}

/// Bodies past the tier, and what the gateway reads itself of bodies of the tier.
#[tokio::test(start_paused = true)]
async fn a_body_goes_on_where_the_store_broke_off() {
    let expected = content(8, 3 * BLOCK);
    for cached in [false, true] {
        let mut fixture = ReadSetup::default().start_fixture().await;
        fixture.mount = Arc::new(MountedBucket { cached, ..MountedBucket::clone(&fixture.mount) });
        fixture.put("k", &expected).await;
        if cached {
            fixture.faults[0].refuse_connects(1000);
        }
        *fixture.store.breaks.lock() = [BLOCK / 2, 0, 1000, 1].into();
        let (bytes, error) = fixture.get(of("k")).await.body().await;
        assert!(bytes == expected, "cached {cached}: {} bytes, {error:?}", bytes.len());
        assert!(fixture.reader.shared.metrics.resumptions.get() >= 4);
        let range = fixture.get(ranged("k", 100, 2 * BLOCK as u64)).await.body().await.0;
        *fixture.store.breaks.lock() = [BLOCK / 2].into();
        assert!(range == fixture.get(ranged("k", 100, 2 * BLOCK as u64)).await.body().await.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_past_the_tier_is_cut_if_its_object_changed() {
    let mut fixture = ReadSetup::default().start_fixture().await;
    fixture.mount =
        Arc::new(MountedBucket { cached: false, ..MountedBucket::clone(&fixture.mount) });
    let old = content(8, BLOCK);
    fixture.put("k", &old).await;
    *fixture.store.breaks.lock() = [BLOCK / 2].into();
    let mut got = fixture.get(of("k")).await;
    fixture.put("k", &content(9, BLOCK)).await;
    let (bytes, error) = got.body().await;
    assert!(error.is_some() && bytes == old[..BLOCK / 2], "{} bytes, {error:?}", bytes.len());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_goes_on_is_cut_in_the_end() {
    let mut fixture = ReadSetup::default().start_fixture().await;
    fixture.mount =
        Arc::new(MountedBucket { cached: false, ..MountedBucket::clone(&fixture.mount) });
    fixture.put("k", &content(8, BLOCK)).await;
    *fixture.store.breaks.lock() =
        std::iter::once(BLOCK / 2).chain(std::iter::repeat_n(0, 1000)).collect();
    let (bytes, error) = fixture.get(of("k")).await.body().await;
    assert!(error.is_some() && bytes.len() == BLOCK / 2);
    assert_eq!(fixture.reader.shared.metrics.bypasses_in_flight.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_outlives_a_store_that_throttles() {
    let reader =
        GatewayReadSettings { window: ByteSize(BLOCK as u64), ..GatewayReadSettings::default() };
    let fixture = ReadSetup { reader, ..ReadSetup::default() }.start_fixture().await;
    let expected = content(1, 6 * BLOCK);
    fixture.put("k", &expected).await;
    let mut got = fixture.get(of("k")).await;
    fixture.faults[0].refuse_connects(1000);
    fixture.faults[0].drop_at_event(1);
    fixture.store.refusals.store(10, Ordering::Relaxed);
    let (bytes, error) = got.body().await;
    assert!(bytes == expected, "{} bytes, {error:?}", bytes.len());
}

#[tokio::test(start_paused = true)]
async fn a_body_waits_for_a_place_past_the_tier() {
    let options = GatewayReadSettings::default();
    let reader = GatewayReadSettings {
        window: ByteSize(BLOCK as u64),
        bypass_in_flight_max: 1,
        ..options.clone()
    };
    let fixture = ReadSetup { reader, ..ReadSetup::default() }.start_fixture().await;
    let expected = content(1, 6 * BLOCK);
    fixture.put("k", &expected).await;
    let mut got = fixture.get(of("k")).await;
    let cx = RequestContext::new(RequestId::generate(), Instant::now());
    let held = fixture.reader.shared.places.take_permit(&cx).await.unwrap();
    fixture.faults[0].refuse_connects(1000);
    fixture.faults[0].drop_at_event(1);
    let later = options.bypass_wait_max.0 * 3 / 2;
    let release = async {
        tokio::time::sleep(later).await;
        drop(held)
    };
    let ((bytes, error), ()) = tokio::join!(got.body(), release);
    assert!(bytes == expected, "{} bytes, {error:?}", bytes.len());
}

#[tokio::test]
async fn a_large_object_of_a_store_that_ignores_ranges_is_read_whole() {
    let fixture = ReadSetup::default().start_fixture().await;
    let expected = content(1, UfsSettings::default().limits.skip_max.as_usize() + 3 * BLOCK);
    fixture.put("k", &expected).await;
    fixture.store.ignores_range.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let mut got = fixture.get(of("k")).await;
        assert!(got.body().await.0 == expected);
        assert_eq!(got.verdict(), ("bypass", "ufs"));
    }
    let small = content(2, 2 * BLOCK);
    fixture.put("small", &small).await;
    assert!(fixture.read("small").await == small);
    // Nor is it cut where its home is away.
    fixture.faults[0].refuse_connects(100_000);
    fixture.faults[0].drop_at_event(1);
    for _ in 0..3 {
        let mut got = fixture.get(of("k")).await;
        let (bytes, error) = got.body().await;
        assert!(bytes == expected, "{} bytes, {error:?}", bytes.len());
    }
}

/// A store that breaks off behind the last byte: a chunked answer without its end, say.
#[tokio::test(start_paused = true)]
async fn a_failure_behind_the_last_byte_of_a_span_ends_nothing() {
    let fixture = ReadSetup::default().start_fixture().await;
    let expected = content(8, 3 * BLOCK);
    fixture.put("k", &expected).await;
    fixture.faults[0].refuse_connects(1000);
    *fixture.store.breaks.lock() = [3 * BLOCK, BLOCK, BLOCK].into();
    let (bytes, error) = fixture.get(of("k")).await.body().await;
    assert!(bytes == expected, "{} bytes, {error:?}", bytes.len());
}
