//! Tests the cost of a page.

use super::*;
use crate::blob::{BlobExtent, BlobId};
use crate::checksum::ChecksumSet;
use crate::index::{LayoutRecord, ObjectLayout, ObjectRecord, ObjectSeq, StoredAttributes};
use crate::listing::{
    ListingItem, ListingPage, ListingQuery, ListingSpace, ListingStart, read_page,
};
use crate::store::find_bucket;

fn record() -> ObjectRecord {
    ObjectRecord {
        seq: ObjectSeq(0),
        size: 0,
        etag: "d41d8cd98f00b204e9800998ecf8427e".to_owned(),
        modified_ms: 0,
        storage_class: None,
        layout: ObjectLayout::Empty,
        parts_count: 0,
        checksums: ChecksumSet::default(),
        attributes: StoredAttributes::default(),
        tags: Vec::new(),
    }
}

#[tokio::test]
async fn a_page_reads_as_many_rows_as_it_returns_and_one_more() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    let filled = store.commit_change(|tx| {
        let bucket = tx.bucket_record("bucket")?.unwrap();
        for folder in 0..10 {
            for n in 0..500 {
                let key = format!("f{folder}/{n:04}");
                tx.put_object(bucket.id, &key, record(), &LayoutRecord::default())?;
            }
        }
        Ok(bucket.id)
    });
    let bucket = filled.await.unwrap();
    let view = store.inner.open_view().unwrap();
    assert_eq!(find_bucket(&view, "bucket").unwrap().id, bucket);
    let page = |prefix, delimiter, start, max| -> ListingPage<ObjectRecord> {
        read_page(
            &view,
            ListingSpace::Objects,
            bucket,
            &ListingQuery { prefix, delimiter, start, max },
        )
        .unwrap()
    };

    let all = page("", "/", ListingStart::First, 1000);
    assert_eq!((all.items.len(), all.rows, all.next), (10, 10, None));
    let three = page("", "/", ListingStart::AfterPrefix("f3/".to_owned()), 3);
    assert_eq!((three.items.len(), three.rows), (3, 4));
    assert!(matches!(&three.items[0], ListingItem::Prefix(p) if p == "f4/"));
    let plain = page("f5/", "", ListingStart::AfterKey("f5/0123".to_owned()), 100);
    assert_eq!((plain.items.len(), plain.rows), (100, 101));
    let none = page("f55", "/", ListingStart::First, 100);
    assert_eq!((none.items.len(), none.rows), (0, 1));
}

#[tokio::test]
async fn an_object_of_many_parts_is_small_in_a_listing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    let stored = store.commit_change(|tx| {
        let bucket = tx.bucket_record("bucket")?.unwrap();
        let extents: Vec<_> =
            (0..10_000).map(|n| BlobExtent { blob: BlobId(n), offset: 0, len: 1 }).collect();
        tx.add_references(&extents)?;
        tx.put_object(bucket.id, "k", record(), &LayoutRecord { extents, parts: Vec::new() })
    });
    let stored = stored.await.unwrap();
    assert_eq!(stored.layout, ObjectLayout::Many);
    assert_eq!(
        store.inner.open_view().unwrap().layout_record(&stored).unwrap().extents.len(),
        10_000
    );
}
