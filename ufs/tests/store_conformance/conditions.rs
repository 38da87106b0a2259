//! Cases about conditional requests.

use s3s::S3;
use s3s::dto::*;

use super::vocabulary::*;

fn tag(value: &str) -> Option<ETagCondition> {
    Some(ETagCondition::ETag(ETag::Strong(value.to_owned())))
}

fn at(modified: &Timestamp, seconds: i64) -> Option<Timestamp> {
    Some((time::OffsetDateTime::from(modified.clone()) + time::Duration::seconds(seconds)).into())
}

pub async fn reads_follow_rfc_9110_precedence(s3: &dyn S3, bucket: &str) {
    let etag = put(s3, bucket, "k", b"1").await;
    let head = s3.head_object(req(head_input(bucket, "k"))).await.unwrap().output;
    let modified = head.last_modified.unwrap();
    let read = |change: &dyn Fn(&mut GetObjectInput)| {
        let mut input = get_input(bucket, "k");
        change(&mut input);
        input
    };
    let cases = [
        (200, read(&|i| i.if_match = tag(&etag))),
        (200, read(&|i| i.if_match = Some(ETagCondition::Any))),
        (200, read(&|i| i.if_match = tag(&format!("x\", \"{etag}")))),
        (412, read(&|i| i.if_match = tag("x"))),
        (412, read(&|i| i.if_match = Some(ETagCondition::ETag(ETag::Weak(etag.clone()))))),
        (304, read(&|i| i.if_none_match = tag(&etag))),
        (304, read(&|i| i.if_none_match = Some(ETagCondition::Any))),
        (304, read(&|i| i.if_none_match = Some(ETagCondition::ETag(ETag::Weak(etag.clone()))))),
        (200, read(&|i| i.if_none_match = tag("x"))),
        (304, read(&|i| i.if_modified_since = at(&modified, 0))),
        (200, read(&|i| i.if_modified_since = at(&modified, -1))),
        (200, read(&|i| i.if_unmodified_since = at(&modified, 0))),
        (412, read(&|i| i.if_unmodified_since = at(&modified, -1))),
        // If-Match outranks If-Unmodified-Since, and If-None-Match outranks If-Modified-Since.
        (200, read(&|i| (i.if_match, i.if_unmodified_since) = (tag(&etag), at(&modified, -1)))),
        (200, read(&|i| (i.if_none_match, i.if_modified_since) = (tag("x"), at(&modified, 0)))),
        (304, read(&|i| (i.if_none_match, i.if_modified_since) = (tag(&etag), at(&modified, -1)))),
        (412, read(&|i| (i.if_match, i.if_none_match) = (tag("x"), tag(&etag)))),
        (304, read(&|i| (i.if_match, i.if_none_match) = (tag(&etag), tag(&etag)))),
        // Conditions come before ranges.
        (
            304,
            read(&|i| {
                (i.if_none_match, i.range) = (tag(&etag), Some(Range::parse("bytes=9-").unwrap()))
            }),
        ),
    ];
    for (at, (want, input)) in cases.into_iter().enumerate() {
        let head = HeadObjectInput {
            if_match: input.if_match.clone(),
            if_none_match: input.if_none_match.clone(),
            if_modified_since: input.if_modified_since.clone(),
            if_unmodified_since: input.if_unmodified_since.clone(),
            ..head_input(bucket, "k")
        };
        assert_eq!(refusal(s3.get_object(req(input)).await).1, want, "GET of case {at}");
        assert_eq!(refusal(s3.head_object(req(head)).await).1, want, "HEAD of case {at}");
    }
}

pub async fn not_modified_carries_etag_and_date(s3: &dyn S3, bucket: &str) {
    let etag = put(s3, bucket, "k", b"1").await;
    let input = GetObjectInput { if_none_match: tag(&etag), ..get_input(bucket, "k") };
    let error = s3.get_object(req(input)).await.map(drop).unwrap_err();
    assert_eq!(code(&error).1, 304);
    assert_eq!(header(&error, "etag"), format!("\"{etag}\""));
    assert!(header(&error, "last-modified").ends_with(" GMT"));
    let failed = GetObjectInput { if_match: tag("x"), ..get_input(bucket, "k") };
    assert_eq!(refusal(s3.get_object(req(failed)).await), ("PreconditionFailed".to_owned(), 412));
}

pub async fn a_put_that_must_create_does_not_overwrite(s3: &dyn S3, bucket: &str) {
    let create = |bytes| PutObjectInput {
        if_none_match: Some(ETagCondition::Any),
        ..put_input(bucket, "k", bytes)
    };
    s3.put_object(req(create(b"first"))).await.unwrap();
    assert_eq!(
        refusal(s3.put_object(req(create(b"second"))).await),
        ("PreconditionFailed".to_owned(), 412)
    );
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"first");
}

pub async fn a_put_that_must_replace_wants_the_right_etag(s3: &dyn S3, bucket: &str) {
    let replace =
        |etag: &str| PutObjectInput { if_match: tag(etag), ..put_input(bucket, "k", b"new") };
    assert_eq!(refusal(s3.put_object(req(replace("x"))).await), ("NoSuchKey".to_owned(), 404));
    let etag = put(s3, bucket, "k", b"old").await;
    assert_eq!(
        refusal(s3.put_object(req(replace("x"))).await),
        ("PreconditionFailed".to_owned(), 412)
    );
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"old");
    s3.put_object(req(replace(&etag))).await.unwrap();
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"new");
}

pub async fn one_of_many_creating_puts_wins(s3: &dyn S3, bucket: &str) {
    let puts = (0..16u64).map(|n| async move {
        let bytes = content(n, 2_000);
        let input = PutObjectInput {
            if_none_match: Some(ETagCondition::Any),
            ..put_input(bucket, "k", &bytes)
        };
        (n, refusal(s3.put_object(req(input)).await).1)
    });
    let results = futures::future::join_all(puts).await;
    let winners: Vec<_> = results.iter().filter(|(_, status)| *status == 200).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    assert!(results.iter().all(|(_, status)| [200, 412].contains(status)), "{results:?}");
    assert_eq!(get(s3, bucket, "k").await.unwrap(), content(winners[0].0, 2_000));
}

pub async fn a_conditional_delete_wants_the_right_etag(s3: &dyn S3, bucket: &str) {
    let etag = put(s3, bucket, "k", b"1").await;
    let input = |if_match| DeleteObjectInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        if_match,
        ..Default::default()
    };
    assert_eq!(
        refusal(s3.delete_object(req(input(tag("x")))).await),
        ("PreconditionFailed".to_owned(), 412)
    );
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"1");
    s3.delete_object(req(input(tag(&etag)))).await.unwrap();
    assert_eq!(refusal(get(s3, bucket, "k").await), ("NoSuchKey".to_owned(), 404));
}
