//! Tests what the client keeps of a store's errors.

use super::*;

// ---- errors

#[tokio::test]
async fn an_errors_status_headers_and_document_are_kept() {
    let cases = [
        (
            "304 Not Modified",
            "ETag: \"e\"\r\nCache-Control: max-age=7\r\nLast-Modified: x\r\n",
            String::new(),
        ),
        ("403 Forbidden", "x-amz-request-id: r1\r\n", error_xml("SignatureDoesNotMatch")),
        (
            "404 Not Found",
            "x-amz-id-2: i2\r\nx-amz-delete-marker: true\r\n",
            error_xml("NoSuchKey"),
        ),
        ("404 Not Found", "x-amz-request-id: r2\r\n", error_xml("NoSuchBucket")),
        ("412 Precondition Failed", "x-vendor: v\r\n", error_xml("PreconditionFailed")),
        (
            "416 Requested Range Not Satisfiable",
            "Content-Range: bytes */9\r\n",
            error_xml("InvalidRange"),
        ),
        ("503 Slow Down", "Retry-After: 17\r\n", error_xml("SlowDown")),
        ("500 Internal Server Error", "", "no xml at all".into()),
    ];
    let answers =
        cases.iter().map(|(status, headers, body)| answer(status, headers, body)).collect();
    let raw = Raw::saying(answers).await;
    let client = raw.client().await;
    for (status, headers, body) in &cases {
        let (result, seen) = observe_answer(client.get_object(get("k"))).await;
        let error = result.err().unwrap();
        let answer = answer_of(&error, seen);
        assert_eq!(answer.status.as_str(), &status[..3]);
        assert_eq!(error.status_code().unwrap().as_str(), &status[..3]);
        assert_eq!(answer.body, body.as_bytes(), "{status}");
        for line in headers.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            assert_eq!(answer.headers[name], value, "{status}");
            assert_eq!(error.headers().unwrap()[name], value, "{status}");
        }
        if let Some(code) = body.split("<Code>").nth(1) {
            assert_eq!(error.code().as_str(), code.split('<').next().unwrap());
        }
        // The same without an observer.
        assert_eq!(answer_of(&error, None).body, body.as_bytes());
    }
}

#[tokio::test]
async fn a_head_error_has_status_and_headers_and_a_code_that_fits() {
    let raw = Raw::saying(vec![
        "HTTP/1.1 404 Not Found\r\nx-amz-request-id: r\r\n\r\n".into(),
        "HTTP/1.1 412 Precondition Failed\r\nETag: \"e\"\r\n\r\n".into(),
    ])
    .await;
    let client = raw.client().await;
    let head =
        || req(HeadObjectInput { bucket: "bkt".into(), key: "k".into(), ..Default::default() });
    let error = client.head_object(head()).await.err().unwrap();
    assert_eq!(
        (error.status_code().unwrap().as_u16(), &error.headers().unwrap()["x-amz-request-id"]),
        (404, &"r".parse().unwrap())
    );
    let error = client.head_object(head()).await.err().unwrap();
    assert_eq!(
        (error.code().as_str(), &error.headers().unwrap()["etag"]),
        ("PreconditionFailed", &"\"e\"".parse().unwrap())
    );
}

#[tokio::test]
async fn an_error_in_a_200_is_an_error_and_stays_a_200() {
    let raw =
        Raw::saying(vec![answer("200 OK", "x-amz-request-id: r\r\n", &error_xml("InternalError"))])
            .await;
    let input = CompleteMultipartUploadInput {
        bucket: "bkt".into(),
        key: "k".into(),
        upload_id: "u".into(),
        multipart_upload: Some(CompletedMultipartUpload::default()),
        ..Default::default()
    };
    let error = raw.client().await.complete_multipart_upload(req(input)).await.err().unwrap();
    let answer = answer_of(&error, None);
    assert_eq!(answer.status.as_u16(), 200);
    assert!(answer.body.ends_with(b"<Extra>kept</Extra></Error>"));
}

#[tokio::test]
async fn an_error_document_without_end_is_cut() {
    let raw = Raw::saying(vec![answer("403 Forbidden", "", &"x".repeat(1_000_000))]).await;
    let error = raw.client().await.get_object(get("k")).await.err().unwrap();
    let answer = answer_of(&error, None);
    assert_eq!((answer.status.as_u16(), answer.body.len()), (403, 64 * 1024));
}

#[tokio::test]
async fn a_success_that_is_not_s3_is_an_explained_error() {
    let raw = Raw::saying(vec![answer("200 OK", "", "<html>log in first</html>")]).await;
    let input = ListObjectsV2Input { bucket: "bkt".into(), ..Default::default() };
    let (result, seen) = observe_answer(raw.client().await.list_objects_v2(req(input))).await;
    let error = result.err().unwrap();
    assert!(error.message().unwrap().contains("could not be understood"), "{error:?}");
    assert_eq!(answer_of(&error, seen).status.as_u16(), 500);
}
