//! The homes' part in writes: told before anything is visible, told of the end, and what happens
//! when they can't be told.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use s3s::dto::{DeleteObjectsInput, DeleteObjectsOutput, DeletedObject};
use s3s::{S3, S3Request, S3Response, S3Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use verbs3_ufs::{Ufs, UfsSettings};

use crate::gateway_fixture::{GatewayFixture, mount, until};
use crate::signing::Request;

/// Announced before it is visible, reported before it is acknowledged.
#[tokio::test]
async fn a_put_is_announced_first_and_reported_before_its_answer() {
    let fixture = GatewayFixture::start().await;
    assert_eq!(fixture.put("/sets/x", b"hello").await.status, 200);
    assert_eq!(fixture.told(), ["announce team/a/x visible=false", "report team/a/x Done"]);
    assert!(fixture.visible("store", "team/a/x").await);
}

#[tokio::test]
async fn deletes_copies_tags_and_batches_announce_their_keys() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/a", b"hello").await;
    let copy = Request::new("PUT", "/data/b")
        .header("x-amz-copy-source", "/data/a")
        .header("content-length", "0");
    assert_eq!(fixture.send(&copy, b"").await.status, 200);
    let tags = b"<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>";
    let tag = Request::new("PUT", "/data/b")
        .query("tagging=")
        .header("content-length", &tags.len().to_string());
    assert_eq!(fixture.send(&tag, tags).await.status, 200);
    assert_eq!(fixture.send(&Request::new("DELETE", "/data/b"), b"").await.status, 204);
    let document = b"<Delete><Object><Key>a</Key></Object><Object><Key>c</Key></Object></Delete>";
    let batch = Request::new("POST", "/data")
        .query("delete=")
        .header("content-length", &document.len().to_string());
    assert_eq!(fixture.send(&batch, document).await.status, 200);
    let announced: Vec<String> =
        fixture.told().into_iter().filter(|told| told.starts_with("announce")).collect();
    assert_eq!(
        announced,
        [
            "announce a visible=false",
            "announce b visible=false",
            "announce b visible=true",
            "announce b visible=true",
            "announce a,c visible=true",
        ]
    );
    assert_eq!(fixture.told().iter().filter(|told| told.ends_with("Done")).count(), 5);
}

#[tokio::test]
async fn the_answer_says_when_a_home_was_told_by_coordinators() {
    let fixture = GatewayFixture::start().await;
    let answer = fixture.put("/data/around", b"hello").await;
    assert_eq!((answer.status, &answer.headers["x-verbs3-home"][..]), (200, "relayed"));
    let answer = fixture.send(&Request::new("DELETE", "/data/around"), b"").await;
    assert_eq!((answer.status, &answer.headers["x-verbs3-home"][..]), (204, "relayed"));
    assert!(!fixture.put("/data/directly", b"hello").await.headers.contains_key("x-verbs3-home"));
}

#[tokio::test]
async fn without_its_home_nothing_is_written() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/old", b"old").await;
    fixture.homes.refuse_announce.store(true, Ordering::SeqCst);
    for answer in [
        fixture.put("/data/new", b"hello").await,
        fixture.put("/data/empty", b"").await,
        fixture.put("/data/old", b"newer").await,
        fixture.send(&Request::new("DELETE", "/data/old"), b"").await,
    ] {
        assert_eq!(answer.error(), (503, "ServiceUnavailable".to_owned()));
        assert_eq!(answer.headers["retry-after"], "1");
    }
    assert!(!fixture.visible("data", "new").await && !fixture.visible("data", "empty").await);
    assert_eq!(fixture.get("/data/old").await.body, b"old");
}

#[tokio::test]
async fn a_ttl_mount_writes_without_its_home() {
    let fixture = GatewayFixture::start().await;
    fixture.homes.refuse_announce.store(true, Ordering::SeqCst);
    assert_eq!(fixture.put("/loose/x", b"hello").await.status, 200);
    assert!(fixture.visible("loose", "x").await);
    assert_eq!(fixture.told(), ["forget x"]);
}

/// Bucket `apart` is cached under its own name, which the wildcard gives it.
#[tokio::test]
async fn a_write_through_an_uncached_mount_is_announced_to_others() {
    let fixture = GatewayFixture::start_with(|setup| setup.open = true).await;
    assert_eq!(fixture.put("/raw/x", b"hello").await.status, 200);
    assert_eq!(fixture.told(), ["announce x visible=false", "report x Done"]);
    fixture.homes.refuse_announce.store(true, Ordering::SeqCst);
    assert_eq!(fixture.put("/raw/y", b"hello").await.status, 503, "the wildcard is strict");
    assert_eq!(
        fixture.put("/loose/y", b"hello").await.status,
        503,
        "the wildcard shows the bucket, and is strict"
    );
}

/// Another gateway may cache what this one does not.
#[tokio::test]
async fn a_write_through_a_volumes_only_uncached_mount_is_announced() {
    let fixture = GatewayFixture::start().await;
    assert_eq!(fixture.put("/raw/x", b"hello").await.status, 200);
    assert_eq!(fixture.told(), ["announce x visible=false", "report x Done"]);
    fixture.homes.refuse_announce.store(true, Ordering::SeqCst);
    assert_eq!(
        fixture.put("/raw/y", b"hello").await.status,
        200,
        "the mount says coherence = \"ttl\""
    );
}

#[tokio::test]
async fn a_write_that_can_not_be_reported_is_not_acknowledged() {
    let fixture = GatewayFixture::start().await;
    fixture.homes.refuse_report.store(true, Ordering::SeqCst);
    assert_eq!(
        fixture.put("/data/x", b"hello").await.error(),
        (503, "ServiceUnavailable".to_owned())
    );
    assert_eq!(fixture.put("/loose/x", b"hello").await.status, 200);
}

#[tokio::test]
async fn a_refused_write_is_reported_and_its_refusal_told() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    let again =
        Request::new("PUT", "/data/x").header("content-length", "5").header("if-none-match", "*");
    assert_eq!(
        fixture.send(&again, b"other").await.error(),
        (412, "PreconditionFailed".to_owned())
    );
    assert_eq!(fixture.get("/data/x").await.body, b"hello");
    let told = fixture.told();
    let announced = told.iter().filter(|told| told.starts_with("announce")).count();
    let reported = told.iter().filter(|told| told.starts_with("report")).count();
    assert_eq!(announced, reported, "{told:?}");
}

#[tokio::test]
async fn a_listing_is_reported_to_homes_under_the_names_of_the_ufs() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/sets/a%20b", b"hello").await;
    fixture.put("/sets/dir/x", b"more bytes").await;
    fixture.homes.told.lock().clear();
    for query in ["list-type=2", "encoding-type=url&list-type=2", "encoding-type=url", "versions="]
    {
        let listed = fixture.send(&Request::new("GET", "/sets").query(query), b"").await;
        assert_eq!(listed.status, 200, "{query}: {}", listed.text());
        assert!(listed.text().contains("<Key>dir/x</Key>"), "{query}: {}", listed.text());
        let told = std::mem::take(&mut *fixture.homes.told.lock());
        assert_eq!(told, ["listed local/store team/a/a b=5,team/a/dir/x=10"], "{query}");
    }
    let rolled =
        fixture.send(&Request::new("GET", "/sets").query("delimiter=%2F&list-type=2"), b"").await;
    assert!(rolled.text().contains("<Prefix>dir/</Prefix>"), "{}", rolled.text());
    assert_eq!(fixture.told(), ["listed local/store team/a/a b=5"]);
}

#[tokio::test]
async fn an_uncached_mounts_listing_is_reported_unless_it_is_empty() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/raw/x", b"hello").await;
    fixture.homes.told.lock().clear();
    assert_eq!(fixture.get("/raw").await.status, 200);
    assert_eq!(fixture.get("/loose").await.status, 200);
    assert_eq!(fixture.told(), ["listed local/apart x=5"]);
}

/// A store that deletes when it is let.
struct GatedStore(Arc<Semaphore>);

#[async_trait]
impl S3 for GatedStore {
    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        self.0.acquire().await.unwrap().forget();
        let keys = request.input.delete.objects.into_iter().map(|object| object.key);
        let deleted = keys.map(|key| DeletedObject { key: Some(key), ..Default::default() });
        let output = DeleteObjectsOutput { deleted: Some(deleted.collect()), ..Default::default() };
        Ok(S3Response::new(output))
    }
}

/// Otherwise each of a thousand keys would be one of which nobody knows whether it has changed.
#[tokio::test]
async fn a_batch_whose_client_goes_away_is_finished_and_reported() {
    let go = Arc::new(Semaphore::new(0));
    let gated = Arc::new(GatedStore(go.clone()));
    let fixture = GatewayFixture::start_with(|setup| {
        let ufs = Ufs::new(gated, UfsSettings::with_name("gated"));
        setup.mounts = vec![mount("gated", ufs, "gated", "")];
    })
    .await;
    let document = b"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>";
    let length = document.len().to_string();
    let batch = Request::new("POST", "/gated").query("delete=").header("content-length", &length);
    let (head, _) = batch.signed(&fixture.host());
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(document).await.unwrap();
    until(|| !fixture.told().is_empty()).await;
    drop(socket);
    let shows = |line: &str| fixture.metrics_text().lines().any(|shown| shown == line);
    until(|| shows("verbs3_gateway_left_writes 1")).await;
    assert!(shows("verbs3_gateway_requests_in_flight 1"), "it counts until it is over");
    assert!(shows("verbs3_gateway_store_requests_in_flight 1"));
    assert_eq!(fixture.told(), ["announce a,b visible=false"]);
    go.add_permits(1);
    until(|| fixture.told().len() > 1).await;
    assert_eq!(fixture.told()[1..], ["report a,b Done"]);
    until(|| shows("verbs3_gateway_left_writes 0")).await;
    until(|| shows("verbs3_gateway_requests_in_flight 0")).await;
}
