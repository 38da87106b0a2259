//! Workers that die, memory that runs out, clients in excess: right bytes, or a clean answer.

use super::*;
use crate::auth::Tenant;
use crate::tenant_metrics::SharedResource;

#[tokio::test]
async fn a_worker_that_dies_in_the_middle_of_a_body_is_not_seen() {
    for workers in [1, 2] {
        for nth in [1, 2, 3, 5, 8, 13, 21] {
            let bed = Make { workers, ..Make::default() }.bed().await;
            let expected = content(nth, 5 * BLOCK + 99);
            bed.put("k", &expected).await;
            for fault in &bed.faults {
                fault.drop_at_event(nth);
            }
            assert!(bed.read("k").await == expected, "{workers} workers, broken at {nth}");
        }
    }
}

#[tokio::test]
async fn without_any_worker_reads_go_to_the_store() {
    let bed = Make::default().bed().await;
    let expected = content(3, 2 * BLOCK + 1);
    bed.put("k", &expected).await;
    bed.faults[0].refuse_connects(1000);
    for _ in 0..5 {
        let mut got = bed.get(of("k")).await;
        assert!(got.body().await.0 == expected);
        assert_eq!(got.verdict(), ("bypass", "ufs"));
    }
    let input = HeadObjectInput { bucket: "train".into(), key: "k".into(), ..Default::default() };
    assert_eq!(bed.head(input).await.unwrap().output.content_length, Some(expected.len() as i64));
}

#[tokio::test(start_paused = true)]
async fn what_is_read_past_the_workers_keeps_to_the_stores_rate() {
    let waits = || Tenant::unknown().metrics().waits[SharedResource::StoreBytes].get();
    for (dies_at, verdict) in [(None, "bypass"), (Some(3), "miss")] {
        let bed = Make { store_rate: BLOCK as u64, ..Make::default() }.bed().await;
        let expected = content(3, 5 * BLOCK + 1);
        bed.put("k", &expected).await;
        match dies_at {
            None => bed.faults[0].refuse_connects(1000),
            Some(event) => bed.faults[0].drop_at_event(event),
        }
        let before = waits();
        let mut got = bed.get(of("k")).await;
        assert!(got.body().await.0 == expected);
        assert_eq!(got.verdict().0, verdict);
        assert!(waits() > before, "{verdict}");
    }
}

#[tokio::test]
async fn without_memory_for_landings_reads_go_to_the_store() {
    let bed = Make { landings: 2 << 20, workers: 2, ..Make::default() }.bed().await;
    let expected = content(4, 6 * BLOCK);
    bed.put("k", &expected).await;
    let bed = Arc::new(bed);
    let readers = (0..8).map(|_| {
        let (bed, expected) = (bed.clone(), expected.clone());
        tokio::spawn(async move { bed.read("k").await == expected })
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
    let bed = Make { reader, ..Make::default() }.bed().await;
    bed.put("k", &content(5, BLOCK)).await;
    let held = bed.get(of("k")).await;
    let error = bed.try_get(of("k")).await.1.err().unwrap();
    assert_eq!((error.code().as_str(), error.status_code().unwrap().as_u16()), ("SlowDown", 503));
    assert_eq!(error.headers().unwrap()[http::header::RETRY_AFTER], "1");
    drop(held);
    assert!(bed.read("k").await == content(5, BLOCK));
}

#[tokio::test(start_paused = true)]
async fn over_the_reads_past_the_tier_a_read_is_told_to_slow_down() {
    let reader = GatewayReadSettings { bypass_in_flight_max: 1, ..GatewayReadSettings::default() };
    let mut bed = Make { reader, ..Make::default() }.bed().await;
    bed.mount = Arc::new(MountedBucket { cached: false, ..MountedBucket::clone(&bed.mount) });
    bed.put("k", &content(5, BLOCK)).await;
    let mut held = bed.get(of("k")).await;
    assert_eq!(bed.try_get(of("k")).await.1.err().unwrap().code().as_str(), "SlowDown");
    assert!(held.body().await.0 == content(5, BLOCK));
    assert!(bed.read("k").await == content(5, BLOCK));
}

#[tokio::test]
async fn a_client_that_goes_away_gives_everything_back() {
    let bed = Make::default().bed().await;
    bed.put("k", &content(6, 8 * BLOCK)).await;
    for _ in 0..20 {
        let mut body = bed.get(of("k")).await.output.body.unwrap();
        body.next().await.unwrap().unwrap();
    }
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bed.reader.shared.metrics.bytes_in_flight.get(), 0);
    assert_eq!(bed.reader.shared.metrics.bypasses_in_flight.get(), 0);
    assert!(bed.read("k").await == content(6, 8 * BLOCK));
}

#[tokio::test]
async fn workers_that_stop_leave_the_store() {
    let bed = Make::default().bed().await;
    let expected = content(7, 3 * BLOCK);
    bed.put("k", &expected).await;
    assert!(bed.read("k").await == expected);
    for worker in &bed.workers {
        worker.shutdown().await;
    }
    assert!(bed.read("k").await == expected);
}

/// The rest of a body past the tier is of the same version, or the body is cut.
#[tokio::test]
async fn a_body_that_continues_at_the_store_keeps_its_version() {
    let reader =
        GatewayReadSettings { window: ByteSize(BLOCK as u64), ..GatewayReadSettings::default() };
    let bed = Make { reader, ..Make::default() }.bed().await;
    let (old, new) = (content(1, 12 * BLOCK), content(2, 12 * BLOCK));
    bed.put("k", &old).await;
    let mut body = bed.get(of("k")).await.output.body.unwrap();
    let mut bytes = body.next().await.unwrap().unwrap().to_vec();
    bed.faults[0].refuse_connects(1000);
    bed.faults[0].drop_at_event(1);
    bed.put("k", &new).await;
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
        let bed = Make { reader: reader.clone(), ..Make::default() }.bed().await;
        *bed.store.version_id.lock() = Some("v1".to_owned());
        let expected = content(1, 12 * BLOCK);
        bed.put("k", &expected).await;
        let mut body = bed.get(of("k")).await.output.body.unwrap();
        let mut bytes = body.next().await.unwrap().unwrap().to_vec();
        bed.faults[0].refuse_connects(1000);
        bed.faults[0].drop_at_event(1);
        if replaced {
            *bed.store.version_id.lock() = Some("v2".to_owned());
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
        let mut bed = Make::default().bed().await;
        bed.mount = Arc::new(MountedBucket { cached, ..MountedBucket::clone(&bed.mount) });
        bed.put("k", &expected).await;
        if cached {
            bed.faults[0].refuse_connects(1000);
        }
        *bed.store.breaks.lock() = [BLOCK / 2, 0, 1000, 1].into();
        let (bytes, error) = bed.get(of("k")).await.body().await;
        assert!(bytes == expected, "cached {cached}: {} bytes, {error:?}", bytes.len());
        assert!(bed.reader.shared.metrics.resumptions.get() >= 4);
        let range = bed.get(ranged("k", 100, 2 * BLOCK as u64)).await.body().await.0;
        *bed.store.breaks.lock() = [BLOCK / 2].into();
        assert!(range == bed.get(ranged("k", 100, 2 * BLOCK as u64)).await.body().await.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_past_the_tier_is_cut_if_its_object_changed() {
    let mut bed = Make::default().bed().await;
    bed.mount = Arc::new(MountedBucket { cached: false, ..MountedBucket::clone(&bed.mount) });
    let old = content(8, BLOCK);
    bed.put("k", &old).await;
    *bed.store.breaks.lock() = [BLOCK / 2].into();
    let mut got = bed.get(of("k")).await;
    bed.put("k", &content(9, BLOCK)).await;
    let (bytes, error) = got.body().await;
    assert!(error.is_some() && bytes == old[..BLOCK / 2], "{} bytes, {error:?}", bytes.len());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_goes_on_is_cut_in_the_end() {
    let mut bed = Make::default().bed().await;
    bed.mount = Arc::new(MountedBucket { cached: false, ..MountedBucket::clone(&bed.mount) });
    bed.put("k", &content(8, BLOCK)).await;
    *bed.store.breaks.lock() =
        std::iter::once(BLOCK / 2).chain(std::iter::repeat_n(0, 1000)).collect();
    let (bytes, error) = bed.get(of("k")).await.body().await;
    assert!(error.is_some() && bytes.len() == BLOCK / 2);
    assert_eq!(bed.reader.shared.metrics.bypasses_in_flight.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_outlives_a_store_that_throttles() {
    let reader =
        GatewayReadSettings { window: ByteSize(BLOCK as u64), ..GatewayReadSettings::default() };
    let bed = Make { reader, ..Make::default() }.bed().await;
    let expected = content(1, 6 * BLOCK);
    bed.put("k", &expected).await;
    let mut got = bed.get(of("k")).await;
    bed.faults[0].refuse_connects(1000);
    bed.faults[0].drop_at_event(1);
    bed.store.refusals.store(10, Ordering::Relaxed);
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
    let bed = Make { reader, ..Make::default() }.bed().await;
    let expected = content(1, 6 * BLOCK);
    bed.put("k", &expected).await;
    let mut got = bed.get(of("k")).await;
    let cx = RequestContext::new(RequestId::generate(), Instant::now());
    let held = bed.reader.shared.places.take_permit(&cx).await.unwrap();
    bed.faults[0].refuse_connects(1000);
    bed.faults[0].drop_at_event(1);
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
    let bed = Make::default().bed().await;
    let expected = content(1, UfsSettings::default().limits.skip_max.as_usize() + 3 * BLOCK);
    bed.put("k", &expected).await;
    bed.store.ignores_range.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let mut got = bed.get(of("k")).await;
        assert!(got.body().await.0 == expected);
        assert_eq!(got.verdict(), ("bypass", "ufs"));
    }
    let small = content(2, 2 * BLOCK);
    bed.put("small", &small).await;
    assert!(bed.read("small").await == small);
    // Nor is it cut where its home is away.
    bed.faults[0].refuse_connects(100_000);
    bed.faults[0].drop_at_event(1);
    for _ in 0..3 {
        let mut got = bed.get(of("k")).await;
        let (bytes, error) = got.body().await;
        assert!(bytes == expected, "{} bytes, {error:?}", bytes.len());
    }
}

/// A store that breaks off behind the last byte: a chunked answer without its end, say.
#[tokio::test(start_paused = true)]
async fn a_failure_behind_the_last_byte_of_a_span_ends_nothing() {
    let bed = Make::default().bed().await;
    let expected = content(8, 3 * BLOCK);
    bed.put("k", &expected).await;
    bed.faults[0].refuse_connects(1000);
    *bed.store.breaks.lock() = [3 * BLOCK, BLOCK, BLOCK].into();
    let (bytes, error) = bed.get(of("k")).await.body().await;
    assert!(bytes == expected, "{} bytes, {error:?}", bytes.len());
}
