//! Cases about objects uploaded in parts. Parts are of S3's smallest size, so that any store
//! accepts them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use s3s::S3;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha256};
use s3s::dto::*;

use super::vocabulary::*;

const PART: usize = 5 * 1024 * 1024;

pub async fn the_etag_is_that_of_s3(s3: &dyn S3, bucket: &str) {
    // Known answers, from another implementation of MD5: md5(md5(5 MiB of zeroes) + md5("tail")),
    // md5(md5("abc")).
    let etag = put_in_parts(s3, bucket, "k", &[&vec![0; PART], b"tail"]).await;
    assert_eq!(etag, "47693b6aafc99e607a33f321da4dc903-2");
    let one = put_in_parts(s3, bucket, "one", &[b"abc"]).await;
    assert_eq!(one, "af5da9f45af7a300e3aded972f8ff687-1");
}

pub async fn parts_join_in_order_of_their_numbers(s3: &dyn S3, bucket: &str) {
    let (first, second) = (content(1, PART), content(2, PART + 12_345));
    let third = content(3, 77);
    let input = CreateMultipartUploadInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        content_type: Some("text/x".to_owned()),
        metadata: Some([("m".to_owned(), "v".to_owned())].into()),
        tagging: Some("t=1".to_owned()),
        ..Default::default()
    };
    let id = s3.create_multipart_upload(req(input)).await.unwrap().output.upload_id.unwrap();
    // Uploaded out of order, with gaps in the numbers, and one that the completion leaves out.
    let c = upload_part(s3, bucket, "k", &id, 100, &third).await;
    let a = upload_part(s3, bucket, "k", &id, 3, &first).await;
    upload_part(s3, bucket, "k", &id, 5, b"left out").await;
    let b = upload_part(s3, bucket, "k", &id, 7, &second).await;
    assert_eq!(
        refusal(get(s3, bucket, "k").await),
        ("NoSuchKey".to_owned(), 404),
        "not visible before completion"
    );
    complete(s3, bucket, "k", &id, &[a, b, c]).await.unwrap();

    let whole = [first, second, third].concat();
    assert!(get(s3, bucket, "k").await.unwrap() == whole);
    let head = s3.head_object(req(head_input(bucket, "k"))).await.unwrap().output;
    assert_eq!(head.content_length, Some(whole.len() as i64));
    assert_eq!(head.content_type.as_deref(), Some("text/x"));
    assert_eq!(head.metadata.unwrap()["m"], "v");
    let (start, end) = (PART - 3, PART + 3);
    let (_, _, across) =
        get_range(s3, bucket, "k", &format!("bytes={start}-{}", end - 1)).await.unwrap();
    assert_eq!(across, whole[start..end]);
    let (_, _, tail) = get_range(s3, bucket, "k", "bytes=-80").await.unwrap();
    assert_eq!(tail, whole[whole.len() - 80..]);
}

pub async fn a_part_of_an_object_is_read_by_its_number(s3: &dyn S3, bucket: &str) {
    let (first, second) = (content(1, PART), content(2, 1000));
    put_in_parts(s3, bucket, "k", &[&first, &second]).await;
    let part = |n| GetObjectInput { part_number: Some(n), ..get_input(bucket, "k") };
    let got = s3.get_object(req(part(2))).await.unwrap();
    assert_eq!(got.status.map(|s| s.as_u16()), Some(206));
    assert_eq!(got.output.parts_count, Some(2));
    let want = format!("bytes {PART}-{}/{}", PART + 999, PART + 1000);
    assert_eq!(got.output.content_range, Some(want));
    assert_eq!(read_body(got.output.body).await.unwrap(), second);
    let head = HeadObjectInput { part_number: Some(1), ..head_input(bucket, "k") };
    let head = s3.head_object(req(head)).await.unwrap().output;
    assert_eq!((head.content_length, head.parts_count), (Some(PART as i64), Some(2)));
    assert_eq!(refusal(s3.get_object(req(part(3))).await).1, 416);
    let both = GetObjectInput { range: Some(Range::parse("bytes=0-1").unwrap()), ..part(1) };
    assert_eq!(refusal(s3.get_object(req(both)).await), ("InvalidRequest".to_owned(), 400));
    put(s3, bucket, "plain", b"abc").await;
    let plain = GetObjectInput { part_number: Some(1), ..get_input(bucket, "plain") };
    let plain = s3.get_object(req(plain)).await.unwrap().output;
    assert_eq!((plain.content_length, plain.parts_count), (Some(3), None));
}

pub async fn wrong_completions_change_nothing(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"before").await;
    let id = start_upload(s3, bucket, "k").await;
    let one = upload_part(s3, bucket, "k", &id, 1, &content(1, PART)).await;
    let two = upload_part(s3, bucket, "k", &id, 2, b"two").await;
    let wrong_tag = CompletedPart { e_tag: Some(ETag::Strong("0".repeat(32))), ..one.clone() };
    let absent = CompletedPart { part_number: Some(9), ..two.clone() };
    let wrong_sum =
        CompletedPart { checksum_crc64nvme: Some("AAAAAAAAAAA=".to_owned()), ..two.clone() };
    let cases = [
        (vec![wrong_tag], "InvalidPart"),
        (vec![one.clone(), absent], "InvalidPart"),
        (vec![one.clone(), wrong_sum], "InvalidPart"),
        (vec![two.clone(), one.clone()], "InvalidPartOrder"),
        (vec![one.clone(), one.clone()], "InvalidPartOrder"),
        (vec![], "MalformedXML"),
    ];
    for (parts, want) in cases {
        assert_eq!(refusal(complete(s3, bucket, "k", &id, &parts).await), (want.to_owned(), 400));
    }
    let parts = [one, two];
    let sized = CompleteMultipartUploadInput {
        mpu_object_size: Some(1),
        ..complete_input(bucket, "k", &id, &parts)
    };
    assert_eq!(
        refusal(s3.complete_multipart_upload(req(sized)).await),
        ("InvalidRequest".to_owned(), 400)
    );
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"before");
    complete(s3, bucket, "k", &id, &parts).await.unwrap();
    assert_eq!(get(s3, bucket, "k").await.unwrap().len(), PART + 3);
}

pub async fn small_parts_are_refused_except_the_last(s3: &dyn S3, bucket: &str) {
    let id = start_upload(s3, bucket, "k").await;
    let one = upload_part(s3, bucket, "k", &id, 1, &content(1, PART - 1)).await;
    let two = upload_part(s3, bucket, "k", &id, 2, b"two").await;
    let refused = complete(s3, bucket, "k", &id, &[one.clone(), two]).await;
    assert_eq!(refusal(refused), ("EntityTooSmall".to_owned(), 400));
    complete(s3, bucket, "k", &id, &[one]).await.unwrap();
}

pub async fn an_unknown_upload_is_no_such_upload(s3: &dyn S3, bucket: &str) {
    let want = ("NoSuchUpload".to_owned(), 404);
    let id = start_upload(s3, bucket, "k").await;
    let part = upload_part(s3, bucket, "k", &id, 1, b"1").await;
    // An upload belongs to its key.
    assert_eq!(refusal(s3.upload_part(req(part_input(bucket, "other", &id, 1, b"1"))).await), want);
    assert_eq!(refusal(complete(s3, bucket, "other", &id, &[part]).await), want);
    for id in ["x", "", &"f".repeat(32)] {
        assert_eq!(
            refusal(s3.upload_part(req(part_input(bucket, "k", id, 1, b"1"))).await),
            want,
            "{id}"
        );
        let abort = AbortMultipartUploadInput {
            bucket: bucket.to_owned(),
            key: "k".to_owned(),
            upload_id: id.to_owned(),
            ..Default::default()
        };
        assert_eq!(refusal(s3.abort_multipart_upload(req(abort)).await), want, "{id}");
    }
    for number in [0, -1, 10_001] {
        let refused = s3.upload_part(req(part_input(bucket, "k", &id, number, b"1"))).await;
        assert_eq!(refusal(refused), ("InvalidArgument".to_owned(), 400), "{number}");
    }
}

pub async fn an_aborted_upload_leaves_nothing(s3: &dyn S3, bucket: &str) {
    let id = start_upload(s3, bucket, "k").await;
    let part = upload_part(s3, bucket, "k", &id, 1, b"1").await;
    let abort = AbortMultipartUploadInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        upload_id: id.clone(),
        ..Default::default()
    };
    s3.abort_multipart_upload(req(abort)).await.unwrap();
    assert_eq!(
        refusal(complete(s3, bucket, "k", &id, &[part]).await),
        ("NoSuchUpload".to_owned(), 404)
    );
    assert_eq!(refusal(get(s3, bucket, "k").await), ("NoSuchKey".to_owned(), 404));
    let uploads = ListMultipartUploadsInput { bucket: bucket.to_owned(), ..Default::default() };
    let uploads = s3.list_multipart_uploads(req(uploads)).await.unwrap().output;
    assert_eq!(uploads.uploads.unwrap_or_default(), []);
}

pub async fn a_part_is_replaced_by_a_later_one_of_its_number(s3: &dyn S3, bucket: &str) {
    let id = start_upload(s3, bucket, "k").await;
    let old = upload_part(s3, bucket, "k", &id, 1, b"old").await;
    let new = upload_part(s3, bucket, "k", &id, 1, b"newer").await;
    assert_eq!(
        refusal(complete(s3, bucket, "k", &id, &[old]).await),
        ("InvalidPart".to_owned(), 400)
    );
    complete(s3, bucket, "k", &id, &[new]).await.unwrap();
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"newer");
}

pub async fn crcs_of_parts_combine_to_that_of_the_object(s3: &dyn S3, bucket: &str) {
    let (first, second) = (content(1, PART), content(2, 4321));
    let whole = [first.clone(), second.clone()].concat();
    let wants = [
        ("CRC32", STANDARD.encode(Crc32::checksum(&whole))),
        ("CRC32C", STANDARD.encode(Crc32c::checksum(&whole))),
        ("CRC64NVME", STANDARD.encode(Crc64Nvme::checksum(&whole))),
    ];
    for (algorithm, want) in wants {
        let input = CreateMultipartUploadInput {
            bucket: bucket.to_owned(),
            key: "k".to_owned(),
            checksum_algorithm: Some(algorithm.to_owned().into()),
            checksum_type: Some(ChecksumType::from_static(ChecksumType::FULL_OBJECT)),
            ..Default::default()
        };
        let id = s3.create_multipart_upload(req(input)).await.unwrap().output.upload_id.unwrap();
        let parts = [
            upload_part(s3, bucket, "k", &id, 1, &first).await,
            upload_part(s3, bucket, "k", &id, 2, &second).await,
        ];
        let wrong = CompleteMultipartUploadInput {
            checksum_crc32: Some("AAAAAA==".to_owned()),
            ..complete_input(bucket, "k", &id, &parts)
        };
        assert_eq!(
            refusal(s3.complete_multipart_upload(req(wrong)).await),
            ("BadDigest".to_owned(), 400)
        );
        let done = complete(s3, bucket, "k", &id, &parts).await.unwrap();
        let got = [done.checksum_crc32, done.checksum_crc32c, done.checksum_crc64nvme]
            .into_iter()
            .flatten();
        assert_eq!(got.collect::<Vec<_>>(), [want], "{algorithm}");
        assert_eq!(done.checksum_type.as_ref().map(ChecksumType::as_str), Some("FULL_OBJECT"));
    }
}

pub async fn composite_checksums_are_hashes_of_hashes(s3: &dyn S3, bucket: &str) {
    let input = || CreateMultipartUploadInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        checksum_algorithm: Some("SHA256".to_owned().into()),
        ..Default::default()
    };
    let created = s3.create_multipart_upload(req(input())).await.unwrap().output;
    assert_eq!(created.checksum_type.as_ref().map(ChecksumType::as_str), Some("COMPOSITE"));
    let id = created.upload_id.unwrap();
    let first = content(1, PART);
    let parts = [
        upload_part(s3, bucket, "k", &id, 1, &first).await,
        upload_part(s3, bucket, "k", &id, 2, b"tail").await,
    ];
    let done = complete(s3, bucket, "k", &id, &parts).await.unwrap();
    let hashes = [Sha256::checksum(&first), Sha256::checksum(b"tail")].concat();
    assert_eq!(
        done.checksum_sha256,
        Some(format!("{}-2", STANDARD.encode(Sha256::checksum(&hashes))))
    );
    let full = CreateMultipartUploadInput {
        checksum_type: Some(ChecksumType::from_static(ChecksumType::FULL_OBJECT)),
        ..input()
    };
    let refused = s3.create_multipart_upload(req(full)).await;
    assert_eq!(
        refusal(refused),
        ("InvalidRequest".to_owned(), 400),
        "a SHA of the whole cannot come from the parts"
    );
}

pub async fn completion_keeps_conditions(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"before").await;
    let id = start_upload(s3, bucket, "k").await;
    let part = upload_part(s3, bucket, "k", &id, 1, b"after").await;
    let create = CompleteMultipartUploadInput {
        if_none_match: Some(ETagCondition::Any),
        ..complete_input(bucket, "k", &id, std::slice::from_ref(&part))
    };
    let refused = s3.complete_multipart_upload(req(create)).await;
    assert_eq!(refusal(refused), ("PreconditionFailed".to_owned(), 412));
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"before");
    complete(s3, bucket, "k", &id, &[part]).await.unwrap();
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"after");
}

pub async fn attributes_list_the_parts(s3: &dyn S3, bucket: &str) {
    let etag = put_in_parts(s3, bucket, "k", &[&content(1, PART), b"tail"]).await;
    let names = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];
    let input = GetObjectAttributesInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        object_attributes: names.iter().map(|n| ObjectAttributes::from_static(n)).collect(),
        ..Default::default()
    };
    let output = s3.get_object_attributes(req(input)).await.unwrap().output;
    assert_eq!(output.e_tag.unwrap().value(), etag);
    assert_eq!(output.object_size, Some(PART as i64 + 4));
    assert_eq!(output.object_parts.unwrap().total_parts_count, Some(2));
    assert!(output.checksum.unwrap().checksum_crc64nvme.is_some());
    assert_eq!(output.storage_class.as_ref().map(StorageClass::as_str), Some("STANDARD"));
}
