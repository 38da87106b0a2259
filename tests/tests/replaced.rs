//! Objects that are replaced or deleted while they are read, or behind the gateway's back: a body
//! is of one version, a read that has not begun is of the new one, and what the tier holds is
//! served to its end.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use aws_sdk_s3::Client;
use verbs3_tests::reading::{self, Seen};
use verbs3_tests::{Cluster, content};

const MIB: usize = 1 << 20;

struct ReplacementFixture {
    cluster: Cluster,
    bucket: String,
}

impl ReplacementFixture {
    /// Attributes are believed for an hour.
    async fn start(worker_memory: &'static str) -> Self {
        let cluster =
            Cluster::builder().workers(2).worker_memory(worker_memory).start().await.unwrap();
        let bucket = cluster.bucket("replaced").await.unwrap();
        Self { cluster, bucket }
    }

    fn client(&self) -> Client {
        reading::once(&self.cluster.gateways()[0].client)
    }

    async fn put_behind(&self, key: &str, version: u64, length: usize) {
        reading::put_surely(&self.cluster.store(), &self.bucket, key, version, length).await;
    }

    /// The first page of the object, and nothing else of it, is in the tier.
    async fn read_first_byte(&self, key: &str) {
        let ranged = self.client().get_object().bucket(&self.bucket).key(key).range("bytes=0-0");
        assert_eq!(
            ranged.send().await.unwrap().body.collect().await.unwrap().into_bytes().len(),
            1
        );
    }

    async fn get(&self, key: &str) -> Seen {
        reading::get(&self.client(), &self.bucket, key).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_replaced_behind_the_gateway_is_read_whole() {
    let fixture = ReplacementFixture::start("96MiB").await;
    for (key, length) in [("same", MIB), ("longer", MIB + 5), ("shorter", MIB - 5)] {
        fixture.put_behind(key, 1, MIB).await;
        fixture.read_first_byte(key).await;
        fixture.put_behind(key, 2, length).await;
        for _ in 0..3 {
            fixture.get(key).await.is_whole(key, 2, length).unwrap();
        }
    }
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_deleted_behind_the_gateway_is_absent() {
    let fixture = ReplacementFixture::start("96MiB").await;
    fixture.put_behind("key", 1, MIB).await;
    fixture.read_first_byte("key").await;
    let deleted =
        fixture.cluster.store().delete_object().bucket(&fixture.bucket).key("key").send().await;
    deleted.unwrap();
    for _ in 0..3 {
        assert_eq!(fixture.get("key").await.status(), Some(404));
    }
    fixture.cluster.stop().await.unwrap();
}

/// The blocks behind the first are found to be gone when the head of the answer has left: that body
/// is cut, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_replaced_behind_the_gateway_is_cut_once() {
    let fixture = ReplacementFixture::start("96MiB").await;
    let (key, length) = ("large", 17 * MIB + 3);
    fixture.put_behind(key, 1, length).await;
    let first =
        fixture.client().get_object().bucket(&fixture.bucket).key(key).range("bytes=0-4194303");
    first.send().await.unwrap().body.collect().await.unwrap();
    fixture.put_behind(key, 2, length).await;
    match fixture.get(key).await {
        Seen::Cut(body) => content::check(key, 1, 0, &body).unwrap(),
        other => other.is_whole(key, 2, length).unwrap(),
    }
    for _ in 0..3 {
        fixture.get(key).await.is_whole(key, 2, length).unwrap();
    }
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_body_under_way_outlives_overwrite_and_delete() {
    // Room for all three at each worker, wherever their blocks are placed.
    let fixture = ReplacementFixture::start("512MiB").await;
    let length = 100 * MIB + 3;
    for key in ["overwritten", "deleted", "overwritten behind"] {
        assert_eq!(reading::put(&fixture.client(), &fixture.bucket, key, 1, length).await, None);
        fixture.get(key).await.is_whole(key, 1, length).unwrap();
        let (stream, body) = reading::begin(&fixture.client(), &fixture.bucket, key).await;
        match key {
            "overwritten" => {
                assert_eq!(
                    reading::put(&fixture.client(), &fixture.bucket, key, 2, MIB).await,
                    None
                )
            }
            "deleted" => {
                assert_eq!(reading::delete(&fixture.client(), &fixture.bucket, key).await, None)
            }
            _ => fixture.put_behind(key, 2, MIB).await,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        reading::collect(stream, body).await.is_whole(key, 1, length).unwrap();
    }
    fixture.cluster.stop().await.unwrap();
}
