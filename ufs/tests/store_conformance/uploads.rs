//! Cases about listings of uploads and parts.

use s3s::S3;
use s3s::dto::*;

use super::vocabulary::*;

pub async fn parts_are_listed_in_pages(s3: &dyn S3, bucket: &str) {
    let id = start_upload(s3, bucket, "k").await;
    for number in [5, 1, 9_999, 2] {
        upload_part(s3, bucket, "k", &id, number, &content(number as u64, number as usize)).await;
    }
    let input = ListPartsInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        upload_id: id.clone(),
        max_parts: Some(2),
        ..Default::default()
    };
    let first = s3.list_parts(req(input.clone())).await.unwrap().output;
    let sizes = |parts: &Option<Parts>| {
        let parts = parts.iter().flatten().map(|p| (p.part_number.unwrap(), p.size.unwrap()));
        parts.collect::<Vec<_>>()
    };
    assert_eq!(sizes(&first.parts), [(1, 1), (2, 2)]);
    assert_eq!((first.is_truncated, first.next_part_number_marker), (Some(true), Some(2)));
    let rest = ListPartsInput { part_number_marker: first.next_part_number_marker, ..input };
    let rest = s3.list_parts(req(rest)).await.unwrap().output;
    assert_eq!(sizes(&rest.parts), [(5, 5), (9_999, 9_999)]);
    assert_eq!((rest.is_truncated, rest.next_part_number_marker), (Some(false), None));
}

pub async fn uploads_are_listed_in_pages(s3: &dyn S3, bucket: &str) {
    let mut want = Vec::new();
    for key in ["a", "a", "a", "a/b", "b"] {
        want.push((key.to_owned(), start_upload(s3, bucket, key).await));
    }
    want.sort();
    for max in 1..=6 {
        let (mut markers, mut seen) = ((None, None), Vec::new());
        loop {
            let input = ListMultipartUploadsInput {
                bucket: bucket.to_owned(),
                key_marker: markers.0,
                upload_id_marker: markers.1,
                max_uploads: Some(max),
                ..Default::default()
            };
            let page = s3.list_multipart_uploads(req(input)).await.unwrap().output;
            seen.extend(
                page.uploads.unwrap().into_iter().map(|u| (u.key.unwrap(), u.upload_id.unwrap())),
            );
            markers = (page.next_key_marker, page.next_upload_id_marker);
            if page.is_truncated != Some(true) {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen, want, "pages of {max}");
    }
    let after = ListMultipartUploadsInput {
        bucket: bucket.to_owned(),
        key_marker: Some("a".to_owned()),
        ..Default::default()
    };
    let after = s3.list_multipart_uploads(req(after)).await.unwrap().output.uploads.unwrap();
    let after: Vec<_> = after.into_iter().map(|u| u.key.unwrap()).collect();
    assert_eq!(after, ["a/b", "b"], "a key marker alone skips all uploads of the key");
}

pub async fn uploads_roll_up_at_a_delimiter(s3: &dyn S3, bucket: &str) {
    for key in ["a/1", "a/2", "b", "c/1"] {
        start_upload(s3, bucket, key).await;
    }
    let input = ListMultipartUploadsInput {
        bucket: bucket.to_owned(),
        delimiter: Some("/".to_owned()),
        max_uploads: Some(2),
        ..Default::default()
    };
    let page = s3.list_multipart_uploads(req(input.clone())).await.unwrap().output;
    assert_eq!(prefixes(page.common_prefixes), ["a/"]);
    assert_eq!(page.uploads.unwrap()[0].key.as_deref(), Some("b"));
    let next = ListMultipartUploadsInput {
        key_marker: page.next_key_marker,
        upload_id_marker: page.next_upload_id_marker,
        ..input
    };
    let next = s3.list_multipart_uploads(req(next)).await.unwrap().output;
    assert_eq!(prefixes(next.common_prefixes), ["c/"]);
    let under = ListMultipartUploadsInput {
        bucket: bucket.to_owned(),
        prefix: Some("a/".to_owned()),
        ..Default::default()
    };
    assert_eq!(
        s3.list_multipart_uploads(req(under)).await.unwrap().output.uploads.unwrap().len(),
        2
    );
}
