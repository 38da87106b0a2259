//! What a page costs.

use super::*;
use crate::local::blob::{BlobId, Extent};
use crate::local::checksum::Checksums;
use crate::local::index::{Attributes, Layout, LayoutRecord, ObjectRecord, ObjectSeq};
use crate::local::listing::{Item, Page, Query, Space, Start, list};
use crate::local::store::find_bucket;

fn record() -> ObjectRecord {
    ObjectRecord {
        seq: ObjectSeq(0),
        size: 0,
        etag: "d41d8cd98f00b204e9800998ecf8427e".to_owned(),
        modified_ms: 0,
        storage_class: None,
        layout: Layout::Empty,
        parts_count: 0,
        checksums: Checksums::default(),
        attributes: Attributes::default(),
        tags: Vec::new(),
    }
}

#[tokio::test]
async fn a_page_reads_as_many_rows_as_it_returns_and_one_more() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    let filled = store.commit(|tx| {
        let bucket = tx.bucket("bucket")?.unwrap();
        for folder in 0..10 {
            for n in 0..500 {
                let key = format!("f{folder}/{n:04}");
                tx.put_object(bucket.id, &key, record(), &LayoutRecord::default())?;
            }
        }
        Ok(bucket.id)
    });
    let bucket = filled.await.unwrap();
    let view = store.inner.view().unwrap();
    assert_eq!(find_bucket(&view, "bucket").unwrap().id, bucket);
    let page = |prefix, delimiter, start, max| -> Page<ObjectRecord> {
        list(&view, Space::Objects, bucket, &Query { prefix, delimiter, start, max }).unwrap()
    };

    let all = page("", "/", Start::First, 1000);
    assert_eq!((all.items.len(), all.rows, all.next), (10, 10, None));
    let three = page("", "/", Start::AfterPrefix("f3/".to_owned()), 3);
    assert_eq!((three.items.len(), three.rows), (3, 4));
    assert!(matches!(&three.items[0], Item::Prefix(p) if p == "f4/"));
    let plain = page("f5/", "", Start::AfterKey("f5/0123".to_owned()), 100);
    assert_eq!((plain.items.len(), plain.rows), (100, 101));
    let none = page("f55", "/", Start::First, 100);
    assert_eq!((none.items.len(), none.rows), (0, 1));
}

#[tokio::test]
async fn an_object_of_many_parts_is_small_in_a_listing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    let stored = store.commit(|tx| {
        let bucket = tx.bucket("bucket")?.unwrap();
        let extents: Vec<_> =
            (0..10_000).map(|n| Extent { blob: BlobId(n), offset: 0, len: 1 }).collect();
        tx.hold(&extents)?;
        tx.put_object(bucket.id, "k", record(), &LayoutRecord { extents, parts: Vec::new() })
    });
    let stored = stored.await.unwrap();
    assert_eq!(stored.layout, Layout::Many);
    assert_eq!(store.inner.view().unwrap().layout(&stored).unwrap().extents.len(), 10_000);
}
