//! Names: a mount of a part of a bucket looks like a bucket of its own.

use crate::gateway_fixture::GatewayFixture;
use crate::signing::Request;

fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    text.split(start).skip(1).map(|rest| rest.split(end).next().unwrap()).collect()
}

#[tokio::test]
async fn a_part_of_a_bucket_looks_like_a_bucket() {
    let fixture = GatewayFixture::start().await;
    for key in ["x", "d/1", "d/2", "e/1", "%C3%BC%20%2B"] {
        assert_eq!(fixture.put(&format!("/sets/{key}"), b"hello").await.status, 200);
    }
    assert!(fixture.visible("store", "team/a/ü +").await);
    let listing = fixture
        .send(&Request::new("GET", "/sets").query("delimiter=%2F&list-type=2"), b"")
        .await
        .text();
    assert_eq!(between(&listing, "<Name>", "</Name>"), ["sets"]);
    assert_eq!(between(&listing, "<Key>", "</Key>"), ["x", "ü +"], "{listing}");
    assert_eq!(between(&listing, "<CommonPrefixes><Prefix>", "</Prefix>"), ["d/", "e/"]);
    assert!(!listing.contains("team"), "{listing}");
    let encoded = fixture
        .send(&Request::new("GET", "/sets").query("encoding-type=url&prefix=%C3%BC"), b"")
        .await
        .text();
    assert_eq!(between(&encoded, "<Key>", "</Key>").len(), 1, "{encoded}");
    assert!(!encoded.contains("team"), "{encoded}");
}

#[tokio::test]
async fn pages_of_a_listing_follow_each_other() {
    let fixture = GatewayFixture::start().await;
    for key in ["a", "b", "c"] {
        fixture.put(&format!("/sets/{key}"), b"").await;
    }
    let first = fixture.send(&Request::new("GET", "/sets").query("max-keys=2"), b"").await.text();
    assert_eq!(between(&first, "<Key>", "</Key>"), ["a", "b"]);
    let second = fixture.send(&Request::new("GET", "/sets").query("marker=b"), b"").await.text();
    assert_eq!(between(&second, "<Key>", "</Key>"), ["c"]);
    let first = fixture
        .send(&Request::new("GET", "/sets").query("list-type=2&max-keys=2"), b"")
        .await
        .text();
    let token = between(&first, "<NextContinuationToken>", "<")[0].to_owned();
    let token = percent_encoding::utf8_percent_encode(&token, percent_encoding::NON_ALPHANUMERIC)
        .to_string();
    let query = format!("continuation-token={token}&list-type=2");
    let second = fixture.send(&Request::new("GET", "/sets").query(&query), b"").await.text();
    assert_eq!(between(&second, "<Key>", "</Key>"), ["c"]);
}

#[tokio::test]
async fn copies_read_the_source_through_its_own_mount() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/sets/x", b"hello").await;
    let copy = |path: &str, source: &str| {
        Request::new("PUT", path).header("content-length", "0").header("x-amz-copy-source", source)
    };
    assert_eq!(fixture.send(&copy("/data/y", "sets/x"), b"").await.status, 200);
    assert_eq!(fixture.get("/data/y").await.body, b"hello");
    let outside = fixture.send(&copy("/data/z", "store/team/a/x"), b"").await;
    assert_eq!(outside.error(), (404, "NoSuchBucket".to_owned()));
}

#[tokio::test]
async fn administration_is_refused_on_a_part_and_possible_on_a_whole() {
    let fixture = GatewayFixture::start().await;
    let part = fixture.send(&Request::new("DELETE", "/sets"), b"").await;
    assert_eq!(part.error(), (403, "AccessDenied".to_owned()));
    assert!(part.text().contains("mount of a part"), "{}", part.text());
    assert_eq!(fixture.send(&Request::new("HEAD", "/sets"), b"").await.status, 200);
    assert_eq!(
        fixture.send(&Request::new("GET", "/sets").query("location="), b"").await.status,
        200
    );
    assert_eq!(fixture.send(&Request::new("DELETE", "/loose"), b"").await.status, 204);
    assert_eq!(fixture.get("/nowhere/x").await.error(), (404, "NoSuchBucket".to_owned()));
}

#[tokio::test]
async fn a_read_only_mount_takes_no_writes() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/x", b"hello").await;
    assert_eq!(fixture.get("/frozen/x").await.body, b"hello");
    assert_eq!(fixture.put("/frozen/x", b"other").await.error(), (403, "AccessDenied".to_owned()));
    assert_eq!(fixture.send(&Request::new("DELETE", "/frozen/x"), b"").await.error().0, 403);
    assert_eq!(fixture.get("/data/x").await.body, b"hello");
}

#[tokio::test]
async fn a_store_mounted_as_a_whole_shows_and_makes_buckets() {
    let fixture = GatewayFixture::start_with(|setup| setup.open = true).await;
    let create = Request::new("PUT", "/fresh-one").header("content-length", "0");
    assert_eq!(fixture.send(&create, b"").await.status, 200);
    assert_eq!(fixture.put("/fresh-one/x", b"hello").await.status, 200);
    assert_eq!(fixture.get("/fresh-one/x").await.body, b"hello");
    let names = fixture.get("/").await.text();
    let expected = ["apart", "data", "fresh-one", "frozen", "loose", "raw", "sets", "store"];
    assert_eq!(between(&names, "<Name>", "</Name>"), expected);
}
