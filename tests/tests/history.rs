//! The coherence promise under concurrency, in a cluster whose map does not change. What is
//! promised, and how it is held against what is seen: `verbs3_tests::history`.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use verbs3_tests::history::{History, Writes};
use verbs3_tests::{Cluster, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_through_any_gateway_see_acknowledged_writes() {
    let seed = seed::from_environment();
    let cluster = Cluster::builder().gateways(3).workers(2).start().await.unwrap();
    let bucket = cluster.bucket("history").await.unwrap();
    let mut history = History::start(&cluster.gateways(), &bucket, seed, Writes::Succeed);
    history.run_for(Duration::from_secs(seed::rounds(20) as u64)).await;
    history.run_until(20, 100).await;
    let summary = history.end().await;
    println!("{summary:?}: no stale and no mixed read");
    summary.bound_by(0);
    cluster.stop().await.unwrap();
}
