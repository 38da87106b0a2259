//! Cases about copies.

use s3s::S3;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::*;

use super::vocabulary::*;

const PART: usize = 5 * 1024 * 1024;

fn source(bucket: &str, key: &str) -> CopySource {
    CopySource::Bucket { bucket: bucket.into(), key: key.into(), version_id: None }
}

fn copy_input(bucket: &str, from: &str, to: &str) -> CopyObjectInput {
    let mut input = CopyObjectInput::builder();
    input.set_bucket(bucket.to_owned());
    input.set_key(to.to_owned());
    input.set_copy_source(source(bucket, from));
    input.build().unwrap()
}

async fn put_rich(s3: &dyn S3, bucket: &str, key: &str, bytes: &[u8]) {
    let input = PutObjectInput {
        content_type: Some("text/plain".to_owned()),
        metadata: Some([("m".to_owned(), "old".to_owned())].into()),
        tagging: Some("t=old".to_owned()),
        ..put_input(bucket, key, bytes)
    };
    s3.put_object(req(input)).await.unwrap();
}

async fn tags(s3: &dyn S3, bucket: &str, key: &str) -> Vec<(String, String)> {
    let input = GetObjectTaggingInput {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        ..Default::default()
    };
    let tags = s3.get_object_tagging(req(input)).await.unwrap().output.tag_set;
    tags.into_iter().map(|t| (t.key.unwrap(), t.value.unwrap())).collect()
}

pub async fn a_copy_has_the_bytes_and_attributes(s3: &dyn S3, bucket: &str) {
    let bytes = content(1, 300_000);
    put_rich(s3, bucket, "a+b %/é", &bytes).await;
    let output = s3.copy_object(req(copy_input(bucket, "a+b %/é", "copy"))).await.unwrap().output;
    let etag = output.copy_object_result.unwrap().e_tag.unwrap();
    assert_eq!(etag.value(), hex::encode(Md5::checksum(&bytes)));
    let head = s3.head_object(req(head_input(bucket, "copy"))).await.unwrap().output;
    assert_eq!(head.content_type.as_deref(), Some("text/plain"));
    assert_eq!(head.metadata.unwrap()["m"], "old");
    assert_eq!(tags(s3, bucket, "copy").await, [("t".to_owned(), "old".to_owned())]);
    assert!(get(s3, bucket, "copy").await.unwrap() == bytes);
    let absent = s3.copy_object(req(copy_input(bucket, "absent", "x"))).await;
    assert_eq!(refusal(absent), ("NoSuchKey".to_owned(), 404));
}

pub async fn a_copy_onto_itself_must_change_something(s3: &dyn S3, bucket: &str) {
    put_rich(s3, bucket, "k", b"same").await;
    let refused = s3.copy_object(req(copy_input(bucket, "k", "k"))).await;
    assert_eq!(refusal(refused), ("InvalidRequest".to_owned(), 400));
    let replace = CopyObjectInput {
        metadata_directive: Some(MetadataDirective::from_static(MetadataDirective::REPLACE)),
        metadata: Some([("m".to_owned(), "new".to_owned())].into()),
        ..copy_input(bucket, "k", "k")
    };
    s3.copy_object(req(replace)).await.unwrap();
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"same");
    let head = s3.head_object(req(head_input(bucket, "k"))).await.unwrap().output;
    assert_eq!(head.metadata.unwrap()["m"], "new");
}

pub async fn directives_replace_metadata_and_tags(s3: &dyn S3, bucket: &str) {
    put_rich(s3, bucket, "k", b"1").await;
    let replace = CopyObjectInput {
        metadata_directive: Some(MetadataDirective::from_static(MetadataDirective::REPLACE)),
        content_type: Some("image/png".to_owned()),
        tagging_directive: Some(TaggingDirective::from_static(TaggingDirective::REPLACE)),
        tagging: Some("a=1&b=2".to_owned()),
        ..copy_input(bucket, "k", "copy")
    };
    s3.copy_object(req(replace)).await.unwrap();
    let head = s3.head_object(req(head_input(bucket, "copy"))).await.unwrap().output;
    assert_eq!(head.content_type.as_deref(), Some("image/png"));
    assert_eq!(head.metadata.unwrap_or_default().len(), 0);
    let want = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())];
    assert_eq!(tags(s3, bucket, "copy").await, want);
    // Without the directive, what the request says of metadata is ignored.
    let ignored =
        CopyObjectInput { content_type: Some("x/y".to_owned()), ..copy_input(bucket, "k", "copy") };
    s3.copy_object(req(ignored)).await.unwrap();
    let head = s3.head_object(req(head_input(bucket, "copy"))).await.unwrap().output;
    assert_eq!(head.content_type.as_deref(), Some("text/plain"));
}

pub async fn conditions_on_the_source_answer_412(s3: &dyn S3, bucket: &str) {
    let etag = put(s3, bucket, "k", b"1").await;
    let tag = |value: &str| Some(ETagCondition::ETag(ETag::Strong(value.to_owned())));
    let wrong = CopyObjectInput { copy_source_if_match: tag("x"), ..copy_input(bucket, "k", "c") };
    assert_eq!(refusal(s3.copy_object(req(wrong)).await), ("PreconditionFailed".to_owned(), 412));
    let same =
        CopyObjectInput { copy_source_if_none_match: tag(&etag), ..copy_input(bucket, "k", "c") };
    assert_eq!(refusal(s3.copy_object(req(same)).await), ("PreconditionFailed".to_owned(), 412));
    assert_eq!(refusal(get(s3, bucket, "c").await), ("NoSuchKey".to_owned(), 404));
    let right =
        CopyObjectInput { copy_source_if_match: tag(&etag), ..copy_input(bucket, "k", "c") };
    s3.copy_object(req(right)).await.unwrap();
}

pub async fn a_copy_outlives_its_source(s3: &dyn S3, bucket: &str) {
    let bytes = content(5, 400_000);
    put(s3, bucket, "a", &bytes).await;
    s3.copy_object(req(copy_input(bucket, "a", "b"))).await.unwrap();
    s3.copy_object(req(copy_input(bucket, "b", "c"))).await.unwrap();
    put(s3, bucket, "a", b"overwritten").await;
    delete(s3, bucket, "b").await.unwrap();
    assert!(get(s3, bucket, "c").await.unwrap() == bytes);
    delete(s3, bucket, "a").await.unwrap();
    assert!(get(s3, bucket, "c").await.unwrap() == bytes);
}

pub async fn a_part_is_copied_from_a_range(s3: &dyn S3, bucket: &str) {
    let bytes = content(6, PART + 1000);
    put(s3, bucket, "from", &bytes).await;
    let id = start_upload(s3, bucket, "to").await;
    let mut parts = Vec::new();
    for (number, range) in [(1, format!("bytes=10-{}", PART + 9)), (2, "bytes=0-9".to_owned())] {
        let mut input = UploadPartCopyInput::builder();
        input.set_bucket(bucket.to_owned());
        input.set_key("to".to_owned());
        input.set_upload_id(id.clone());
        input.set_part_number(number);
        input.set_copy_source(source(bucket, "from"));
        input.set_copy_source_range(Some(range));
        let output = s3.upload_part_copy(req(input.build().unwrap())).await.unwrap().output;
        let e_tag = output.copy_part_result.unwrap().e_tag;
        parts.push(CompletedPart { e_tag, part_number: Some(number), ..Default::default() });
    }
    let mut past = UploadPartCopyInput::builder();
    past.set_bucket(bucket.to_owned());
    past.set_key("to".to_owned());
    past.set_upload_id(id.clone());
    past.set_part_number(3);
    past.set_copy_source(source(bucket, "from"));
    past.set_copy_source_range(Some(format!("bytes=0-{}", PART + 1000)));
    let refused = s3.upload_part_copy(req(past.build().unwrap())).await;
    assert_eq!(refusal(refused).0, "InvalidRange");
    delete(s3, bucket, "from").await.unwrap();
    complete(s3, bucket, "to", &id, &parts).await.unwrap();
    let want = [&bytes[10..PART + 10], &bytes[..10]].concat();
    assert!(get(s3, bucket, "to").await.unwrap() == want);
}

pub async fn a_copy_of_a_multipart_object_has_a_plain_etag(s3: &dyn S3, bucket: &str) {
    let (first, second) = (content(1, PART), content(2, 10));
    put_in_parts(s3, bucket, "k", &[&first, &second]).await;
    let whole = [first, second].concat();
    let output = s3.copy_object(req(copy_input(bucket, "k", "copy"))).await.unwrap().output;
    let etag = output.copy_object_result.unwrap().e_tag.unwrap();
    assert_eq!(etag.value(), hex::encode(Md5::checksum(&whole)));
    delete(s3, bucket, "k").await.unwrap();
    assert!(get(s3, bucket, "copy").await.unwrap() == whole);
}
