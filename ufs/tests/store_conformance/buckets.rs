//! Cases about buckets themselves.

use s3s::S3;
use s3s::dto::*;

use super::vocabulary::*;

fn delete_input(bucket: &str) -> DeleteBucketInput {
    DeleteBucketInput { bucket: bucket.to_owned(), ..Default::default() }
}

pub async fn a_bucket_is_made_listed_and_deleted(s3: &dyn S3, bucket: &str) {
    let listed = s3.list_buckets(req(ListBucketsInput::default())).await.unwrap().output;
    let listed: Vec<_> = listed.buckets.unwrap().into_iter().map(|b| b.name.unwrap()).collect();
    assert!(listed.contains(&bucket.to_owned()), "{listed:?}");
    s3.head_bucket(req(HeadBucketInput { bucket: bucket.to_owned(), ..Default::default() }))
        .await
        .unwrap();

    s3.delete_bucket(req(delete_input(bucket))).await.unwrap();

    let head = s3
        .head_bucket(req(HeadBucketInput { bucket: bucket.to_owned(), ..Default::default() }))
        .await;
    assert_eq!(refusal(head), ("NoSuchBucket".to_owned(), 404));
}

pub async fn a_bucket_that_exists_is_already_owned(s3: &dyn S3, bucket: &str) {
    let again = CreateBucketInput { bucket: bucket.to_owned(), ..Default::default() };
    assert_eq!(
        refusal(s3.create_bucket(req(again)).await),
        ("BucketAlreadyOwnedByYou".to_owned(), 409)
    );
}

pub async fn deleting_a_bucket_with_objects_is_refused(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "a", b"1").await;
    assert_eq!(
        refusal(s3.delete_bucket(req(delete_input(bucket))).await),
        ("BucketNotEmpty".to_owned(), 409)
    );
    assert_eq!(get(s3, bucket, "a").await.unwrap(), b"1");

    delete(s3, bucket, "a").await.unwrap();
    s3.delete_bucket(req(delete_input(bucket))).await.unwrap();
}

pub async fn operations_on_an_absent_bucket_say_no_such_bucket(s3: &dyn S3, _bucket: &str) {
    let absent = "no-such-bucket-here";
    let want = ("NoSuchBucket".to_owned(), 404);
    assert_eq!(refusal(get(s3, absent, "k").await), want);
    assert_eq!(refusal(s3.head_object(req(head_input(absent, "k"))).await), want);
    assert_eq!(refusal(s3.put_object(req(put_input(absent, "k", b"x"))).await), want);
    assert_eq!(refusal(delete(s3, absent, "k").await), want);
    assert_eq!(refusal(s3.delete_bucket(req(delete_input(absent))).await), want);
    let list = ListObjectsV2Input { bucket: absent.to_owned(), ..Default::default() };
    assert_eq!(refusal(s3.list_objects_v2(req(list)).await), want);
    let upload = CreateMultipartUploadInput {
        bucket: absent.to_owned(),
        key: "k".to_owned(),
        ..Default::default()
    };
    assert_eq!(refusal(s3.create_multipart_upload(req(upload)).await), want);
    let location = GetBucketLocationInput { bucket: absent.to_owned(), ..Default::default() };
    assert_eq!(refusal(s3.get_bucket_location(req(location)).await), want);
}

pub async fn configurations_that_were_never_set_have_their_own_codes(s3: &dyn S3, bucket: &str) {
    let bucket = || bucket.to_owned();
    let cors = s3
        .get_bucket_cors(req(GetBucketCorsInput { bucket: bucket(), ..Default::default() }))
        .await;
    assert_eq!(refusal(cors), ("NoSuchCORSConfiguration".to_owned(), 404));
    let policy = s3
        .get_bucket_policy(req(GetBucketPolicyInput { bucket: bucket(), ..Default::default() }))
        .await;
    assert_eq!(refusal(policy), ("NoSuchBucketPolicy".to_owned(), 404));
    let lifecycle = GetBucketLifecycleConfigurationInput { bucket: bucket(), ..Default::default() };
    let lifecycle = s3.get_bucket_lifecycle_configuration(req(lifecycle)).await;
    assert_eq!(refusal(lifecycle), ("NoSuchLifecycleConfiguration".to_owned(), 404));
    let website = s3
        .get_bucket_website(req(GetBucketWebsiteInput { bucket: bucket(), ..Default::default() }))
        .await;
    assert_eq!(refusal(website), ("NoSuchWebsiteConfiguration".to_owned(), 404));
    let tagging = s3
        .get_bucket_tagging(req(GetBucketTaggingInput { bucket: bucket(), ..Default::default() }))
        .await;
    assert_eq!(refusal(tagging), ("NoSuchTagSet".to_owned(), 404));
    let versioning = GetBucketVersioningInput { bucket: bucket(), ..Default::default() };
    assert_eq!(s3.get_bucket_versioning(req(versioning)).await.unwrap().output.status, None);
    let location = GetBucketLocationInput { bucket: bucket(), ..Default::default() };
    assert_eq!(
        s3.get_bucket_location(req(location)).await.unwrap().output.location_constraint,
        None
    );
}

pub async fn a_recreated_bucket_is_empty_and_unfinished_uploads_are_gone(
    s3: &dyn S3,
    bucket: &str,
) {
    let id = start_upload(s3, bucket, "up").await;
    let part = upload_part(s3, bucket, "up", &id, 1, b"part").await;
    s3.delete_bucket(req(delete_input(bucket))).await.unwrap();
    make_bucket(s3, bucket).await;
    assert_eq!(keys(s3, bucket).await, Vec::<String>::new());
    assert_eq!(
        refusal(complete(s3, bucket, "up", &id, &[part]).await),
        ("NoSuchUpload".to_owned(), 404)
    );
}
