//! Cases about one object: its bytes, attributes, ranges, digests and end.

use std::collections::HashMap;

use s3s::S3;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::*;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::vocabulary::*;

pub async fn bytes_and_attributes_come_back(s3: &dyn S3, bucket: &str) {
    let bytes = content(1, 700_001);
    let expires =
        Timestamp::parse(TimestampFormat::HttpDate, "Wed, 21 Oct 2026 07:28:00 GMT").unwrap();
    let metadata: HashMap<_, _> = [("color".to_owned(), "blue".to_owned())].into();
    let input = PutObjectInput {
        cache_control: Some("max-age=5".to_owned()),
        content_disposition: Some("inline".to_owned()),
        content_encoding: Some("gzip".to_owned()),
        content_language: Some("de".to_owned()),
        content_type: Some("text/plain".to_owned()),
        expires: Some(expires.clone()),
        metadata: Some(metadata.clone()),
        storage_class: Some(StorageClass::from_static("STANDARD_IA")),
        website_redirect_location: Some("/else".to_owned()),
        ..put_input(bucket, "k", &bytes)
    };
    let put = s3.put_object(req(input)).await.unwrap().output;
    let md5 = hex::encode(Md5::checksum(&bytes));
    assert_eq!(put.e_tag, Some(ETag::Strong(md5.clone())));

    let got = s3.get_object(req(get_input(bucket, "k"))).await.unwrap().output;
    let head = s3.head_object(req(head_input(bucket, "k"))).await.unwrap().output;
    assert_eq!(got.content_length, Some(700_001));
    assert_eq!(got.accept_ranges.as_deref(), Some("bytes"));
    assert_eq!(got.cache_control.as_deref(), Some("max-age=5"));
    assert_eq!(got.content_disposition.as_deref(), Some("inline"));
    assert_eq!(got.content_encoding.as_deref(), Some("gzip"));
    assert_eq!(got.content_language.as_deref(), Some("de"));
    assert_eq!(got.content_type.as_deref(), Some("text/plain"));
    assert_eq!(got.expires, Some(expires));
    assert_eq!(got.metadata, Some(metadata));
    assert_eq!(got.storage_class.as_ref().map(StorageClass::as_str), Some("STANDARD_IA"));
    assert_eq!(got.website_redirect_location.as_deref(), Some("/else"));
    assert_eq!(got.e_tag, Some(ETag::Strong(md5)));
    assert_eq!((head.content_length, &head.e_tag), (got.content_length, &got.e_tag));
    assert_eq!(
        (head.metadata, head.last_modified),
        (got.metadata.clone(), got.last_modified.clone())
    );
    assert_eq!(head.content_type, got.content_type);
    let modified = time::OffsetDateTime::from(got.last_modified.clone().unwrap());
    assert_eq!(modified.nanosecond(), 0);
    assert_eq!(read_body(got.body).await.unwrap(), bytes);
}

pub async fn an_empty_object_is_an_object(s3: &dyn S3, bucket: &str) {
    let etag = put(s3, bucket, "empty", b"").await;
    assert_eq!(etag, "d41d8cd98f00b204e9800998ecf8427e");
    assert_eq!(get(s3, bucket, "empty").await.unwrap(), b"");
    let head = s3.head_object(req(head_input(bucket, "empty"))).await.unwrap().output;
    assert_eq!(head.content_length, Some(0));
    assert_eq!(head.content_type.as_deref(), Some("binary/octet-stream"));
    for range in ["bytes=0-", "bytes=0-0", "bytes=-5"] {
        assert_eq!(
            refusal(get_range(s3, bucket, "empty", range).await),
            ("InvalidRange".to_owned(), 416),
            "{range}"
        );
    }
}

pub async fn an_absent_key_says_no_such_key(s3: &dyn S3, bucket: &str) {
    let want = ("NoSuchKey".to_owned(), 404);
    assert_eq!(refusal(get(s3, bucket, "absent").await), want);
    assert_eq!(refusal(s3.head_object(req(head_input(bucket, "absent"))).await), want);
    let tags = GetObjectTaggingInput {
        bucket: bucket.to_owned(),
        key: "absent".to_owned(),
        ..Default::default()
    };
    assert_eq!(refusal(s3.get_object_tagging(req(tags)).await), want);
}

pub async fn awkward_keys_are_kept_apart(s3: &dyn S3, bucket: &str) {
    let keys = [
        "x",
        "x/y",
        "x/",
        "x//y",
        "//",
        "/",
        ".",
        "..",
        "../x",
        "a+b",
        "a b",
        "a%2Bb",
        "a%20b",
        "dir/",
        "ü",
        "u\u{308}",
        "日本/語",
        "\u{1f600}",
        "\u{ffff}",
        "a\nb",
        "X",
        "con",
        "a\\b",
        "?",
        "#",
        "\"<&>'",
    ];
    for (at, key) in keys.iter().enumerate() {
        put(s3, bucket, key, &content(at as u64, 50 + at)).await;
    }
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(get(s3, bucket, key).await.unwrap(), content(at as u64, 50 + at), "{key:?}");
    }
    let mut want: Vec<_> = keys.iter().map(|k| (*k).to_owned()).collect();
    want.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    assert_eq!(super::vocabulary::keys(s3, bucket).await, want);

    delete(s3, bucket, "x").await.unwrap();
    assert_eq!(get(s3, bucket, "x/y").await.unwrap(), content(1, 51));
    assert_eq!(refusal(get(s3, bucket, "x").await), ("NoSuchKey".to_owned(), 404));
}

pub async fn a_key_of_1024_bytes_is_allowed_and_one_more_is_not(s3: &dyn S3, bucket: &str) {
    let key = "é".repeat(512);
    put(s3, bucket, &key, b"long").await;
    assert_eq!(get(s3, bucket, &key).await.unwrap(), b"long");
    let longer = format!("{key}x");
    let refused = s3.put_object(req(put_input(bucket, &longer, b"x"))).await;
    assert_eq!(refusal(refused), ("KeyTooLongError".to_owned(), 400));
}

pub async fn ranges_are_cut_as_rfc_9110_says(s3: &dyn S3, bucket: &str) {
    let bytes = content(2, 600_000);
    put(s3, bucket, "k", &bytes).await;
    let cases = [
        ("bytes=0-0", 0..1),
        ("bytes=1-4", 1..5),
        ("bytes=0-", 0..600_000),
        ("bytes=599999-", 599_999..600_000),
        ("bytes=262143-262144", 262_143..262_145),
        ("bytes=100-9999999", 100..600_000),
        ("bytes=-1", 599_999..600_000),
        ("bytes=-9999999", 0..600_000),
    ];
    for (range, want) in cases {
        let (status, content_range, got) = get_range(s3, bucket, "k", range).await.unwrap();
        assert_eq!(
            (status, content_range),
            (206, format!("bytes {}-{}/600000", want.start, want.end - 1)),
            "{range}"
        );
        assert!(got == bytes[want], "{range}: other bytes");
        let input = HeadObjectInput {
            range: Some(Range::parse(range).unwrap()),
            ..head_input(bucket, "k")
        };
        let head = s3.head_object(req(input)).await.unwrap();
        assert_eq!(head.status.map(|s| s.as_u16()), Some(206));
        assert_eq!(head.output.content_length, Some(got.len() as i64));
    }
}

pub async fn ranges_past_the_end_answer_416_with_the_size(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"12345").await;
    for range in ["bytes=5-", "bytes=5-9", "bytes=-0"] {
        let error = get_range(s3, bucket, "k", range).await.unwrap_err();
        assert_eq!(code(&error), ("InvalidRange".to_owned(), 416), "{range}");
        assert_eq!(header(&error, "content-range"), "bytes */5", "{range}");
    }
}

pub async fn a_short_or_long_body_stores_nothing(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"before").await;
    for length in [4_999, 5_001, 0] {
        let input = PutObjectInput {
            content_length: Some(length),
            ..put_input(bucket, "k", &content(3, 5_000))
        };
        let refused = s3.put_object(req(input)).await;
        assert_eq!(refusal(refused), ("IncompleteBody".to_owned(), 400), "{length}");
        let mut chunked = req(PutObjectInput {
            content_length: None,
            ..put_input(bucket, "k", &content(3, 5_000))
        });
        chunked.headers.insert("x-amz-decoded-content-length", length.into());
        assert_eq!(
            refusal(s3.put_object(chunked).await),
            ("IncompleteBody".to_owned(), 400),
            "{length}"
        );
    }
    let broken = futures::stream::iter(vec![
        Ok(bytes::Bytes::from_static(b"half")),
        Err(std::io::Error::other("the client went away")),
    ]);
    let body = Some(StreamingBlob::wrap(broken));
    let input = PutObjectInput { body, content_length: Some(8), ..put_input(bucket, "k", b"") };
    assert_eq!(refusal(s3.put_object(req(input)).await), ("IncompleteBody".to_owned(), 400));
    assert_eq!(get(s3, bucket, "k").await.unwrap(), b"before");
}

pub async fn a_wrong_digest_stores_nothing(s3: &dyn S3, bucket: &str) {
    let other = b"other bytes";
    let wrong = |change: &dyn Fn(&mut PutObjectInput)| {
        let mut input = put_input(bucket, "k", b"these bytes");
        change(&mut input);
        input
    };
    let inputs = [
        wrong(&|i| i.content_md5 = Some(STANDARD.encode(Md5::checksum(other)))),
        wrong(&|i| i.checksum_crc32 = Some(STANDARD.encode(Crc32::checksum(other)))),
        wrong(&|i| i.checksum_crc32c = Some(STANDARD.encode(Crc32c::checksum(other)))),
        wrong(&|i| i.checksum_crc64nvme = Some(STANDARD.encode(Crc64Nvme::checksum(other)))),
        wrong(&|i| i.checksum_sha1 = Some(STANDARD.encode(Sha1::checksum(other)))),
        wrong(&|i| i.checksum_sha256 = Some(STANDARD.encode(Sha256::checksum(other)))),
    ];
    for input in inputs {
        assert_eq!(refusal(s3.put_object(req(input)).await), ("BadDigest".to_owned(), 400));
    }
    let malformed = wrong(&|i| i.content_md5 = Some("not base64".to_owned()));
    assert_eq!(refusal(s3.put_object(req(malformed)).await), ("InvalidDigest".to_owned(), 400));
    let malformed = wrong(&|i| i.checksum_crc32 = Some("AAAA".to_owned()));
    assert_eq!(refusal(s3.put_object(req(malformed)).await), ("InvalidRequest".to_owned(), 400));
    // A promise of a trailing checksum that never came is as bad as a wrong one.
    let mut promised = req(put_input(bucket, "k", b"these bytes"));
    promised.headers.insert("x-amz-trailer", "x-amz-checksum-crc32".parse().unwrap());
    assert_eq!(refusal(s3.put_object(promised).await), ("MalformedTrailerError".to_owned(), 400));
    assert_eq!(refusal(get(s3, bucket, "k").await), ("NoSuchKey".to_owned(), 404));
}

pub async fn every_checksum_is_kept_and_returned_on_request(s3: &dyn S3, bucket: &str) {
    let bytes = content(4, 300_000);
    let md5 = Some(STANDARD.encode(Md5::checksum(&bytes)));
    let sha256 = Some(STANDARD.encode(Sha256::checksum(&bytes)));
    let crc32c = Some(STANDARD.encode(Crc32c::checksum(&bytes)));
    let input = PutObjectInput {
        content_md5: md5,
        checksum_sha256: sha256.clone(),
        checksum_crc32c: crc32c.clone(),
        ..put_input(bucket, "k", &bytes)
    };
    let put = s3.put_object(req(input)).await.unwrap().output;
    assert_eq!((&put.checksum_sha256, &put.checksum_crc32c), (&sha256, &crc32c));

    let plain = s3.get_object(req(get_input(bucket, "k"))).await.unwrap().output;
    assert_eq!((plain.checksum_sha256, plain.checksum_type), (None, None));
    let mode = Some(ChecksumMode::from_static(ChecksumMode::ENABLED));
    let with = GetObjectInput { checksum_mode: mode.clone(), ..get_input(bucket, "k") };
    let got = s3.get_object(req(with.clone())).await.unwrap().output;
    assert_eq!((got.checksum_sha256, got.checksum_crc32c), (sha256.clone(), crc32c));
    assert_eq!(got.checksum_type.as_ref().map(ChecksumType::as_str), Some("FULL_OBJECT"));
    let head = HeadObjectInput { checksum_mode: mode, ..head_input(bucket, "k") };
    assert_eq!(s3.head_object(req(head)).await.unwrap().output.checksum_sha256, sha256);

    let ranged = GetObjectInput { range: Some(Range::parse("bytes=0-9").unwrap()), ..with };
    let ranged = s3.get_object(req(ranged)).await.unwrap().output;
    assert_eq!(
        (ranged.checksum_sha256, ranged.checksum_type),
        (None, None),
        "a piece has no checksum of the whole"
    );
}

pub async fn an_object_without_checksum_gets_crc64nvme(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"123456789").await;
    let mode = Some(ChecksumMode::from_static(ChecksumMode::ENABLED));
    let head = HeadObjectInput { checksum_mode: mode, ..head_input(bucket, "k") };
    let head = s3.head_object(req(head)).await.unwrap().output;
    // The check value of CRC-64/NVME in the catalogue of parametrised CRC algorithms.
    let want = STANDARD.encode(0xae8b_1486_0a79_9888_u64.to_be_bytes());
    assert_eq!(head.checksum_crc64nvme, Some(want));
}

pub async fn deleting_is_idempotent(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"1").await;
    let input = || DeleteObjectInput {
        bucket: bucket.to_owned(),
        key: "k".to_owned(),
        ..Default::default()
    };
    for _ in 0..2 {
        let response = s3.delete_object(req(input())).await.unwrap();
        assert_eq!(response.status.map_or(204, |s| s.as_u16()), 204);
        assert_eq!(refusal(get(s3, bucket, "k").await), ("NoSuchKey".to_owned(), 404));
    }
}

fn batch(bucket: &str, keys: &[(&str, Option<&str>)], quiet: bool) -> DeleteObjectsInput {
    let object = |(key, version): &(&str, Option<&str>)| ObjectIdentifier {
        key: (*key).to_owned(),
        version_id: version.map(str::to_owned),
        e_tag: None,
        last_modified_time: None,
        size: None,
    };
    DeleteObjectsInput {
        bucket: bucket.to_owned(),
        delete: Delete { objects: keys.iter().map(object).collect(), quiet: Some(quiet) },
        bypass_governance_retention: None,
        checksum_algorithm: None,
        expected_bucket_owner: None,
        mfa: None,
        request_payer: None,
    }
}

pub async fn a_batch_delete_reports_each_key(s3: &dyn S3, bucket: &str) {
    for key in ["a", "b", "c", "d"] {
        put(s3, bucket, key, b"1").await;
    }
    let input = batch(
        bucket,
        &[("a", None), ("absent", None), ("c", Some("null")), ("d", Some("other"))],
        false,
    );
    let output = s3.delete_objects(req(input)).await.unwrap().output;
    let deleted: Vec<_> = output.deleted.unwrap().into_iter().map(|d| d.key.unwrap()).collect();
    assert_eq!(deleted, ["a", "absent", "c"]);
    let errors: Vec<_> =
        output.errors.unwrap().into_iter().map(|e| (e.key.unwrap(), e.code.unwrap())).collect();
    assert_eq!(errors, [("d".to_owned(), "NoSuchVersion".to_owned())]);
    assert_eq!(keys(s3, bucket).await, ["b", "d"]);
}

pub async fn a_quiet_batch_delete_reports_errors_only(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "a", b"1").await;
    let output = s3
        .delete_objects(req(batch(bucket, &[("a", None), ("b", Some("x"))], true)))
        .await
        .unwrap()
        .output;
    assert_eq!(output.deleted.unwrap_or_default(), []);
    assert_eq!(output.errors.unwrap().len(), 1);
    let none = s3.delete_objects(req(batch(bucket, &[], true))).await;
    assert_eq!(refusal(none), ("MalformedXML".to_owned(), 400));
}

pub async fn the_null_version_is_the_only_one(s3: &dyn S3, bucket: &str) {
    put(s3, bucket, "k", b"1").await;
    let version =
        |v: &str| GetObjectInput { version_id: Some(v.to_owned()), ..get_input(bucket, "k") };
    s3.get_object(req(version("null"))).await.unwrap();
    assert_eq!(
        refusal(s3.get_object(req(version("abc"))).await),
        ("NoSuchVersion".to_owned(), 404)
    );
}

pub async fn aws_chunked_is_not_stored_as_an_encoding(s3: &dyn S3, bucket: &str) {
    for (given, want) in [
        ("aws-chunked", None),
        ("aws-chunked,gzip", Some("gzip")),
        ("gzip, aws-chunked", Some("gzip")),
    ] {
        let input = PutObjectInput {
            content_encoding: Some(given.to_owned()),
            ..put_input(bucket, "k", b"1")
        };
        s3.put_object(req(input)).await.unwrap();
        let head = s3.head_object(req(head_input(bucket, "k"))).await.unwrap().output;
        assert_eq!(head.content_encoding.as_deref(), want, "{given}");
    }
}
