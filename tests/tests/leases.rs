//! Leases on attributes, in a coordinated cluster: gateways answer HEAD without asking the home,
//! most of the time, and no read that starts after a write's acknowledgement is stale, while
//! workers that granted leases and gateways that hold some are killed and stopped. Half of the
//! objects are so small that gateways hold their bytes, too. Small objects and many HEADs: what
//! `history` has few of.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use tokio::task::JoinSet;
use verbs3_tests::metrics::{eventually, leases};
use verbs3_tests::{Cluster, Gateway, Section, content, seed};

const KEYS: usize = 6;
const SOON: Duration = Duration::from_secs(120);

/// The versions of one key: acknowledged, and begun.
#[derive(Default)]
struct Key {
    acknowledged: AtomicU64,
    begun: AtomicU64,
}

fn name(key: usize) -> String {
    format!("k{key}")
}

/// Large enough to go by spans; or small enough to be held, but for every third version.
fn length(key: usize, version: u64) -> usize {
    match (key % 2, version % 3) {
        (0, _) => 600_000,
        (_, 0) => 70_000,
        (_, rest) => 3000 * rest as usize,
    }
}

async fn put(gateway: &Gateway, bucket: &str, key: usize, version: u64) -> Result<(), String> {
    let body = content::body(&name(key), version, length(key, version));
    let put = gateway
        .client
        .put_object()
        .bucket(bucket)
        .key(name(key))
        .metadata("version", version.to_string());
    put.body(body.into()).send().await.map(|_| ()).map_err(|error| format!("{error:?}"))
}

/// The version that a read shows: of HEADs mostly, and of GETs.
async fn seen(gateway: &Gateway, bucket: &str, key: usize, whole: bool) -> Result<u64, String> {
    let version = |metadata: Option<&std::collections::HashMap<String, String>>| {
        metadata.unwrap()["version"].parse()
    };
    if !whole {
        let head = gateway.client.head_object().bucket(bucket).key(name(key)).send().await;
        return Ok(version(head.map_err(|error| format!("{error:?}"))?.metadata()).unwrap());
    }
    let got = gateway.client.get_object().bucket(bucket).key(name(key)).send().await;
    let got = got.map_err(|error| format!("{error:?}"))?;
    let version: u64 = version(got.metadata()).unwrap();
    let bytes = got.body.collect().await.map_err(|error| format!("{error:?}"))?.into_bytes();
    assert_eq!(bytes.len(), length(key, version));
    content::check(&name(key), version, 0, &bytes).unwrap();
    Ok(version)
}

/// A write may fail while its home is away; then it may be seen or not.
async fn write_on(
    keys: Arc<Vec<Key>>,
    key: usize,
    gateways: Vec<Gateway>,
    bucket: String,
    stop: Arc<AtomicBool>,
) {
    for version in 2.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        keys[key].begun.store(version, Ordering::SeqCst);
        match put(&gateways[version as usize % gateways.len()], &bucket, key, version).await {
            Ok(()) => keys[key].acknowledged.store(version, Ordering::SeqCst),
            Err(error) => println!("{} version {version} failed: {error}", name(key)),
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..1500))).await;
    }
}

async fn read_on(
    keys: Arc<Vec<Key>>,
    gateway: Gateway,
    bucket: String,
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
) {
    while !stop.load(Ordering::Relaxed) {
        let key = rand::random_range(0..KEYS);
        let oldest = keys[key].acknowledged.load(Ordering::SeqCst);
        let whole = rand::random_bool(if key % 2 == 0 { 0.1 } else { 0.7 });
        let Ok(version) = seen(&gateway, &bucket, key, whole).await else {
            continue;
        };
        let newest = keys[key].begun.load(Ordering::SeqCst);
        reads.fetch_add(1, Ordering::Relaxed);
        assert!(
            (oldest..=newest).contains(&version),
            "{} through {}: saw version {version}, {oldest} was acknowledged before the read \
            began, {newest} begun when it ended",
            name(key),
            gateway.endpoint
        );
    }
}

async fn trouble(cluster: &mut Cluster, what: usize, rng: &mut rand::rngs::SmallRng) {
    let worker = format!("worker-{}", rng.random_range(0..2));
    let pause = async |ms| tokio::time::sleep(Duration::from_millis(ms)).await;
    match what {
        // It comes back at once, and knows nothing of what it granted.
        0 | 1 => {
            println!("{worker} is killed and started");
            cluster.signal(&worker, "-KILL").unwrap();
            cluster.restart(&worker).unwrap();
        }
        // It holds leases, and drops none.
        2 => {
            println!("gateway-1 stands still");
            cluster.signal("gateway-1", "-STOP").unwrap();
            pause(3000).await;
            cluster.signal("gateway-1", "-CONT").unwrap();
        }
        // It gives up its epoch, or its lease runs out.
        3 => {
            println!("{worker} is drained and comes back");
            let _ = cluster.command(&["worker", "drain", &worker]).await.unwrap();
            pause(2000).await;
            let _ = cluster.command(&["worker", "undrain", &worker]).await.unwrap();
        }
        _ => {
            println!("{worker} stands still");
            cluster.signal(&worker, "-STOP").unwrap();
            pause(2500).await;
            cluster.signal(&worker, "-CONT").unwrap();
        }
    }
    pause(3000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_reads_see_acknowledged_writes_through_kills_and_stops() {
    let mut rng = seed::rng(seed::from_environment(), 78);
    let mut cluster =
        Cluster::builder().gateways(3).workers(2).coordinated().lease("2s").start().await.unwrap();
    let bucket = cluster.bucket("leases").await.unwrap();
    let gateways = cluster.gateways();
    let keys: Arc<Vec<Key>> = Arc::new((0..KEYS).map(|_| Key::default()).collect());
    for key in 0..KEYS {
        eventually(SOON, async || put(&gateways[0], &bucket, key, 1).await).await.unwrap();
        keys[key].begun.store(1, Ordering::SeqCst);
        keys[key].acknowledged.store(1, Ordering::SeqCst);
    }
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for key in 0..KEYS {
        tasks.spawn(write_on(keys.clone(), key, gateways.clone(), bucket.clone(), stop.clone()));
    }
    for gateway in gateways.iter().chain(&gateways) {
        tasks.spawn(read_on(
            keys.clone(),
            gateway.clone(),
            bucket.clone(),
            stop.clone(),
            reads.clone(),
        ));
    }
    let written = || keys.iter().map(|key| key.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
    // However slow the machine is, leases are in use before the trouble begins: a write whose home
    // was killed leaves its key without leases for an hour.
    let enough = async || {
        let mut metrics = Vec::new();
        for gateway in 0..3 {
            let name = format!("gateway-{gateway}");
            metrics.push(cluster.metrics(&name).await.map_err(|error| error.to_string())?);
        }
        let written = written();
        let sum = |family: &str| metrics.iter().map(|one| one.sum(family, &[])).sum::<f64>();
        let answered = sum("verbs3_client_leased_total");
        let held = sum("verbs3_client_small_object_reads_total");
        let leases = leases(&metrics).map_err(|error| error.to_string())?;
        let seen = format!("{written} versions; {answered} by leases, {held} held; {leases}");
        if written > 20 && answered > 50.0 && held > 10.0 { Ok(seen) } else { Err(seen) }
    };
    let seen = eventually(SOON, enough).await.unwrap();
    let before = (written(), reads.load(Ordering::Relaxed));
    let mut order: Vec<usize> = (0..5).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.random_range(0..=at));
    }
    for round in 0..seed::rounds(order.len()) {
        trouble(&mut cluster, order[round % order.len()], &mut rng).await;
        while let Some(ended) = tasks.try_join_next() {
            ended.expect("a reader saw what can't be");
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a reader saw what can't be");
    }
    let after = (written(), reads.load(Ordering::Relaxed));
    assert!(
        after.0 > before.0 && after.1 > before.1,
        "nothing was done in the trouble: {before:?}"
    );
    println!("{seen}; {} reads, none stale", after.1);
}

/// Without the writes of others, a gateway asks the home of a hot key a few times in the life of
/// its lease, and not at each HEAD.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_is_headed_without_asking_its_home() {
    let cluster =
        Cluster::builder().gateways(2).workers(1).coordinated().lease("10s").start().await.unwrap();
    let bucket = cluster.bucket("hot").await.unwrap();
    let gateways = cluster.gateways();
    eventually(SOON, async || put(&gateways[0], &bucket, 0, 1).await).await.unwrap();
    let answered = async || {
        for _ in 0..50 {
            assert_eq!(seen(&gateways[0], &bucket, 0, false).await?, 1);
        }
        let metrics = cluster.metrics("gateway-0").await.map_err(|error| error.to_string())?;
        let answered = metrics.sum("verbs3_client_leased_total", &["kind=\"head\""]);
        if answered < 100.0 { Err(format!("{answered} answered by leases")) } else { Ok(()) }
    };
    eventually(SOON, answered).await.unwrap();
    // And the write of another gateway shows at once.
    put(&gateways[1], &bucket, 0, 2).await.unwrap();
    assert_eq!(seen(&gateways[0], &bucket, 0, false).await, Ok(2));
    let worker = cluster.metrics("worker-0").await.unwrap();
    assert!(worker.sum("verbs3_worker_leases_total", &["event=\"granted\""]) > 0.0);
}

/// That a key is absent is answered without asking its home, to HEAD and to GET. The write and the
/// deletion of another gateway show at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_absence_is_answered_without_asking_its_home() {
    let cluster =
        Cluster::builder().gateways(2).workers(1).coordinated().lease("10s").start().await.unwrap();
    let bucket = cluster.bucket("absent").await.unwrap();
    let gateways = cluster.gateways();
    eventually(SOON, async || put(&gateways[0], &bucket, 0, 1).await).await.unwrap();
    for version in [1, 2] {
        let delete = gateways[1].client.delete_object().bucket(&bucket).key(name(1)).send();
        delete.await.unwrap();
        assert_absent(&gateways[0], &bucket, 1).await;
        let leased = async || {
            let metrics = cluster.metrics("gateway-0").await.map_err(|error| error.to_string())?;
            Ok::<_, String>(metrics.sum("verbs3_client_leased_total", &["kind=\"absence\""]))
        };
        let before = leased().await.unwrap();
        let answered = async || {
            for _ in 0..25 {
                assert_absent(&gateways[0], &bucket, 1).await;
            }
            let answered = leased().await? - before;
            if answered < 50.0 { Err(format!("{answered} answered by leases")) } else { Ok(()) }
        };
        eventually(SOON, answered).await.unwrap();
        put(&gateways[1], &bucket, 1, version).await.unwrap();
        assert_eq!(seen(&gateways[0], &bucket, 1, true).await, Ok(version));
    }
}

async fn assert_absent(gateway: &Gateway, bucket: &str, key: usize) {
    let head = gateway.client.head_object().bucket(bucket).key(name(key)).send().await;
    assert_eq!(head.unwrap_err().raw_response().unwrap().status().as_u16(), 404);
    let get = gateway.client.get_object().bucket(bucket).key(name(key)).send().await;
    assert!(get.unwrap_err().into_service_error().is_no_such_key());
}

/// A hot block is read out of the memory of its worker without asking the worker, while that evicts
/// all it has for others. The write of another gateway shows at once, and a killed worker costs
/// nothing but time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_block_is_read_without_asking_its_worker() {
    let mut cluster = Cluster::builder()
        .gateways(2)
        .workers(1)
        .worker_memory("64MiB")
        .settings(Section::Gateway, "[gateway.tier]\nkept_pages_for = \"20s\"")
        .coordinated()
        .lease("10s")
        .start()
        .await
        .unwrap();
    let bucket = cluster.bucket("block").await.unwrap();
    let gateways = cluster.gateways();
    eventually(SOON, async || put(&gateways[0], &bucket, 0, 1).await).await.unwrap();
    let kept = async |cluster: &Cluster| {
        let metrics = cluster.metrics("gateway-0").await.map_err(|error| error.to_string())?;
        Ok::<_, String>(metrics.sum("verbs3_client_kept_page_reads_total", &[]))
    };
    let read = async |version| {
        for _ in 0..10 {
            assert_eq!(seen(&gateways[0], &bucket, 0, true).await?, version);
        }
        Ok::<_, String>(())
    };
    let keeps = async |cluster: &Cluster, version, more: f64| {
        read(version).await?;
        match kept(cluster).await? {
            few if few < more => Err(format!("{few} answered with kept pages")),
            _ => Ok(()),
        }
    };
    eventually(SOON, async || keeps(&cluster, 1, 20.0).await).await.unwrap();
    let before = kept(&cluster).await.unwrap();
    // More than the worker's memory, through another gateway, which keeps nothing of this one's.
    for other in 0..16 {
        let key = format!("filler-{other}");
        let (body, client) = (content::body(&key, 1, 8 << 20), &gateways[1].client);
        client.put_object().bucket(&bucket).key(&key).body(body.into()).send().await.unwrap();
        let got = client.get_object().bucket(&bucket).key(&key).send().await.unwrap();
        let bytes = got.body.collect().await.unwrap().into_bytes();
        content::check(&key, 1, 0, &bytes).unwrap();
        read(1).await.unwrap();
    }
    assert!(kept(&cluster).await.unwrap() > before + 20.0);
    put(&gateways[1], &bucket, 0, 2).await.unwrap();
    assert_eq!(seen(&gateways[0], &bucket, 0, true).await, Ok(2));
    eventually(SOON, async || read(2).await).await.unwrap();
    let before = kept(&cluster).await.unwrap();
    cluster.signal("worker-0", "-KILL").unwrap();
    // The attributes are leased for two seconds at most; then the store is asked.
    read(2).await.unwrap();
    cluster.restart("worker-0").unwrap();
    eventually(SOON, async || keeps(&cluster, 2, before + 20.0).await).await.unwrap();
}

/// The bytes of a hot small object come from the gateway itself: whole, in parts, and not at all
/// for a client that has them. The write of another gateway shows at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_small_object_is_read_without_asking_its_home() {
    let cluster =
        Cluster::builder().gateways(2).workers(1).coordinated().lease("10s").start().await.unwrap();
    let bucket = cluster.bucket("small").await.unwrap();
    let gateways = cluster.gateways();
    eventually(SOON, async || put(&gateways[0], &bucket, 1, 1).await).await.unwrap();
    let answered = async || {
        for _ in 0..50 {
            assert_eq!(seen(&gateways[0], &bucket, 1, true).await?, 1);
            part_is_right(&gateways[0], &bucket, 1, 1).await?;
        }
        let metrics = cluster.metrics("gateway-0").await.map_err(|error| error.to_string())?;
        let held = metrics.sum("verbs3_client_small_object_reads_total", &[]);
        // A third of them have no body, and a part is shorter: more than is demanded below.
        if held < 300.0 { Err(format!("{held} answered with held bytes")) } else { Ok(()) }
    };
    eventually(SOON, answered).await.unwrap();
    let metrics = cluster.metrics("gateway-0").await.unwrap();
    let sent = metrics.sum("verbs3_gateway_body_bytes_sent_total", &["transport=\"gateway\""]);
    assert!(sent > 75.0 * 3000.0, "{sent} bytes");
    assert_eq!(metrics.sum("verbs3_read_bytes_in_flight", &[]), 0.0);
    put(&gateways[1], &bucket, 1, 2).await.unwrap();
    assert_eq!(seen(&gateways[0], &bucket, 1, true).await, Ok(2));
    part_is_right(&gateways[0], &bucket, 1, 2).await.unwrap();
}

/// Reads a part of a small object, and asks for it again with a condition that does not hold.
async fn part_is_right(
    gateway: &Gateway,
    bucket: &str,
    key: usize,
    version: u64,
) -> Result<(), String> {
    let get = || gateway.client.get_object().bucket(bucket).key(name(key));
    let part = get().range("bytes=1000-1999").send().await;
    let part = part.map_err(|error| format!("{error:?}"))?;
    let (etag, range) = (part.e_tag.clone().unwrap(), part.content_range.clone().unwrap());
    assert_eq!(range, format!("bytes 1000-1999/{}", length(key, version)));
    let bytes = part.body.collect().await.map_err(|error| format!("{error:?}"))?.into_bytes();
    assert_eq!(bytes.len(), 1000);
    content::check(&name(key), version, 1000, &bytes).unwrap();
    let unchanged = get().if_none_match(etag).send().await;
    assert_eq!(unchanged.unwrap_err().raw_response().unwrap().status().as_u16(), 304);
    Ok(())
}
