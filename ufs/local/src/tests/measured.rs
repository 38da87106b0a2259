//! Tests a store's metrics.

use prometheus::Registry;
use verbs3_metrics::MetricsTable;

use super::super::LocalMetrics;
use super::*;

/// The value of a metric, summed over its samples.
fn value(registry: &Registry, name: &str) -> i64 {
    let name = format!("verbs3_ufs_local_{name}");
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    let sample = |metric: &prometheus::proto::Metric| match metric.get_gauge().get_value() {
        0.0 => metric.get_counter().get_value(),
        value => value,
    };
    family.get_metric().iter().map(sample).sum::<f64>() as i64
}

#[tokio::test]
async fn every_row_of_the_table_shows_under_an_open_stores_name() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let registry = Registry::new();
    let named = |name: &str, root: &Path| LocalOptions { name: name.to_owned(), ..options(root) };
    let store = LocalStore::open_store(named("one", folder.path())).unwrap();
    let second = LocalStore::open_store(named("two", other.path())).unwrap();
    store.register_metrics(&registry).unwrap();
    second.register_metrics(&registry).unwrap();
    assert!(store.register_metrics(&registry).is_err(), "two stores under one name");

    let families = registry.gather();
    let names: Vec<&str> = families.iter().map(prometheus::proto::MetricFamily::name).collect();
    let described = LocalMetrics::describe_table().metrics;
    let mut table: Vec<&str> = described.iter().map(|metric| metric.name).collect();
    table.sort_unstable();
    assert_eq!(names, table);
    for family in &families {
        let labels: Vec<&str> =
            family.get_metric().iter().map(|metric| metric.get_label()[0].value()).collect();
        assert_eq!(labels, ["one", "two"], "{}", family.name());
    }
    drop(store);
    drop(second);
    assert!(registry.gather().is_empty(), "a registry keeps no store open");
    open(folder.path());
}

#[tokio::test]
async fn what_is_stored_read_and_being_written_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    let registry = Registry::new();
    store.register_metrics(&registry).unwrap();
    put(&store, "a", content(1, 1_000_000)).await.unwrap();
    put(&store, "b", Vec::new()).await.unwrap();
    let input = CreateMultipartUploadInput {
        bucket: "bucket".to_owned(),
        key: "m".to_owned(),
        ..Default::default()
    };
    let upload_id =
        store.create_multipart_upload(req(input)).await.unwrap().output.upload_id.unwrap();
    let part = UploadPartInput {
        bucket: "bucket".to_owned(),
        key: "m".to_owned(),
        upload_id,
        part_number: 1,
        body: body(content(2, 10)),
        ..Default::default()
    };
    store.upload_part(req(part)).await.unwrap();
    for (name, expected) in
        [("objects", 2), ("uploads", 1), ("parts", 1), ("blobs", 2), ("writers", 0)]
    {
        assert_eq!(value(&registry, name), expected, "{name}");
    }
    assert_eq!(value(&registry, "changes_total"), 5);
    assert!(value(&registry, "index_bytes") > 0);
    assert_eq!(
        value(&registry, "changes_queued_max"),
        options(folder.path()).commit_queue_max as i64
    );

    // An upload that has sent one piece and waits, and a reader that has not begun.
    let (pieces, source) = futures::channel::mpsc::unbounded::<Result<Bytes, std::io::Error>>();
    pieces.unbounded_send(Ok(Bytes::from_static(b"begun"))).unwrap();
    let input = PutObjectInput {
        bucket: "bucket".to_owned(),
        key: "slow".to_owned(),
        body: Some(StreamingBlob::wrap(source)),
        ..Default::default()
    };
    let upload = tokio::spawn({
        let store = store.clone();
        async move { store.put_object(req(input)).await.map(drop) }
    });
    let reader = start_get(&store, "a").await.unwrap();
    assert_eq!(value(&registry, "readers"), 1);
    let began = Instant::now();
    while value(&registry, "writers") != 1 {
        assert!(began.elapsed() < Duration::from_secs(20), "the blob being written is not counted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(pieces);
    upload.await.unwrap().unwrap();
    drop(reader);
    assert_eq!((value(&registry, "writers"), value(&registry, "readers")), (0, 0));
    assert_eq!(value(&registry, "objects"), 3);
}
