//! Workers join, everybody follows the map, and a coordinator that comes back goes on with it.

use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::MapFollower;
use verbs3_coordinator_client::api::{CoordinatorRefusalKind, WorkerState};
use verbs3_protocol::MemberRoster;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_join_and_everybody_follows_the_map() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_with_long_leases(file_store(&folder)).await;
    let client = client(&[&running.url], secret());
    let (follower, mut follows) = MapFollower::new(client.clone());
    let stop = CancellationToken::new();
    let following = tokio::spawn(follower.run(stop.clone()));

    register(&client, "a").await;
    let first = tokio::time::timeout(SOON, follows.wait_for(Option::is_some))
        .await
        .unwrap()
        .unwrap()
        .clone()
        .unwrap();
    assert_eq!(first.members.iter().map(|member| member.id.0.as_str()).collect::<Vec<_>>(), ["a"]);
    let granted = renew(&client, "a", Epoch(0), Epoch(0), Duration::ZERO).await.unwrap();
    assert_eq!(granted.activation.unwrap().resolve_activation(None).unwrap().membership, *first);

    // Another worker joins: members are asked to give up the map at once, and not after their wait.
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { renew(&client, "a", first.epoch, Epoch(0), SOON).await.unwrap() })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    register(&client, "b").await;
    let asked = Instant::now();
    let prepare = waiting.await.unwrap().prepare.unwrap();
    assert!(asked.elapsed() < SOON / 2);
    assert_eq!(follows.borrow().as_ref().unwrap().members.len(), 1);
    renew(&client, "a", Epoch(0), prepare, Duration::ZERO).await.unwrap();
    let both =
        |map: &Option<Arc<MemberRoster>>| map.as_ref().is_some_and(|map| map.members.len() == 2);
    tokio::time::timeout(SOON, follows.wait_for(both)).await.unwrap().unwrap();

    // A follower with the map before gets the changes, one without a map gets all of it, and one
    // with the newest waits.
    assert!(
        matches!(map(&client, 0, 0).await, Some(MapAnswer::Membership(map)) if map.members.len() == 2)
    );
    let Some(MapAnswer::Change(change)) = map(&client, 1, 0).await.map(|answer| match answer {
        MapAnswer::Membership(membership) => {
            MapAnswer::Change(MemberRoster::default().change_to(&membership))
        }
        change => change,
    }) else {
        panic!("no change")
    };
    assert_eq!(change.joined.len(), 2);
    assert!(map(&client, prepare.0, 100).await.is_none());
    let view: ClusterView = client.get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(view.workers.iter().map(|worker| worker.slots).sum::<u32>(), 65_536);
    assert!(view.workers.iter().all(|worker| worker.state == WorkerState::Serving), "{view:?}");
    let place: serde_json::Value = client
        .get("/v1/placement?volume=store%2Fdata&key=a%20b", Duration::ZERO)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(place["workers"].as_array().unwrap().len(), 2);
    stop.cancel();
    following.await.unwrap();
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_goes_on_with_the_map_and_waits_for_leases() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(file_store(&folder)).await;
    let asking = client(&[&first.url], secret());
    for id in ["a", "b"] {
        register(&asking, id).await;
    }
    let began = Instant::now();
    while !matches!(map(&asking, 0, 1000).await, Some(MapAnswer::Membership(map)) if map.members.len() == 2)
    {
        for id in ["a", "b"] {
            let prepare =
                renew(&asking, id, Epoch(0), Epoch(0), Duration::ZERO).await.unwrap().prepare;
            renew(&asking, id, Epoch(0), prepare.unwrap_or_default(), Duration::ZERO)
                .await
                .unwrap();
        }
        assert!(began.elapsed() < SOON);
    }
    first.coordinator.shutdown().await;
    drop(first);
    let second = start(file_store_again(&folder).await).await;
    let asking = client(&[&second.url], secret());
    let began = Instant::now();
    assert!(
        matches!(map(&asking, 0, SOON_MS).await, Some(MapAnswer::Membership(map)) if map.members.len() == 2)
    );
    let unknown = loop {
        match renew(&asking, "a", Epoch(1), Epoch(0), Duration::ZERO).await {
            Err(AskError::Away(_)) if began.elapsed() < SOON => {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
            other => break other,
        }
    };
    assert_eq!(unknown.unwrap_err().refusal_kind(), Some(CoordinatorRefusalKind::Unknown));
    // `b` is silent: the next map is without it, but only after its lease must be over.
    loop {
        let granted = register(&asking, "a").await;
        if let Some(prepare) = granted.prepare {
            renew(&asking, "a", Epoch(0), prepare, Duration::ZERO).await.unwrap();
        }
        match map(&asking, 0, 0).await {
            Some(MapAnswer::Membership(map)) if map.members.len() == 1 => break,
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        assert!(began.elapsed() < SOON);
    }
    assert!(began.elapsed() >= LEASE, "{:?}", began.elapsed());
    second.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_coordinators_one_leads_and_is_followed_when_it_ends() {
    let process = etcd::start("three");
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(start(etcd::store(&process.endpoint, "three").await).await);
    }
    let urls: Vec<&str> = running.iter().map(|running| running.url.as_str()).collect();
    // Each coordinator is asked alone: one that does not lead names the leader.
    for url in &urls {
        register(&client(&[url], secret()), "a").await;
    }
    let asking = client(&urls, secret());
    let view: ClusterView = asking.get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    let leads =
        running.iter().position(|running| Some(&running.url) == view.leader.as_ref()).unwrap();
    let Some(MapAnswer::Membership(before)) = map(&asking, 0, SOON_MS).await else {
        panic!("no map")
    };
    let ended = running.remove(leads);
    let began = Instant::now();
    ended.coordinator.shutdown().await;
    register(&asking, "b").await;
    println!("followed {:.1} s after its end began", began.elapsed().as_secs_f64());
    for url in running.iter().map(|running| running.url.as_str()) {
        let Some(MapAnswer::Membership(after)) = map(&client(&[url], secret()), 0, SOON_MS).await
        else {
            panic!("{url} knows no map")
        };
        assert!(after.epoch >= before.epoch);
    }
    for running in running {
        running.coordinator.shutdown().await;
    }
}
