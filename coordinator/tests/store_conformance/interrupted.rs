//! Tests watches and leaderships when etcd is killed and comes back with its history compacted,
//! when a leader is late, and when members of etcd are away.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use verbs3_coordinator::store::etcd::{EtcdOptions, EtcdStore};
use verbs3_coordinator::store::{ClusterStore, EntryPrecondition, SharedClusterStore};
use verbs3_coordinator_client::lease_clock::{BootLeaseClock, LeaseClock};

use crate::etcd;

const WITHIN: Duration = Duration::from_secs(120);
/// What a leader that is late has at least, much less than the second that is left of its lease.
const LATE: Duration = Duration::from_millis(300);

/// Retries until etcd accepts the write.
async fn put(store: &SharedClusterStore, key: &str, value: &'static str) {
    let putting = async {
        while store
            .put_entry(key, Bytes::from_static(value.as_bytes()), EntryPrecondition::Any, None)
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(WITHIN, putting).await.unwrap();
}

async fn compact(endpoint: &str) {
    let mut client = etcd_client::Client::connect([endpoint], None).await.unwrap();
    let now = client.get("anything", None).await.unwrap().header().unwrap().revision();
    let physical = etcd_client::CompactionOptions::new().with_physical();
    client.compact(now, Some(physical)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_a_restart_of_etcd_and_its_compaction() {
    let etcd = etcd::start("interrupted");
    let watching = etcd::store(&etcd.endpoint, "interrupted").await;
    let writing = etcd::store(&etcd.endpoint, "interrupted").await;
    let mut watch = watching.watch_prefix("map").await.unwrap();
    put(&writing, "map", "1").await;
    tokio::time::timeout(WITHIN, watch.next_change()).await.unwrap();

    for (killed, value) in [("2", "3"), ("4", "5")] {
        put(&writing, "map", killed).await;
        put(&writing, "elsewhere", killed).await;
        compact(&etcd.endpoint).await;
        etcd.kill();
        etcd.restart();
        // What has happened so far, and then nothing of it until there is news.
        put(&writing, "elsewhere", value).await;
        let calm = async {
            while tokio::time::timeout(Duration::from_secs(2), watch.next_change()).await.is_ok() {}
        };
        tokio::time::timeout(WITHIN, calm).await.unwrap();
        put(&writing, "map", value).await;
        tokio::time::timeout(WITHIN, watch.next_change()).await.unwrap();
        assert_eq!(watching.get_entry("map").await.unwrap().unwrap().value, value);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_is_replaced_after_etcd_returns_and_can_not_write() {
    let etcd = etcd::start("succeeded");
    let (one, other) = (
        etcd::store(&etcd.endpoint, "succeeded").await,
        etcd::store(&etcd.endpoint, "succeeded").await,
    );
    let leadership = one.campaign_for_leader("one", Duration::from_secs(2)).await.unwrap();
    let standing = tokio::spawn({
        let other = other.clone();
        async move {
            loop {
                match other.campaign_for_leader("other", Duration::from_secs(2)).await {
                    Ok(next) => return Arc::new(next),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        }
    });
    etcd.kill();
    tokio::time::timeout(WITHIN, leadership.wait_until_lost()).await.unwrap();
    etcd.restart();
    let next = tokio::time::timeout(WITHIN, standing).await.unwrap().unwrap();
    let fenced = one
        .put_entry("map", Bytes::new(), EntryPrecondition::Any, Some(leadership.fencing_token()))
        .await
        .unwrap_err();
    assert!(fenced.to_string().contains("map"), "{fenced}");
    other
        .put_entry(
            "map",
            Bytes::from_static(b"next"),
            EntryPrecondition::Any,
            Some(next.fencing_token()),
        )
        .await
        .unwrap();
    assert_eq!(one.get_entry("map").await.unwrap().unwrap().value, "next");
}

/// The leader's clock has leapt, or it was stopped for a while, and nobody else was elected
/// meanwhile.
#[tokio::test]
async fn a_leader_that_is_late_leads_on_if_etcd_still_has_its_lease() {
    let etcd = etcd::start("late");
    let one = etcd::store(&etcd.endpoint, "late").await;
    for _ in 0..10 {
        let leadership = one.campaign_for_leader("one", Duration::from_secs(10)).await.unwrap();
        let end = leadership.certain_until();
        // The only thread: what keeps the leadership stands still, too. A second later the lease
        // would be over.
        std::thread::sleep(
            end.saturating_duration_since(BootLeaseClock.now()) + Duration::from_millis(50),
        );
        let woke = Instant::now();
        while !leadership.is_lost() && leadership.certain_until() <= BootLeaseClock.latest_now() {
            assert!(woke.elapsed() < WITHIN, "neither certain nor lost");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if leadership.is_lost() {
            // A machine that stood still once more was too late. Nothing follows from that.
            assert!(woke.elapsed() > LATE, "lost after {:?}", woke.elapsed());
            continue;
        }
        let fence = Some(leadership.fencing_token());
        one.put_entry("map", Bytes::new(), EntryPrecondition::Any, fence).await.unwrap();
        return;
    }
    panic!("the machine stands still again and again");
}

/// A member that fails at once seems to be the least busy one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_are_away_are_turned_from() {
    let etcd = etcd::start("away");
    let real = etcd.endpoint.clone();
    let at = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = at(&TcpListener::bind("127.0.0.1:0").unwrap());
    let deadline = Duration::from_secs(5);
    // Until it is there.
    etcd::store(&real, "away").await;
    for endpoints in [[closed.clone(), at(&silent), real.clone()], [real, at(&silent), closed]] {
        let options =
            EtcdOptions { endpoints: endpoints.to_vec(), deadline, ..etcd::options("", "away") };
        let store = EtcdStore::connect(options).await.unwrap();
        let began = Instant::now();
        let leadership = store.campaign_for_leader("one", Duration::from_secs(10)).await.unwrap();
        assert!(began.elapsed() < 3 * deadline, "{:?}", began.elapsed());
        for _ in 0..20 {
            store.get_entry("map").await.unwrap();
            let value = Bytes::from_static(b"map");
            store
                .put_entry("map", value, EntryPrecondition::Any, Some(leadership.fencing_token()))
                .await
                .unwrap();
        }
    }
}
