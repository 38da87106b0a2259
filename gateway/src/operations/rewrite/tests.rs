//! Names survive the way there and back, and nothing outside a mount is shown.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use s3s::dto::{ListObjectsV2Input, ListObjectsV2Output, Object};

use percent_encoding::percent_decode_str;

use super::*;

const MOUNT: MountNamePair<'_> =
    MountNamePair { outside: "sets", inside: "store", prefix: "a b/ü+/" };
const WHOLE: MountNamePair<'_> = MountNamePair { outside: "store", inside: "store", prefix: "" };

fn listing(keys: &[&str], encoding: Option<&str>) -> ListObjectsV2Output {
    ListObjectsV2Output {
        name: Some("store".into()),
        encoding_type: encoding.map(|encoding| EncodingType::from(encoding.to_owned())),
        key_count: Some(keys.len() as i32),
        contents: Some(
            keys.iter()
                .map(|key| Object { key: Some((*key).into()), ..Object::default() })
                .collect(),
        ),
        ..ListObjectsV2Output::default()
    }
}

fn keys(output: &ListObjectsV2Output) -> Vec<&str> {
    output.contents.iter().flatten().map(|object| object.key.as_deref().unwrap()).collect()
}

#[test]
fn a_listing_shows_the_mounts_names() {
    let mut output = listing(&["a b/ü+/x", "a b/ü+/d/y"], None);
    output.prefix = Some("a b/ü+/".into());
    list_objects_v2::rewrite_outward(&mut output, &MOUNT);
    assert_eq!(keys(&output), ["x", "d/y"]);
    assert_eq!((output.name.as_deref(), output.prefix.as_deref()), (Some("sets"), Some("")));
}

#[test]
fn an_encoded_listing_is_cut_whatever_the_stores_spelling() {
    for spelling in ["a%20b/%C3%BC%2B/", "a+b/%c3%bc%2b/", "a+b%2F%C3%BC%2B%2F"] {
        let mut output = listing(&[&format!("{spelling}x%20y")], Some("url"));
        list_objects_v2::rewrite_outward(&mut output, &MOUNT);
        assert_eq!(keys(&output), ["x%20y"], "{spelling}");
    }
}

#[test]
fn what_lies_outside_the_mount_is_dropped_and_not_counted() {
    let mut output = listing(&["a b/ü+/", "other/x", "a b/ü+/x"], None);
    list_objects_v2::rewrite_outward(&mut output, &MOUNT);
    assert_eq!(keys(&output), ["x"]);
    assert_eq!(output.key_count, Some(1));
}

#[test]
fn the_mounts_prefix_is_always_listed_under() {
    let mut input =
        ListObjectsV2Input { start_after: Some(String::new()), ..ListObjectsV2Input::default() };
    list_objects_v2::rewrite_inward(&mut input, &MOUNT);
    assert_eq!(
        (input.prefix.as_deref(), input.start_after.as_deref()),
        (Some("a b/ü+/"), Some(""))
    );
    let mut input = ListObjectsV2Input {
        prefix: Some("d".into()),
        start_after: Some("d/1".into()),
        ..Default::default()
    };
    list_objects_v2::rewrite_inward(&mut input, &MOUNT);
    assert_eq!(
        (input.prefix.as_deref(), input.start_after.as_deref()),
        (Some("a b/ü+/d"), Some("a b/ü+/d/1"))
    );
}

#[test]
fn a_whole_bucket_under_its_own_name_is_left_alone() {
    let mut input = ListObjectsV2Input::default();
    list_objects_v2::rewrite_inward(&mut input, &WHOLE);
    assert_eq!(input.prefix, None);
    let mut output = listing(&["x", "y/"], None);
    list_objects_v2::rewrite_outward(&mut output, &WHOLE);
    assert_eq!(keys(&output), ["x", "y/"]);
    assert!(!WHOLE.names_differ());
}

#[test]
fn a_completed_upload_tells_no_name_behind_the_mount() {
    let mut output = s3s::dto::CompleteMultipartUploadOutput {
        bucket: Some("store".into()),
        key: Some("a b/ü+/k 1".into()),
        location: Some("http://ufs.internal/store/a%20b/%C3%BC%2B/k%201".into()),
        ..Default::default()
    };
    complete_multipart_upload::rewrite_outward(&mut output, &MOUNT);
    assert_eq!(output.location.as_deref(), Some("/sets/k%201"));
    assert_eq!((output.bucket.as_deref(), output.key.as_deref()), (Some("sets"), Some("k 1")));
}

proptest! {
    #[test]
    fn keys_survive_the_way_there_and_back(key in ".{1,40}") {
        let mut inward = key.clone();
        MOUNT.key_inward(&mut inward);
        prop_assert_eq!(MOUNT.client_name(&inward, false), Some(key.as_str()));
        let encoded: String = percent_encoding::utf8_percent_encode(&inward, percent_encoding::NON_ALPHANUMERIC).to_string();
        let seen = MOUNT.client_name(&encoded, true).unwrap();
        prop_assert_eq!(percent_decode_str(seen).decode_utf8().unwrap(), key.as_str());
    }

    #[test]
    fn no_encoded_name_makes_it_panic(name in ".{0,20}|(%[0-9a-f]{0,2}){0,8}") {
        let _ = MOUNT.client_name(&name, true);
    }
}
