//! Hot blocks, from the workers' reports to the gateways.

use std::collections::HashMap;

use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::HotFollower;
use verbs3_coordinator_client::hot_blocks::HotBlockRate;
use verbs3_protocol::{BlockIndex, ObjectKey, ObjectVolume};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_hear_of_reported_hot_blocks_until_they_are_cold() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let client = client(&[&running.url], secret());
    let wish = register(&client, "a").await.hot.unwrap();
    assert_eq!((wish.every_ms, wish.rate_min, wish.blocks_max), (100, 1 << 17, 10));
    register(&client, "b").await;
    let (sender, mut heard) = tokio::sync::watch::channel(HashMap::new());
    let own = self::client(&[&running.url], secret());
    let follower = HotFollower::new(own, move |blocks| drop(sender.send_replace(blocks)));
    let stop = CancellationToken::new();
    let following = tokio::spawn(follower.run(stop.clone()));

    let object = ObjectKey { volume: ObjectVolume::new("store", "train"), key: "k".into() };
    let (block, hash) = (BlockIndex(2), object.block_hash(BlockIndex(2)));
    let report = async |rate: u64| {
        for id in ["a", "b"] {
            // While a map comes into force there is no answer.
            let Ok(granted) = renew(&client, id, Epoch(0), Epoch(0), Duration::ZERO).await else {
                continue;
            };
            let prepare = granted.prepare;
            let hot = vec![HotBlockRate { object: object.clone(), block, bytes_per_second: rate }];
            let renewal = WorkerLeaseRenewal {
                hot: Some(hot),
                ..renewal(id, Epoch(0), prepare.unwrap_or_default())
            };
            let path = format!("/v1/workers/{id}/renew");
            let granted: Result<Option<WorkerLeaseGrant>, AskError> =
                client.post_json(&path, &renewal, Duration::ZERO).await;
            if let Ok(Some(granted)) = granted {
                assert_eq!(granted.hot, Some(wish));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let began = Instant::now();
    while heard.borrow_and_update().get(&hash) != Some(&2) {
        report(5 << 20).await;
        assert!(began.elapsed() < SOON, "{:?}", heard.borrow());
    }
    let view: ClusterView = client.get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(
        (view.hot.blocks, view.hot.hottest[0].workers, view.hot.hottest[0].key.as_str()),
        (1, 2, "k")
    );
    // They live on, and serve little of it.
    while !heard.borrow_and_update().is_empty() {
        report(1).await;
        assert!(began.elapsed() < 2 * SOON, "{:?}", heard.borrow());
    }
    stop.cancel();
    following.await.unwrap();
    running.coordinator.shutdown().await;
}
