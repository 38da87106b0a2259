//! Readers beside writers: every body is one whole version.

use super::*;

#[tokio::test]
async fn a_body_under_way_outlives_its_object() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    let id = start_upload(&store, "k").await;
    let mut parts = Vec::new();
    for number in 1..=4 {
        parts.push(
            upload_part(&store, "k", &id, number, content(number as u64, 400_000)).await.unwrap(),
        );
    }
    complete(&store, "k", &id, parts).await.unwrap();
    let begun = start_get(&store, "k").await.unwrap();
    let never_read = start_get(&store, "k").await.unwrap();
    assert_eq!(store.store_stats().readers, 2);

    put(&store, "k", content(9, 10)).await.unwrap();
    delete(&store, "k").await;

    let want: Vec<_> = (1..=4).flat_map(|n| content(n, 400_000)).collect();
    assert!(read_on(begun).await.unwrap() == want, "the later parts must still be there");
    assert_eq!(blobs(folder.path()).len(), 4, "somebody may still read these");
    drop(never_read);
    until("removal once nobody reads", || blobs(folder.path()).is_empty()).await;
    assert_eq!(store.store_stats().readers, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_beside_writers_see_whole_versions() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    put(&store, "k", content(0, 300_000)).await.unwrap();
    let writers = (0..3u64).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0..25u64 {
                let seed = writer * 1000 + n + 1;
                let len = 200_000 + (seed as usize * 997) % 300_000;
                if n % 3 == 0 {
                    let id = start_upload(&store, "k").await;
                    let one =
                        upload_part(&store, "k", &id, 1, content(seed, 80_000)).await.unwrap();
                    let two = upload_part(&store, "k", &id, 2, content(seed, len - 80_000))
                        .await
                        .unwrap();
                    complete(&store, "k", &id, vec![one, two]).await.unwrap();
                } else {
                    put(&store, "k", content(seed, len)).await.unwrap();
                }
            }
        })
    });
    let readers = (0..4).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..60 {
                let bytes = get(&store, "k").await.unwrap();
                let seed = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(
                    bytes == content(seed, bytes.len()),
                    "mixed versions, beginning with {seed}"
                );
                let want =
                    if seed == 0 { 300_000 } else { 200_000 + (seed as usize * 997) % 300_000 };
                assert_eq!(bytes.len(), want, "half of version {seed}");
            }
        })
    });
    let all: Vec<_> = writers.chain(readers).collect();
    for task in all {
        task.await.unwrap();
    }
    until("removal of every older version", || blobs(folder.path()).len() <= 2).await;
    delete(&store, "k").await;
    until("removal of the last", || blobs(folder.path()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_beside_writers_takes_a_whole_version_or_says_it_lost() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    put(&store, "from", content(1, 100_000)).await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for seed in 2..60 {
                put(&store, "from", content(seed, 100_000)).await.unwrap();
            }
        })
    };
    let mut copied = 0;
    while !writer.is_finished() || copied == 0 {
        let mut input = CopyObjectInput::builder();
        input.set_bucket("bucket".to_owned());
        input.set_key("to".to_owned());
        input.set_copy_source(CopySource::Bucket {
            bucket: "bucket".into(),
            key: "from".into(),
            version_id: None,
        });
        match store.copy_object(req(input.build().unwrap())).await {
            Ok(_) => {
                copied += 1;
                let bytes = get(&store, "to").await.unwrap();
                let seed = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes == content(seed, 100_000));
            }
            Err(e) => assert_eq!(e.code().as_str(), "OperationAborted"),
        }
    }
    writer.await.unwrap();
}
