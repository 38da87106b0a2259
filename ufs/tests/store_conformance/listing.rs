//! Cases about listings of objects.

use s3s::S3;
use s3s::dto::*;

use super::vocabulary::*;

fn v2(bucket: &str) -> ListObjectsV2Input {
    ListObjectsV2Input { bucket: bucket.to_owned(), ..Default::default() }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

async fn fill(s3: &dyn S3, bucket: &str, keys: &[&str]) {
    for key in keys {
        put(s3, bucket, key, b"1").await;
    }
}

pub async fn keys_are_in_utf8_byte_order(s3: &dyn S3, bucket: &str) {
    // In UTF-16 the third would come before the second.
    fill(s3, bucket, &["\u{1f600}", "\u{ff5e}", "z", "a", "Z", "ä", "a/b", "a-b", "a0"]).await;
    let want = ["Z", "a", "a-b", "a/b", "a0", "z", "ä", "\u{ff5e}", "\u{1f600}"];
    assert_eq!(keys(s3, bucket).await, want);
    let v1 = ListObjectsInput { bucket: bucket.to_owned(), ..Default::default() };
    let v1 = s3.list_objects(req(v1)).await.unwrap().output;
    assert_eq!(names(&v1.contents.unwrap()), want);
}

pub async fn a_delimiter_rolls_keys_up_and_counts_prefixes(s3: &dyn S3, bucket: &str) {
    fill(s3, bucket, &["a", "b/1", "b/2", "b/c/3", "b//4", "c", "d/", "d/5"]).await;
    let input = ListObjectsV2Input { delimiter: some("/"), ..v2(bucket) };
    let page = list(s3, input.clone()).await;
    assert_eq!(names(&page.contents.unwrap()), ["a", "c"]);
    assert_eq!(prefixes(page.common_prefixes), ["b/", "d/"]);
    assert_eq!((page.key_count, page.is_truncated), (Some(4), Some(false)));

    let under = list(s3, ListObjectsV2Input { prefix: some("b/"), ..input.clone() }).await;
    assert_eq!(names(&under.contents.unwrap()), ["b/1", "b/2"]);
    assert_eq!(prefixes(under.common_prefixes), ["b//", "b/c/"]);

    let two = list(s3, ListObjectsV2Input { max_keys: Some(2), ..input.clone() }).await;
    assert_eq!(names(&two.contents.unwrap()), ["a"]);
    assert_eq!(prefixes(two.common_prefixes), ["b/"]);
    assert_eq!(two.is_truncated, Some(true));
    let rest = list(
        s3,
        ListObjectsV2Input { continuation_token: two.next_continuation_token, ..input.clone() },
    )
    .await;
    assert_eq!(names(&rest.contents.unwrap()), ["c"]);
    assert_eq!(prefixes(rest.common_prefixes), ["d/"]);

    let long = list(s3, ListObjectsV2Input { delimiter: some("/c"), ..v2(bucket) }).await;
    assert_eq!(prefixes(long.common_prefixes), ["b/c"]);
}

pub async fn pages_join_to_the_whole_listing(s3: &dyn S3, bucket: &str) {
    let all: Vec<_> = (0..23).map(|n| format!("k{n:02}")).collect();
    fill(s3, bucket, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for max in [1, 7, 22, 23, 24] {
        let (mut token, mut seen) = (None, Vec::new());
        loop {
            let input =
                ListObjectsV2Input { max_keys: Some(max), continuation_token: token, ..v2(bucket) };
            let page = list(s3, input).await;
            let names = names(&page.contents.unwrap());
            assert!(!names.is_empty() && names.len() <= max as usize);
            seen.extend(names);
            token = page.next_continuation_token;
            assert_eq!(page.is_truncated, Some(token.is_some()));
            if token.is_none() {
                break;
            }
        }
        assert_eq!(seen, all, "pages of {max}");
    }
}

pub async fn version_one_pages_by_next_marker(s3: &dyn S3, bucket: &str) {
    fill(s3, bucket, &["a", "b/1", "b/2", "c/1", "d"]).await;
    let (mut marker, mut seen) = (None, Vec::new());
    for _ in 0..10 {
        let input = ListObjectsInput {
            bucket: bucket.to_owned(),
            delimiter: some("/"),
            max_keys: Some(1),
            marker: marker.clone(),
            ..Default::default()
        };
        let page = s3.list_objects(req(input)).await.unwrap().output;
        seen.extend(names(&page.contents.unwrap_or_default()));
        seen.extend(prefixes(page.common_prefixes));
        marker = page.next_marker;
        assert_eq!(page.is_truncated, Some(marker.is_some()));
        if marker.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["a", "b/", "c/", "d"]);
    let plain =
        ListObjectsInput { bucket: bucket.to_owned(), max_keys: Some(2), ..Default::default() };
    let plain = s3.list_objects(req(plain)).await.unwrap().output;
    let owner = plain.contents.as_ref().unwrap()[0].owner.clone();
    assert!(owner.is_some(), "version one always tells the owner");
    let next =
        ListObjectsInput { bucket: bucket.to_owned(), marker: some("b/1"), ..Default::default() };
    let next = s3.list_objects(req(next)).await.unwrap().output;
    assert_eq!(names(&next.contents.unwrap()), ["b/2", "c/1", "d"]);
}

pub async fn start_after_is_exclusive(s3: &dyn S3, bucket: &str) {
    fill(s3, bucket, &["a", "b", "b/x", "c"]).await;
    let after = |key: &str| ListObjectsV2Input { start_after: some(key), ..v2(bucket) };
    assert_eq!(names(&list(s3, after("b")).await.contents.unwrap()), ["b/x", "c"]);
    assert_eq!(names(&list(s3, after("b-")).await.contents.unwrap()), ["b/x", "c"]);
    assert_eq!(list(s3, after("c")).await.contents.unwrap_or_default(), []);
    let under = list(s3, ListObjectsV2Input { prefix: some("b"), ..after("a") }).await;
    assert_eq!(names(&under.contents.unwrap()), ["b", "b/x"]);
    let past = list(s3, ListObjectsV2Input { prefix: some("a"), ..after("b") }).await;
    assert_eq!(past.contents.unwrap_or_default(), []);
}

pub async fn zero_keys_are_never_truncated(s3: &dyn S3, bucket: &str) {
    fill(s3, bucket, &["a"]).await;
    let page = list(s3, ListObjectsV2Input { max_keys: Some(0), ..v2(bucket) }).await;
    assert_eq!(
        (page.key_count, page.is_truncated, page.next_continuation_token),
        (Some(0), Some(false), None)
    );
    let negative = ListObjectsV2Input { max_keys: Some(-1), ..v2(bucket) };
    assert_eq!(
        refusal(s3.list_objects_v2(req(negative)).await),
        ("InvalidArgument".to_owned(), 400)
    );
    let many = list(s3, ListObjectsV2Input { max_keys: Some(100_000), ..v2(bucket) }).await;
    assert_eq!(many.max_keys, Some(1000));
}

pub async fn url_encoding_round_trips(s3: &dyn S3, bucket: &str) {
    let awkward = ["a b+c%d/é", "p q/1"];
    fill(s3, bucket, &awkward).await;
    let url = Some(EncodingType::from_static(EncodingType::URL));
    let page = list(s3, ListObjectsV2Input { encoding_type: url.clone(), ..v2(bucket) }).await;
    assert_eq!(names(&page.contents.unwrap()), ["a%20b%2Bc%25d/%C3%A9", "p%20q/1"]);
    assert_eq!(page.encoding_type, url);
    let rolled = ListObjectsV2Input {
        encoding_type: url,
        delimiter: some("/"),
        prefix: some("p "),
        ..v2(bucket)
    };
    let rolled = list(s3, rolled).await;
    assert_eq!(prefixes(rolled.common_prefixes), ["p%20q/"]);
    assert_eq!(rolled.prefix.as_deref(), Some("p%20"));
    let other =
        ListObjectsV2Input { encoding_type: Some("base64".to_owned().into()), ..v2(bucket) };
    assert_eq!(refusal(s3.list_objects_v2(req(other)).await), ("InvalidArgument".to_owned(), 400));
}

pub async fn a_bad_token_is_an_invalid_argument(s3: &dyn S3, bucket: &str) {
    for token in ["!", "", "eg"] {
        let input = ListObjectsV2Input { continuation_token: some(token), ..v2(bucket) };
        assert_eq!(
            refusal(s3.list_objects_v2(req(input)).await),
            ("InvalidArgument".to_owned(), 400),
            "{token}"
        );
    }
}

pub async fn every_object_is_a_null_version(s3: &dyn S3, bucket: &str) {
    fill(s3, bucket, &["a", "b/1", "c"]).await;
    let input = ListObjectVersionsInput {
        bucket: bucket.to_owned(),
        max_keys: Some(2),
        ..Default::default()
    };
    let page = s3.list_object_versions(req(input.clone())).await.unwrap().output;
    let first: Vec<_> =
        page.versions.unwrap().into_iter().map(|v| (v.key, v.version_id, v.is_latest)).collect();
    assert_eq!(
        first,
        [(some("a"), some("null"), Some(true)), (some("b/1"), some("null"), Some(true))]
    );
    assert_eq!(page.is_truncated, Some(true));
    let next = ListObjectVersionsInput {
        key_marker: page.next_key_marker,
        version_id_marker: page.next_version_id_marker,
        ..input
    };
    let next = s3.list_object_versions(req(next)).await.unwrap().output;
    assert_eq!(next.versions.unwrap()[0].key, some("c"));
    assert_eq!(next.is_truncated, Some(false));
}

pub async fn owners_are_fetched_on_request(s3: &dyn S3, bucket: &str) {
    fill(s3, bucket, &["a"]).await;
    let without = list(s3, v2(bucket)).await.contents.unwrap();
    assert_eq!(without[0].owner, None);
    let with = list(s3, ListObjectsV2Input { fetch_owner: Some(true), ..v2(bucket) })
        .await
        .contents
        .unwrap();
    assert!(with[0].owner.as_ref().is_some_and(|o| o.id.is_some()));
}
