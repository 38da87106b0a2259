//! Tests what is on disk, and what the store reports when the disk is wrong.

use std::fs;

use s3s::S3;
use s3s::dto::*;

use super::*;
use crate::LocalError;
use crate::blob::{BlobExtent, BlobId};
use crate::index::{LayoutRecord, ObjectLayout};

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    put(&store, "a/é+%", content(1, 600_000)).await.unwrap();
    put(&store, "empty", Vec::new()).await.unwrap();
    let id = start_upload(&store, "parts").await;
    let one = upload_part(&store, "parts", &id, 1, content(2, 300_000)).await.unwrap();
    drop(store);

    let store = open(folder.path());
    let two = upload_part(&store, "parts", &id, 2, content(3, 5)).await.unwrap();
    complete(&store, "parts", &id, vec![one, two]).await.unwrap();
    drop(store);

    let store = open(folder.path());
    assert!(get(&store, "a/é+%").await.unwrap() == content(1, 600_000));
    assert!(get(&store, "empty").await.unwrap().is_empty());
    assert!(get(&store, "parts").await.unwrap() == [content(2, 300_000), content(3, 5)].concat());
    assert_eq!(blobs(folder.path()).len(), 3);
}

#[tokio::test]
async fn a_synced_store_keeps_its_objects_too() {
    let folder = tempfile::tempdir().unwrap();
    let synced = || open_with(LocalOptions::new(folder.path()));
    let store = synced();
    let input = CreateBucketInput { bucket: "bucket".to_owned(), ..Default::default() };
    store.create_bucket(req(input)).await.unwrap();
    let puts = (0..20).map(|n| {
        let store = store.clone();
        async move { put(&store, &format!("k{n}"), content(n, 1000)).await.unwrap() }
    });
    futures::future::join_all(puts).await;
    let stats = store.store_stats();
    assert_eq!((stats.changes, stats.commit_failures), (21, 0));
    assert!(stats.commits <= stats.changes);
    drop(store);
    let store = synced();
    for n in 0..20 {
        assert!(get(&store, &format!("k{n}")).await.unwrap() == content(n, 1000));
    }
}

#[tokio::test]
async fn a_missing_or_short_blob_is_an_error_and_not_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    put(&store, "missing", content(1, 1000)).await.unwrap();
    put(&store, "short", content(2, 1_000_000)).await.unwrap();
    put(&store, "whole", content(3, 1000)).await.unwrap();
    let files = blobs(folder.path());
    fs::remove_file(&files[0]).unwrap();
    fs::File::options().write(true).open(&files[1]).unwrap().set_len(700_000).unwrap();

    let error = get(&store, "missing").await.unwrap_err();
    assert_eq!(error.code().as_str(), "InternalError");
    let body = start_get(&store, "short").await.unwrap();
    assert!(read_on(body).await.is_err(), "a body must not end early in silence");
    assert!(get(&store, "whole").await.unwrap() == content(3, 1000));
    // The damage does not keep anybody from putting it right.
    put(&store, "missing", content(4, 1000)).await.unwrap();
    delete(&store, "short").await;
    assert!(get(&store, "missing").await.unwrap() == content(4, 1000));
}

#[tokio::test]
async fn overwritten_deleted_and_aborted_bytes_leave_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    for n in 0..5 {
        put(&store, "k", content(n, 1000)).await.unwrap();
    }
    let id = start_upload(&store, "k").await;
    upload_part(&store, "k", &id, 1, content(9, 10)).await.unwrap();
    upload_part(&store, "k", &id, 1, content(9, 20)).await.unwrap();
    let abort = AbortMultipartUploadInput {
        bucket: "bucket".to_owned(),
        key: "k".to_owned(),
        upload_id: id,
        ..Default::default()
    };
    store.abort_multipart_upload(req(abort)).await.unwrap();
    until("removal of all but the last version", || blobs(folder.path()).len() == 1).await;
    assert!(get(&store, "k").await.unwrap() == content(4, 1000));
    delete(&store, "k").await;
    until("removal of the last version", || blobs(folder.path()).is_empty()).await;
}

#[tokio::test]
async fn more_garbage_than_one_page_leaves_without_another_commit() {
    let folder = tempfile::tempdir().unwrap();
    drop(open_with_bucket(folder.path()).await);
    // Blobs of the second generation, so that their ids are above the phantoms'.
    let store = open(folder.path());
    put(&store, "k", content(1, 10)).await.unwrap();
    let extents = move |tx: &mut crate::index::IndexTransaction<'_>| {
        // Blobs whose files are gone already, in front of the one whose file is there.
        let phantom = (0..5_000).map(|n| BlobExtent { blob: BlobId(n), offset: 0, len: 1 });
        let bucket = tx.bucket_record("bucket")?.unwrap();
        let record = tx.object_record(bucket.id, "k")?.unwrap();
        let ObjectLayout::One(real) = record.layout else {
            panic!("one blob, not {:?}", record.layout)
        };
        let extents: Vec<_> = phantom.filter(|e| e.blob < real.blob).chain([real]).collect();
        assert_eq!(extents.len(), 5_001);
        tx.add_references(&extents)?;
        tx.put_object(bucket.id, "k", record, &LayoutRecord { extents, parts: Vec::new() })
    };
    store.commit_change(extents).await.unwrap();
    delete(&store, "k").await;
    until("removal of the last of many", || blobs(folder.path()).is_empty()).await;
}

#[tokio::test]
async fn a_refused_or_abandoned_put_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    let input = |body, md5: Option<&str>| PutObjectInput {
        bucket: "bucket".to_owned(),
        key: "k".to_owned(),
        content_md5: md5.map(str::to_owned),
        body,
        ..Default::default()
    };
    let wrong = input(body(content(1, 500_000)), Some("AAAAAAAAAAAAAAAAAAAAAA=="));
    assert_eq!(store.put_object(req(wrong)).await.unwrap_err().code().as_str(), "BadDigest");
    until("removal after a refusal", || blobs(folder.path()).is_empty()).await;

    // A client that stops in the middle: its request is dropped.
    let first = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(content(1, 500_000)))]);
    let stalled = StreamingBlob::wrap(first.chain(futures::stream::pending()));
    let (abandoned, root) = (store.clone(), folder.path().to_owned());
    let task = tokio::spawn(async move {
        abandoned.put_object(req(input(Some(stalled), None))).await.map(drop)
    });
    until("the first bytes", || !blobs(&root).is_empty()).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    until("removal after the client went", || blobs(&root).is_empty()).await;
    assert_eq!(get(&store, "k").await.unwrap_err().code().as_str(), "NoSuchKey");
}

#[tokio::test]
async fn only_one_may_open_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    assert!(matches!(
        LocalStore::open_store(options(folder.path())),
        Err(LocalError::Locked { .. })
    ));
    drop(store);
    open(folder.path());
}

#[test]
fn a_folder_of_another_format_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("FORMAT"), "verbs3-local 999\n").unwrap();
    let error = LocalStore::open_store(options(folder.path())).unwrap_err();
    assert!(
        matches!(&error, LocalError::Format { found, .. } if found == "verbs3-local 999\n"),
        "{error}"
    );
    assert!(!folder.path().join("index.redb").exists());
}

#[test]
fn options_out_of_range_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let bad = LocalOptions { list_page_max: 0, ..options(folder.path()) };
    let error = LocalStore::open_store(bad).unwrap_err().to_string();
    assert_eq!(error, "local store option list_page_max is 0; it must be 1 to 1000");
}

#[tokio::test]
async fn uploads_past_their_time_are_aborted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    let id = start_upload(&store, "old").await;
    let part = upload_part(&store, "old", &id, 1, content(1, 10)).await.unwrap();
    drop(store);
    let past = LocalOptions { multipart_ttl: Some(Duration::ZERO), ..options(folder.path()) };
    let store = open_with(past);
    let fresh = start_upload(&store, "new").await;
    let gone = complete(&store, "old", &id, vec![part]).await.unwrap_err();
    assert_eq!(gone.code().as_str(), "NoSuchUpload");
    upload_part(&store, "new", &fresh, 1, content(2, 10)).await.unwrap();
    until("removal of the old part", || blobs(folder.path()).len() == 1).await;
}
