//! The cases. Each takes two participants of a fresh store.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use verbs3_coordinator::store::{
    ClusterStore, ClusterStoreError, ClusterStoreRevision, EntryPrecondition, KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
};

use crate::Pair;

const SOON: Duration = Duration::from_secs(90);
const LEASE: Duration = Duration::from_secs(10);

async fn put(store: &dyn ClusterStore, key: &str, value: &'static str) -> ClusterStoreRevision {
    store
        .put_entry(key, Bytes::from_static(value.as_bytes()), EntryPrecondition::Any, None)
        .await
        .unwrap()
}

async fn value(store: &dyn ClusterStore, key: &str) -> Option<String> {
    let entry = store.get_entry(key).await.unwrap()?;
    Some(String::from_utf8(entry.value.to_vec()).unwrap())
}

pub async fn what_was_put_is_got(Pair { one, other }: Pair) {
    assert_eq!(one.get_entry("a/b").await.unwrap(), None);
    let revision = put(&*one, "a/b", "first").await;
    let entry = other.get_entry("a/b").await.unwrap().unwrap();
    assert_eq!(
        (entry.key.as_str(), &entry.value[..], entry.revision),
        ("a/b", &b"first"[..], revision)
    );
    put(&*other, "a/b", "").await;
    assert_eq!(value(&*one, "a/b").await.unwrap(), "");
    one.delete_entry("a/b", EntryPrecondition::Any, None).await.unwrap();
    assert_eq!(other.get_entry("a/b").await.unwrap(), None);
    one.delete_entry("a/b", EntryPrecondition::Any, None).await.unwrap();
}

pub async fn lists_are_of_a_prefix_and_in_order(Pair { one, other }: Pair) {
    let names = ["jobs/b", "jobs/ä %/..", "jobs/a", "jobs.", "jobsx", "map"];
    for name in names {
        put(&*one, name, "x").await;
    }
    let _leader = one.campaign_for_leader("me", LEASE).await.unwrap();
    let list = |prefix: &'static str| {
        let other = other.clone();
        async move {
            other
                .list_entries(prefix)
                .await
                .unwrap()
                .into_iter()
                .map(|entry| entry.key)
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(list("jobs/").await, ["jobs/a", "jobs/b", "jobs/ä %/.."]);
    assert_eq!(list("none/").await, [""; 0]);
    assert_eq!(list("").await.len(), names.len(), "the election shows nowhere");
}

pub async fn a_write_that_expects_something_else_changes_nothing(Pair { one, other }: Pair) {
    let conflict = |result: Result<ClusterStoreRevision, ClusterStoreError>| {
        assert!(matches!(result, Err(ClusterStoreError::Conflict { .. })), "{result:?}")
    };
    let write = |value: &'static str, expect| {
        let one = one.clone();
        async move { one.put_entry("map", Bytes::from_static(value.as_bytes()), expect, None).await }
    };
    conflict(write("x", EntryPrecondition::Revision(ClusterStoreRevision(1))).await);
    let first = write("1", EntryPrecondition::Absent).await.unwrap();
    conflict(write("x", EntryPrecondition::Absent).await);
    let second = write("2", EntryPrecondition::Revision(first)).await.unwrap();
    conflict(write("x", EntryPrecondition::Revision(first)).await);
    let stale = other.delete_entry("map", EntryPrecondition::Revision(first), None).await;
    assert!(matches!(stale, Err(ClusterStoreError::Conflict { .. })));
    assert_eq!(value(&*other, "map").await.unwrap(), "2");
    other.delete_entry("map", EntryPrecondition::Revision(second), None).await.unwrap();
    conflict(write("x", EntryPrecondition::Revision(second)).await);
    assert_eq!(value(&*other, "map").await, None);
}

pub async fn revisions_never_repeat(Pair { one, other }: Pair) {
    let mut last = ClusterStoreRevision(0);
    for round in 0..5 {
        for store in [&one, &other] {
            let revision = put(&**store, "k", "x").await;
            assert!(revision > last, "round {round}: {revision:?} after {last:?}");
            last = revision;
        }
        one.delete_entry("k", EntryPrecondition::Any, None).await.unwrap();
    }
}

pub async fn of_many_that_swap_at_once_one_wins(Pair { one, other }: Pair) {
    let mut seen = put(&*one, "counter", "0").await;
    for round in 1..=10 {
        let tries = (0..8).map(|index| {
            let store = if index % 2 == 0 { one.clone() } else { other.clone() };
            let value = Bytes::from(format!("{round} by {index}"));
            tokio::spawn(async move {
                store.put_entry("counter", value, EntryPrecondition::Revision(seen), None).await
            })
        });
        let mut won = Vec::new();
        for attempt in tries.collect::<Vec<_>>() {
            match attempt.await.unwrap() {
                Ok(revision) => won.push(revision),
                Err(ClusterStoreError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(won.len(), 1);
        seen = won[0];
        assert_eq!(one.get_entry("counter").await.unwrap().unwrap().revision, seen);
    }
}

pub async fn a_watch_tells_of_changes_below_its_prefix_alone(Pair { one, other }: Pair) {
    put(&*one, "jobs/1", "before").await;
    let mut watch = other.watch_prefix("jobs/").await.unwrap();
    let mut elsewhere = other.watch_prefix("map").await.unwrap();
    assert!(
        timeout(Duration::from_millis(300), watch.next_change()).await.is_err(),
        "told of what was there"
    );
    put(&*one, "jobs/1", "changed").await;
    timeout(SOON, watch.next_change()).await.unwrap();
    assert_eq!(value(&*other, "jobs/1").await.unwrap(), "changed");
    one.delete_entry("jobs/1", EntryPrecondition::Any, None).await.unwrap();
    timeout(SOON, watch.next_change()).await.unwrap();
    assert_eq!(other.get_entry("jobs/1").await.unwrap(), None);
    assert!(timeout(Duration::from_millis(300), elsewhere.next_change()).await.is_err());
}

pub async fn there_is_one_leader(Pair { one, other }: Pair) {
    assert_eq!(other.current_leader().await.unwrap(), None);
    let first = one.campaign_for_leader("http://one", LEASE).await.unwrap();
    assert_eq!(other.current_leader().await.unwrap().as_deref(), Some("http://one"));
    // Longer than a lease: it has to be kept.
    let longer = LEASE + Duration::from_secs(5);
    assert!(
        timeout(longer, other.campaign_for_leader("http://other", LEASE)).await.is_err(),
        "two leaders"
    );
    assert!(!first.is_lost());
    let put = one
        .put_entry(
            "map",
            Bytes::from_static(b"1"),
            EntryPrecondition::Absent,
            Some(first.fencing_token()),
        )
        .await;
    put.unwrap();
}

pub async fn a_deposed_leader_can_not_write(Pair { one, other }: Pair) {
    let first = one.campaign_for_leader("one", LEASE).await.unwrap();
    let old = first.fencing_token().clone();
    let revision = one
        .put_entry("map", Bytes::from_static(b"1"), EntryPrecondition::Any, Some(&old))
        .await
        .unwrap();
    drop(first);
    let second = timeout(SOON, other.campaign_for_leader("other", LEASE)).await.unwrap().unwrap();
    for expect in [EntryPrecondition::Any, EntryPrecondition::Revision(revision)] {
        let late = one.put_entry("map", Bytes::from_static(b"2"), expect, Some(&old)).await;
        assert!(matches!(late, Err(ClusterStoreError::Fenced { .. })), "{late:?}");
        let late = one.delete_entry("map", expect, Some(&old)).await;
        assert!(matches!(late, Err(ClusterStoreError::Fenced { .. })), "{late:?}");
    }
    assert_eq!(value(&*one, "map").await.unwrap(), "1");
    let now = other
        .put_entry(
            "map",
            Bytes::from_static(b"3"),
            EntryPrecondition::Revision(revision),
            Some(second.fencing_token()),
        )
        .await;
    now.unwrap();
}

pub async fn who_resigns_is_followed_at_once(Pair { one, other }: Pair) {
    let first = one.campaign_for_leader("one", Duration::from_secs(600)).await.unwrap();
    let waiting = tokio::spawn(async move {
        let second = other.campaign_for_leader("other", Duration::from_secs(600)).await.unwrap();
        (other, second)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(first);
    let (other, _second) = timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(other.current_leader().await.unwrap().as_deref(), Some("other"));
}

pub async fn keys_and_values_have_bounds(Pair { one, .. }: Pair) {
    let write = |key: String, bytes: usize| {
        let one = one.clone();
        async move {
            one.put_entry(&key, Bytes::from(vec![7; bytes]), EntryPrecondition::Any, None).await
        }
    };
    let longest = "k".repeat(KEY_BYTES_MAX);
    write(longest.clone(), VALUE_BYTES_MAX).await.unwrap();
    assert_eq!(one.get_entry(&longest).await.unwrap().unwrap().value.len(), VALUE_BYTES_MAX);
    for (key, bytes) in
        [(format!("{longest}k"), 1), (String::new(), 1), ("big".to_owned(), VALUE_BYTES_MAX + 1)]
    {
        let refused = write(key, bytes).await;
        assert!(matches!(refused, Err(ClusterStoreError::Refused { .. })), "{refused:?}");
    }
}

/// A client of gRPC takes 4 MiB at once, unless it is told otherwise.
pub async fn a_list_of_many_megabytes_comes_whole(Pair { one, other }: Pair) {
    for number in 0..6 {
        let value = Bytes::from(vec![number; VALUE_BYTES_MAX]);
        one.put_entry(&format!("jobs/{number}"), value, EntryPrecondition::Any, None)
            .await
            .unwrap();
    }
    let lengths: Vec<usize> =
        other.list_entries("jobs/").await.unwrap().iter().map(|entry| entry.value.len()).collect();
    assert_eq!(lengths, [VALUE_BYTES_MAX; 6]);
}
