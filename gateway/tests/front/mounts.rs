//! Names: a mount of a part of a bucket looks like a bucket of its own.

use crate::signing::Request;
use crate::stage::Stage;

fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    text.split(start).skip(1).map(|rest| rest.split(end).next().unwrap()).collect()
}

#[tokio::test]
async fn a_part_of_a_bucket_looks_like_a_bucket() {
    let stage = Stage::start().await;
    for key in ["x", "d/1", "d/2", "e/1", "%C3%BC%20%2B"] {
        assert_eq!(stage.put(&format!("/sets/{key}"), b"hello").await.status, 200);
    }
    assert!(stage.visible("store", "team/a/ü +").await);
    let listing = stage
        .send(&Request::new("GET", "/sets").query("delimiter=%2F&list-type=2"), b"")
        .await
        .text();
    assert_eq!(between(&listing, "<Name>", "</Name>"), ["sets"]);
    assert_eq!(between(&listing, "<Key>", "</Key>"), ["x", "ü +"], "{listing}");
    assert_eq!(between(&listing, "<CommonPrefixes><Prefix>", "</Prefix>"), ["d/", "e/"]);
    assert!(!listing.contains("team"), "{listing}");
    let encoded = stage
        .send(&Request::new("GET", "/sets").query("encoding-type=url&prefix=%C3%BC"), b"")
        .await
        .text();
    assert_eq!(between(&encoded, "<Key>", "</Key>").len(), 1, "{encoded}");
    assert!(!encoded.contains("team"), "{encoded}");
}

#[tokio::test]
async fn pages_of_a_listing_follow_each_other() {
    let stage = Stage::start().await;
    for key in ["a", "b", "c"] {
        stage.put(&format!("/sets/{key}"), b"").await;
    }
    let first = stage.send(&Request::new("GET", "/sets").query("max-keys=2"), b"").await.text();
    assert_eq!(between(&first, "<Key>", "</Key>"), ["a", "b"]);
    let second = stage.send(&Request::new("GET", "/sets").query("marker=b"), b"").await.text();
    assert_eq!(between(&second, "<Key>", "</Key>"), ["c"]);
    let first =
        stage.send(&Request::new("GET", "/sets").query("list-type=2&max-keys=2"), b"").await.text();
    let token = between(&first, "<NextContinuationToken>", "<")[0].to_owned();
    let token = percent_encoding::utf8_percent_encode(&token, percent_encoding::NON_ALPHANUMERIC)
        .to_string();
    let query = format!("continuation-token={token}&list-type=2");
    let second = stage.send(&Request::new("GET", "/sets").query(&query), b"").await.text();
    assert_eq!(between(&second, "<Key>", "</Key>"), ["c"]);
}

#[tokio::test]
async fn copies_read_the_source_through_its_own_mount() {
    let stage = Stage::start().await;
    stage.put("/sets/x", b"hello").await;
    let copy = |path: &str, source: &str| {
        Request::new("PUT", path).header("content-length", "0").header("x-amz-copy-source", source)
    };
    assert_eq!(stage.send(&copy("/data/y", "sets/x"), b"").await.status, 200);
    assert_eq!(stage.get("/data/y").await.body, b"hello");
    let outside = stage.send(&copy("/data/z", "store/team/a/x"), b"").await;
    assert_eq!(outside.error(), (404, "NoSuchBucket".to_owned()));
}

#[tokio::test]
async fn administration_is_refused_on_a_part_and_possible_on_a_whole() {
    let stage = Stage::start().await;
    let part = stage.send(&Request::new("DELETE", "/sets"), b"").await;
    assert_eq!(part.error(), (403, "AccessDenied".to_owned()));
    assert!(part.text().contains("mount of a part"), "{}", part.text());
    assert_eq!(stage.send(&Request::new("HEAD", "/sets"), b"").await.status, 200);
    assert_eq!(stage.send(&Request::new("GET", "/sets").query("location="), b"").await.status, 200);
    assert_eq!(stage.send(&Request::new("DELETE", "/loose"), b"").await.status, 204);
    assert_eq!(stage.get("/nowhere/x").await.error(), (404, "NoSuchBucket".to_owned()));
}

#[tokio::test]
async fn a_read_only_mount_takes_no_writes() {
    let stage = Stage::start().await;
    stage.put("/data/x", b"hello").await;
    assert_eq!(stage.get("/frozen/x").await.body, b"hello");
    assert_eq!(stage.put("/frozen/x", b"other").await.error(), (403, "AccessDenied".to_owned()));
    assert_eq!(stage.send(&Request::new("DELETE", "/frozen/x"), b"").await.error().0, 403);
    assert_eq!(stage.get("/data/x").await.body, b"hello");
}

#[tokio::test]
async fn a_store_mounted_as_a_whole_shows_and_makes_buckets() {
    let stage = Stage::start_with(|setup| setup.open = true).await;
    let create = Request::new("PUT", "/fresh-one").header("content-length", "0");
    assert_eq!(stage.send(&create, b"").await.status, 200);
    assert_eq!(stage.put("/fresh-one/x", b"hello").await.status, 200);
    assert_eq!(stage.get("/fresh-one/x").await.body, b"hello");
    let names = stage.get("/").await.text();
    let expected = ["apart", "data", "fresh-one", "frozen", "loose", "raw", "sets", "store"];
    assert_eq!(between(&names, "<Name>", "</Name>"), expected);
}
