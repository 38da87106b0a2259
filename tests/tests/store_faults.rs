//! A store that is stopped, slow, refuses, breaks off, lies, or changes under a read: what clients
//! of real gateways see.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use aws_sdk_s3::types::ChecksumMode;
use bytes::BytesMut;
use verbs3_tests::metrics::eventually;
use verbs3_tests::proxy::{Fault, Op};
use verbs3_tests::reading::{self, Seen};
use verbs3_tests::{Cluster, ClusterBuilder, Section, content};

const MIB: usize = 1 << 20;

/// Tries again soon; otherwise as configured by default, so that a slow machine is no fault.
fn builder() -> ClusterBuilder {
    build_with("", "20s")
}

/// Impatient, so that a test of patience ends.
fn impatient() -> ClusterBuilder {
    let deadlines = "[ufs.deadlines]\nconnect = \"1s\"\nfirst_byte = \"5s\"\nanswer = \"10s\"\nidle_body = \"1s\"\n";
    build_with(deadlines, "2s")
}

fn build_with(deadlines: &str, resume_wait_max: &str) -> ClusterBuilder {
    Cluster::builder()
        .faulty_store()
        .settings(
            Section::Ufs,
            &format!(
                "{deadlines}[ufs.retries]\npause = \"10ms\"\npause_max = \"50ms\"\n\
         [ufs.circuit]\nopen_for = \"100ms\"\nopen_for_max = \"300ms\""
            ),
        )
        .settings(
            Section::Gateway,
            &format!("[gateway.read]\nresume_wait_max = \"{resume_wait_max}\""),
        )
}

struct StoreFaultFixture {
    cluster: Cluster,
    bucket: String,
    client: Client,
}

impl StoreFaultFixture {
    async fn start(builder: ClusterBuilder) -> Self {
        let cluster = builder.start().await.unwrap();
        let bucket = cluster.bucket("faults").await.unwrap();
        let client = reading::once(&cluster.gateways()[0].client);
        Self { cluster, bucket, client }
    }

    async fn get(&self, key: &str) -> Seen {
        reading::get(&self.client, &self.bucket, key).await
    }

    async fn put(&self, key: &str, version: u64, length: usize) {
        reading::put_surely(&self.client, &self.bucket, key, version, length).await;
    }

    /// Written, and read once: held by the tier.
    async fn put_hot(&self, key: &str, length: usize) {
        self.put(key, 1, length).await;
        self.get(key).await.is_whole(key, 1, length).unwrap();
    }

    fn fault(&self, op: Op, fault: Fault) {
        self.cluster.proxy().faults.always(op, fault);
    }

    /// The fault is over: reads are whole again, at once or when the circuit's pause is over.
    async fn heals(&self, key: &str, version: u64, length: usize) {
        self.cluster.proxy().faults.heal();
        let whole = async || self.get(key).await.is_whole(key, version, length);
        eventually(Duration::from_secs(120), whole).await.unwrap();
    }

    async fn end(self) {
        self.cluster.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_are_served_while_the_store_is_stopped() {
    let fixture = StoreFaultFixture::start(impatient()).await;
    fixture.put_hot("hot", 3 * MIB).await;
    fixture.put("cold", 1, MIB).await;
    fixture.cluster.signal("store", "-STOP").unwrap();
    for _ in 0..5 {
        fixture.get("hot").await.is_whole("hot", 1, 3 * MIB).unwrap();
    }
    let seen = fixture.get("cold").await;
    fixture.cluster.signal("store", "-CONT").unwrap();
    assert!(matches!(seen.status(), Some(500..=504)), "{seen:?}");
    fixture.heals("cold", 1, MIB).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_store_costs_time_and_no_byte() {
    let fixture = StoreFaultFixture::start(builder()).await;
    fixture.put("slow", 1, 5 * MIB).await;
    let (wait, pause) = (Duration::from_millis(400), Duration::from_millis(2));
    fixture.fault(Op::Any, Fault::Slow { wait, pause });
    fixture.get("slow").await.is_whole("slow", 1, 5 * MIB).unwrap();
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_miss_sees_the_stores_own_refusal_after_bounded_retries() {
    let fixture = StoreFaultFixture::start(builder()).await;
    fixture.put_hot("hot", MIB).await;
    for (status, code) in [(500, "InternalError"), (503, "SlowDown"), (503, "ServiceUnavailable")] {
        let key = format!("cold-{code}");
        fixture.put(&key, 1, MIB).await;
        let before = fixture.cluster.proxy().faults.seen(Op::Any, &key);
        fixture.fault(Op::Any, Fault::Refused { status, code });
        let seen = fixture.get(&key).await;
        let asked = fixture.cluster.proxy().faults.seen(Op::Any, &key) - before;
        match &seen {
            Seen::Refused { status: got, code: said, .. } => {
                assert_eq!((*got, said.as_str()), (status, code))
            }
            other => panic!("{code}: {other:?}"),
        }
        assert!((2..=9).contains(&asked), "{code}: one read asked the store {asked} times");
        fixture.get("hot").await.is_whole("hot", 1, MIB).unwrap();
        fixture.heals(&key, 1, MIB).await;
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_once_or_twice_is_not_noticed() {
    let fixture = StoreFaultFixture::start(builder()).await;
    let faults = [
        Fault::Refused { status: 500, code: "InternalError" },
        Fault::Refused { status: 503, code: "SlowDown" },
        Fault::Dropped,
        Fault::AnswerLost,
        Fault::BodyCut { after: 300_000 },
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let key = format!("key-{number}");
        fixture.put(&key, 1, 6 * MIB).await;
        fixture.cluster.proxy().faults.next(1, Op::Get, &key, fault.clone());
        fixture
            .get(&key)
            .await
            .is_whole(&key, 1, 6 * MIB)
            .unwrap_or_else(|why| panic!("{fault:?}: {why}"));
    }
    assert_eq!(fixture.cluster.proxy().faults.struck(), 5);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_always_breaks_off_or_lies_gives_no_wrong_bytes() {
    let fixture = StoreFaultFixture::start(impatient()).await;
    let faults = [Fault::BodyCut { after: 0 }, Fault::BodyCut { after: 700_000 }, Fault::OtherEtag];
    for (number, fault) in faults.into_iter().enumerate() {
        let key = format!("key-{number}");
        fixture.put(&key, 1, 6 * MIB).await;
        // Its attributes are known: what the store says of itself is held against them.
        fixture.client.head_object().bucket(&fixture.bucket).key(&key).send().await.unwrap();
        fixture.fault(Op::Get, fault.clone());
        for _ in 0..3 {
            let seen = fixture.get(&key).await;
            seen.is_never_wrong(&key, 1, 6 * MIB).unwrap_or_else(|why| panic!("{fault:?}: {why}"));
            // Read around the tier, the bytes of another name are whole all the same; and what
            // breaks off goes on from there.
            let may_be_whole = matches!(fault, Fault::OtherEtag | Fault::BodyCut { after: 1.. });
            assert!(
                may_be_whole || !matches!(seen, Seen::Whole(_)),
                "{fault:?} can't have given all of it"
            );
        }
        fixture.heals(&key, 1, 6 * MIB).await;
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consistent_answer_of_another_length_is_never_kept() {
    let fixture = StoreFaultFixture::start(builder()).await;
    for (key, by) in [("short", -1000), ("long", 1000)] {
        fixture.put(key, 1, 6 * MIB).await;
        let head = fixture
            .client
            .head_object()
            .bucket(&fixture.bucket)
            .key(key)
            .checksum_mode(ChecksumMode::Enabled);
        let head = head.send().await.unwrap();
        // By which a client finds out: this one asks for checksums, which Ceph RGW 18 has not.
        let checked = head.checksum_crc32().or(head.checksum_crc64_nvme()).is_some();
        fixture.fault(Op::Get, Fault::OtherLength { by });
        for _ in 0..3 {
            // The tier refuses it; read around the tier, such an answer can't be told from a true
            // one.
            let seen = fixture.get(key).await;
            assert!(
                !checked || !matches!(seen, Seen::Whole(_)),
                "{key}: a checksum was not looked at"
            );
            if let Seen::Whole(body) | Seen::Cut(body) = seen {
                let own = body.len().min(6 * MIB);
                content::check(key, 1, 0, &body[..own]).unwrap();
                assert!(body[own..].iter().all(|byte| *byte == b'x'));
            }
        }
        fixture.heals(key, 1, 6 * MIB).await;
        for _ in 0..3 {
            fixture.get(key).await.is_whole(key, 1, 6 * MIB).unwrap();
        }
    }
    let refused = fixture
        .cluster
        .metrics("worker-0")
        .await
        .unwrap()
        .sum("verbs3_ufs_answers_refused_total", &[]);
    assert!(refused > 0.0, "answers that contradict themselves are counted");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_changes_under_a_read_is_never_mixed() {
    // Changes behind the gateways' back are asked for with every read.
    let fixture = StoreFaultFixture::start(builder().attributes_ttl("0")).await;
    for (number, after) in [0, 100_000, 3 * MIB].into_iter().enumerate() {
        let (key, length) = (format!("key-{number}"), 13 * MIB);
        fixture.put(&key, 1, length).await;
        // Every one: a store that is slower than the deadlines is asked again.
        fixture.cluster.proxy().faults.next(u64::MAX, Op::Get, &key, Fault::Held { after });
        let began = Instant::now();
        let reader = loop {
            assert!(
                began.elapsed() < Duration::from_secs(180),
                "held after {after}: no read came so far"
            );
            let (client, bucket, name) =
                (fixture.client.clone(), fixture.bucket.clone(), key.clone());
            let mut reader =
                tokio::spawn(async move { reading::get(&client, &bucket, &name).await });
            tokio::select! {
                () = fixture.cluster.proxy().faults.held(1) => break reader,
                // Given up before it had anything that could be mixed.
                seen = &mut reader => seen.unwrap().is_never_wrong(&key, 1, length).unwrap(),
            }
        };
        // Around every gateway, of the same length: only the version tells them apart.
        assert_eq!(
            reading::put(&fixture.cluster.store(), &fixture.bucket, &key, 2, length).await,
            None
        );
        fixture.cluster.proxy().faults.heal();
        let seen = reader.await.unwrap();
        let either =
            seen.is_never_wrong(&key, 1, length).or_else(|_| seen.is_never_wrong(&key, 2, length));
        either.unwrap_or_else(|why| panic!("held after {after}: {why}"));
        fixture.get(&key).await.is_whole(&key, 2, length).unwrap();
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_unknown_outcome_readers_see_what_the_store_has() {
    let fixture = StoreFaultFixture::start(builder().gateways(2)).await;
    let faults = [
        Fault::AnswerLost,
        Fault::BodyCut { after: 100_000 },
        Fault::Dropped,
        Fault::Refused { status: 500, code: "InternalError" },
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let (key, length) = (format!("key-{number}"), MIB + number);
        fixture.put_hot(&key, length).await;
        fixture.cluster.proxy().faults.next(1, Op::Put, &key, fault.clone());
        let seen = reading::put(&fixture.client, &fixture.bucket, &key, 2, length).await;
        assert!(seen.is_some(), "{fault:?}: the writer is told that it failed");
        let there = reading::get(&fixture.cluster.store(), &fixture.bucket, &key).await;
        let version = if fault == Fault::AnswerLost { 2 } else { 1 };
        there
            .is_whole(&key, version, length)
            .unwrap_or_else(|why| panic!("at the store, {fault:?}: {why}"));
        for gateway in fixture.cluster.gateways() {
            let seen = reading::get(&reading::once(&gateway.client), &fixture.bucket, &key).await;
            seen.is_whole(&key, version, length).unwrap_or_else(|why| panic!("{fault:?}: {why}"));
        }
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_a_slow_reader_takes_outlives_the_stores_refusals() {
    let fixture = StoreFaultFixture::start(builder()).await;
    let length = 12 * MIB;
    fixture.put("key", 1, length).await;
    let answer =
        fixture.client.get_object().bucket(&fixture.bucket).key("key").send().await.unwrap();
    // The store fails for a moment after the head was sent: later spans are asked again.
    fixture.cluster.proxy().faults.next(
        2,
        Op::Get,
        "key",
        Fault::Refused { status: 503, code: "SlowDown" },
    );
    let seen = reading::collect(answer.body, BytesMut::new()).await;
    seen.is_whole("key", 1, length).unwrap();
    fixture.end().await;
}
