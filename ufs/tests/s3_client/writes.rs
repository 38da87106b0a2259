//! Tests how the client writes, and what it does when a body fails.

use super::*;

/// The server hangs up after half an answer; nothing more may be heard.
#[tokio::test]
async fn a_body_that_fails_cuts_the_connection_and_gives_its_error() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", "")]).await;
    // So long that a part is in flight before the next piece is polled.
    let long = Bytes::from(vec![7; 4 << 20]);
    let pieces = vec![Ok(long), Err(s3_error!(BadDigest, "the sum is wrong"))];
    let error = raw
        .client()
        .await
        .put_object(put("k", StreamingBlob::wrap(stream::iter(pieces)), 5 << 20))
        .await
        .err()
        .unwrap();
    assert_eq!((error.code().as_str(), error.message()), ("BadDigest", Some("the sum is wrong")));
    let heard = raw.heard.recv().await.unwrap();
    assert!(heard.cut && heard.body.len() <= 4 << 20, "{}", heard.head);
}

#[tokio::test]
async fn a_put_that_is_dropped_cuts_the_connection() {
    let mut raw = Raw::saying(vec![]).await;
    let client = raw.client().await;
    let (piece, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = stream::unfold(pieces, |mut pieces| async move {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let body = StreamingBlob::wrap(SyncStream(Box::pin(body).into()));
    let task = tokio::spawn(async move { client.put_object(put("k", body, 8)).await.map(|_| ()) });
    piece.send(Ok(Bytes::from_static(b"0123"))).await.unwrap();
    // Taken: the request is on its way.
    piece.send(Ok(Bytes::from_static(b"45"))).await.unwrap();
    task.abort();
    let heard =
        tokio::time::timeout(Duration::from_secs(60), raw.heard.recv()).await.unwrap().unwrap();
    assert!(heard.cut, "{heard:?}");
}

/// `unfold`'s stream is not `Sync`; s3s wants bodies that are.
struct SyncStream<S>(std::sync::Mutex<S>);

impl<S: futures::Stream + Unpin> futures::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.get_mut().unwrap().poll_next_unpin(cx)
    }
}

#[tokio::test]
async fn a_put_that_fails_on_the_way_stores_nothing() {
    let (server, client, _folder) = embedded().await;
    let before = server.writes.load(Ordering::SeqCst);
    let pieces =
        (0..64).map(|_| Ok(Bytes::from(vec![1; 64 * 1024]))).chain([Err(s3_error!(BadDigest))]);
    let body = StreamingBlob::wrap(stream::iter(pieces.collect::<Vec<_>>()));
    assert!(client.put_object(put("k", body, 65 * 64 * 1024)).await.is_err());
    assert_eq!(client.get_object(get("k")).await.err().unwrap().code().as_str(), "NoSuchKey");
    assert_eq!(server.writes.load(Ordering::SeqCst), before + 1);
}

#[tokio::test]
async fn a_large_put_streams() {
    const PIECE: usize = 256 * 1024;
    const PIECES: usize = 256;
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", "")]).await;
    let client = raw.client().await;
    // Every piece in memory holds one permit until it is dropped: the body ends only if it is taken
    // bit by bit.
    let room = Arc::new(tokio::sync::Semaphore::new(8));
    struct Piece(Vec<u8>, #[allow(dead_code)] tokio::sync::OwnedSemaphorePermit);
    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let pieces = stream::unfold(0..PIECES, move |mut left| {
        let room = room.clone();
        async move {
            let at = left.next()?;
            let permit = room.acquire_owned().await.unwrap();
            Some((
                Ok::<_, std::io::Error>(Bytes::from_owner(Piece(vec![at as u8; PIECE], permit))),
                left,
            ))
        }
    });
    let body = StreamingBlob::wrap(SyncStream(Box::pin(pieces).into()));
    client.put_object(put("k", body, (PIECE * PIECES) as u64)).await.unwrap();
    let heard = raw.heard.recv().await.unwrap();
    assert_eq!(heard.body.len(), PIECE * PIECES);
    assert!(
        heard
            .body
            .chunks(PIECE)
            .enumerate()
            .all(|(at, piece)| piece.iter().all(|byte| *byte == at as u8))
    );
    assert!(heard.head.to_ascii_lowercase().contains("x-amz-content-sha256: unsigned-payload"));
}

#[tokio::test]
async fn the_clients_framing_is_not_the_objects_encoding() {
    let mut raw = Raw::saying(vec![answer("200 OK", "etag: \"e\"\r\n", ""); 2]).await;
    let client = raw.client().await;
    for (given, sent) in
        [("aws-chunked", None), ("gzip, aws-chunked", Some("content-encoding: gzip\r\n"))]
    {
        let mut request = put("k", text("text"), 4);
        request.input.content_encoding = Some(given.into());
        client.put_object(request).await.unwrap();
        let head = raw.heard.recv().await.unwrap().head.to_ascii_lowercase();
        assert_eq!(head.contains("content-encoding"), sent.is_some(), "{head}");
        assert!(sent.is_none_or(|line| head.contains(line)), "{head}");
        assert!(!head.contains("checksum"), "{head}");
    }
}

#[tokio::test]
async fn a_write_without_a_body_says_so() {
    let xml = "<CopyPartResult><ETag>\"e\"</ETag></CopyPartResult>";
    let mut raw = Raw::saying(vec![answer("200 OK", "", xml)]).await;
    let copy = UploadPartCopyInput::builder()
        .bucket("bkt".to_owned())
        .key("k".to_owned())
        .upload_id("u".to_owned())
        .part_number(1)
        .copy_source(CopySource::Bucket {
            bucket: "bkt".into(),
            key: "from".into(),
            version_id: None,
        })
        .build()
        .unwrap();
    raw.client().await.upload_part_copy(req(copy)).await.unwrap();
    // Ceph answers 411 where there is none.
    assert!(
        raw.heard.recv().await.unwrap().head.to_ascii_lowercase().contains("content-length: 0\r\n")
    );
}
