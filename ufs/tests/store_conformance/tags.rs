//! Cases about tags and access control lists.

use s3s::S3;
use s3s::dto::*;

use super::vocabulary::*;

fn set(pairs: &[(&str, &str)]) -> Tagging {
    let tag =
        |(k, v): &(&str, &str)| Tag { key: Some((*k).to_owned()), value: Some((*v).to_owned()) };
    Tagging { tag_set: pairs.iter().map(tag).collect() }
}

fn put_tags(bucket: &str, key: &str, tagging: Tagging) -> PutObjectTaggingInput {
    PutObjectTaggingInput {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        tagging,
        checksum_algorithm: None,
        content_md5: None,
        expected_bucket_owner: None,
        request_payer: None,
        version_id: None,
    }
}

async fn tags(s3: &dyn S3, bucket: &str, key: &str) -> Tagging {
    let input = GetObjectTaggingInput {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        ..Default::default()
    };
    Tagging { tag_set: s3.get_object_tagging(req(input)).await.unwrap().output.tag_set }
}

pub async fn object_tags_are_put_read_and_deleted(s3: &dyn S3, bucket: &str) {
    let etag = put(s3, bucket, "k", b"1").await;
    assert_eq!(tags(s3, bucket, "k").await, set(&[]));
    let wanted = set(&[("a", "1"), ("b", "")]);
    s3.put_object_tagging(req(put_tags(bucket, "k", wanted.clone()))).await.unwrap();
    assert_eq!(tags(s3, bucket, "k").await, wanted);
    let got = s3.get_object(req(get_input(bucket, "k"))).await.unwrap().output;
    assert_eq!((got.tag_count, got.e_tag.unwrap().value()), (Some(2), etag.as_str()));
    let delete = DeleteObjectTaggingInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        ..Default::default()
    };
    s3.delete_object_tagging(req(delete)).await.unwrap();
    assert_eq!(tags(s3, bucket, "k").await, set(&[]));
    let absent = s3.put_object_tagging(req(put_tags(bucket, "absent", set(&[])))).await;
    assert_eq!(refusal(absent), ("NoSuchKey".to_owned(), 404));
}

pub async fn tags_come_with_a_put(s3: &dyn S3, bucket: &str) {
    let input = PutObjectInput {
        tagging: Some("a=1+2&b%20c=%C3%A9&d".to_owned()),
        ..put_input(bucket, "k", b"1")
    };
    s3.put_object(req(input)).await.unwrap();
    assert_eq!(tags(s3, bucket, "k").await, set(&[("a", "1 2"), ("b c", "é"), ("d", "")]));
    put(s3, bucket, "k", b"2").await;
    assert_eq!(tags(s3, bucket, "k").await, set(&[]), "a new object has its own tags");
}

pub async fn tags_beyond_the_rules_are_invalid(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"1").await;
    let eleven: Vec<_> = (0..11).map(|n| (n.to_string(), String::new())).collect();
    let eleven: Vec<_> = eleven.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let (long_key, long_value) = ("k".repeat(129), "v".repeat(257));
    let bad = [
        set(&eleven),
        set(&[("a", "1"), ("a", "2")]),
        set(&[("", "1")]),
        set(&[(&long_key, "1")]),
        set(&[("a", &long_value)]),
    ];
    for tagging in bad {
        let refused = s3.put_object_tagging(req(put_tags(bucket, "k", tagging))).await;
        assert_eq!(refusal(refused), ("InvalidTag".to_owned(), 400));
    }
    s3.put_object_tagging(req(put_tags(bucket, "k", set(&eleven[..10])))).await.unwrap();
}

pub async fn bucket_tags_are_put_read_and_deleted(s3: &dyn S3, bucket: &str) {
    let get = || GetBucketTaggingInput { bucket: bucket.to_owned(), ..Default::default() };
    let put = PutBucketTaggingInput {
        bucket: bucket.to_owned(),
        tagging: set(&[("team", "a")]),
        checksum_algorithm: None,
        content_md5: None,
        expected_bucket_owner: None,
    };
    s3.put_bucket_tagging(req(put)).await.unwrap();
    let got = s3.get_bucket_tagging(req(get())).await.unwrap().output;
    assert_eq!(got.tag_set, set(&[("team", "a")]).tag_set);
    let delete = DeleteBucketTaggingInput { bucket: bucket.to_owned(), ..Default::default() };
    s3.delete_bucket_tagging(req(delete)).await.unwrap();
    assert_eq!(refusal(s3.get_bucket_tagging(req(get())).await), ("NoSuchTagSet".to_owned(), 404));
}

pub async fn only_private_acls_are_accepted(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"1").await;
    let input = |acl: &'static str| PutObjectAclInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        acl: Some(ObjectCannedACL::from_static(acl)),
        ..Default::default()
    };
    s3.put_object_acl(req(input("private"))).await.unwrap();
    assert_eq!(
        refusal(s3.put_object_acl(req(input("public-read"))).await),
        ("NotImplemented".to_owned(), 501)
    );
    let get =
        GetObjectAclInput { bucket: bucket.to_owned(), key: "k".to_owned(), ..Default::default() };
    let acl = s3.get_object_acl(req(get)).await.unwrap().output;
    assert_eq!(
        acl.grants.unwrap()[0].permission.as_ref().map(Permission::as_str),
        Some("FULL_CONTROL")
    );
    let public = PutObjectInput {
        acl: Some(ObjectCannedACL::from_static("public-read")),
        ..put_input(bucket, "p", b"")
    };
    assert_eq!(refusal(s3.put_object(req(public)).await), ("NotImplemented".to_owned(), 501));
}
