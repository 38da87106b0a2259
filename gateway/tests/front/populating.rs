//! Copies of writes to workers: of which requests, of which bytes, and when they become readable.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;
use verbs3_client::{QuestionError, SettleRequest, StageRequest};
use verbs3_gateway::PopulateTier;
use verbs3_protocol::{BlockGeometry, BlockIndex, ObjectKey, PopulateToken, WorkerId};

use crate::gateway_fixture::{Answer, GatewayFixture, until};
use crate::signing::{Request, Seed};

/// A worker that takes everything, and remembers it.
#[derive(Default)]
pub struct OneWorker {
    staged: Mutex<HashMap<PopulateToken, Vec<u8>>>,
    /// Key, ETag and bytes of what can be read.
    committed: Mutex<Vec<(String, String, Vec<u8>)>>,
    discarded: Mutex<Vec<Vec<u8>>>,
}

#[async_trait]
impl PopulateTier for OneWorker {
    fn block_geometry(&self) -> BlockGeometry {
        BlockGeometry::DEFAULT
    }

    fn stage_owner(&self, _: &ObjectKey, _: BlockIndex) -> Option<WorkerId> {
        Some(WorkerId("w1".into()))
    }

    async fn stage_pages(
        &self,
        _: &WorkerId,
        request: StageRequest,
        _: Instant,
    ) -> Result<(), QuestionError> {
        self.staged.lock().insert(request.token, request.pages.concat());
        Ok(())
    }

    async fn settle_pages(
        &self,
        request: &SettleRequest,
        _: Instant,
    ) -> Result<u64, QuestionError> {
        let mut settled = 0;
        for token in &request.tokens {
            let Some(bytes) = self.staged.lock().remove(token) else { continue };
            let Some(version) = &request.version else {
                self.discarded.lock().push(bytes);
                continue;
            };
            assert_eq!(version.bytes, bytes.len() as u64);
            let (key, etag) = (request.object.key.clone(), version.etag.clone());
            self.committed.lock().push((key, etag, bytes));
            settled += 1;
        }
        Ok(settled)
    }
}

async fn start_fixture() -> (GatewayFixture, Arc<OneWorker>) {
    let worker = Arc::new(OneWorker::default());
    let shown: Arc<dyn PopulateTier> = worker.clone();
    let fixture = GatewayFixture::start_with(|setup| {
        // A slow machine is no fault.
        setup.settings.populate.commit_wait_max =
            verbs3_settings::TimePeriod(std::time::Duration::from_secs(60));
        setup.populate = Some(shown);
    })
    .await;
    (fixture, worker)
}

impl OneWorker {
    pub fn committed(&self) -> Vec<(String, String, Vec<u8>)> {
        self.committed.lock().clone()
    }

    /// Waits until all that was staged has been given up.
    async fn has_given_up(&self, bytes: &[u8]) {
        until(|| self.staged.lock().is_empty() && *self.discarded.lock() == [bytes]).await;
        self.discarded.lock().clear();
        assert_eq!(self.committed(), []);
    }
}

async fn chunked(fixture: &GatewayFixture, trailer: &str) -> Answer {
    let body = format!("b\r\nhello world\r\n0\r\n{trailer}\r\n\r\n");
    let request = Request::new("PUT", "/data/key")
        .payload("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
        .header("content-encoding", "aws-chunked")
        .header("x-amz-decoded-content-length", "11")
        .header("x-amz-trailer", "x-amz-checksum-crc32");
    let (head, _seed): (String, Seed) = request.signed(&fixture.host());
    let length = format!("content-length: {}\r\nconnection: close", body.len());
    fixture.exchange(&head.replace("connection: close", &length), body.as_bytes()).await
}

#[tokio::test]
async fn a_put_is_readable_under_the_etag_that_its_client_gets() {
    let (fixture, worker) = start_fixture().await;
    let answer = fixture.put("/sets/x", b"hello").await;
    assert_eq!(answer.status, 200);
    let etag = answer.headers["etag"].clone();
    assert_eq!(worker.committed(), [("team/a/x".to_owned(), etag, b"hello".to_vec())]);
    let told = fixture.told();
    assert_eq!(told, ["announce team/a/x visible=false", "report team/a/x Done"]);
}

#[tokio::test]
async fn what_is_copied_is_what_the_store_gets_and_not_its_framing() {
    let (fixture, worker) = start_fixture().await;
    // CRC-32 of "hello world".
    let answer = chunked(&fixture, "x-amz-checksum-crc32:DUoRhQ==").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let [(_, _, bytes)] = &worker.committed()[..] else { panic!("one write") };
    assert_eq!(bytes, b"hello world");
}

/// The last frame never reaches the store, so a body of one frame is not copied either.
#[tokio::test]
async fn a_wrong_trailer_leaves_nothing() {
    let (fixture, worker) = start_fixture().await;
    assert_eq!(chunked(&fixture, "x-amz-checksum-crc32:AAAAAA==").await.status, 400);
    assert_eq!(worker.committed(), []);
    assert!(worker.staged.lock().is_empty());
}

#[tokio::test]
async fn a_write_that_the_store_refuses_leaves_nothing() {
    let (fixture, worker) = start_fixture().await;
    fixture.put("/data/x", b"hello").await;
    worker.committed.lock().clear();
    let again =
        Request::new("PUT", "/data/x").header("content-length", "5").header("if-none-match", "*");
    assert_eq!(fixture.send(&again, b"other").await.status, 412);
    worker.has_given_up(b"other").await;
}

#[tokio::test]
async fn a_write_whose_report_is_not_acknowledged_leaves_nothing() {
    let (fixture, worker) = start_fixture().await;
    fixture.homes.refuse_report.store(true, Ordering::SeqCst);
    assert_eq!(fixture.put("/data/x", b"hello").await.status, 503);
    worker.has_given_up(b"hello").await;
}

#[tokio::test]
async fn a_write_that_may_not_be_announced_leaves_nothing() {
    let (fixture, worker) = start_fixture().await;
    fixture.homes.refuse_announce.store(true, Ordering::SeqCst);
    assert_eq!(fixture.put("/data/x", b"hello").await.status, 503);
    assert!(worker.staged.lock().is_empty() && worker.committed().is_empty());
}

#[tokio::test]
async fn what_the_cache_would_not_keep_is_not_copied() {
    let (fixture, worker) = start_fixture().await;
    assert_eq!(fixture.put("/raw/x", b"hello").await.status, 200);
    assert_eq!(fixture.put("/data/empty", b"").await.status, 200);
    let secret = Request::new("PUT", "/data/secret")
        .header("content-length", "5")
        .header("x-amz-server-side-encryption-customer-algorithm", "AES256")
        .header(
            "x-amz-server-side-encryption-customer-key",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        )
        .header("x-amz-server-side-encryption-customer-key-md5", "cLx4zZSvaUNU9n4WMbZ0kQ==");
    fixture.send(&secret, b"hello").await;
    let appended = Request::new("PUT", "/data/x")
        .header("content-length", "5")
        .header("x-amz-write-offset-bytes", "0");
    fixture.send(&appended, b"hello").await;
    assert!(worker.staged.lock().is_empty());
    assert_eq!((worker.committed(), worker.discarded.lock().len()), (Vec::new(), 0));
}

#[tokio::test]
async fn an_upload_is_readable_when_it_is_completed() {
    let (fixture, worker) = start_fixture().await;
    let post = |query: String, bytes: usize| {
        let length = bytes.to_string();
        Request::new("POST", "/data/big").query(&query).header("content-length", &length)
    };
    let begun = fixture.send(&post("uploads=".into(), 0), b"").await.text();
    let (_, id) = begun.split_once("<UploadId>").unwrap();
    let (id, _) = id.split_once("</UploadId>").unwrap();
    let part = Request::new("PUT", "/data/big")
        .query(&format!("partNumber=1&uploadId={id}"))
        .header("content-length", "5");
    let etag = fixture.send(&part, b"hello").await.headers["etag"].clone();
    assert_eq!(worker.committed(), []);
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    let complete = post(format!("uploadId={id}"), document.len());
    let done = fixture.send(&complete, document.as_bytes()).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let head = fixture.send(&Request::new("HEAD", "/data/big"), b"").await;
    let etag = head.headers["etag"].clone();
    assert_eq!(worker.committed(), [("big".to_owned(), etag, b"hello".to_vec())]);
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    let (fixture, worker) = start_fixture().await;
    let begin = Request::new("POST", "/data/big").query("uploads=").header("content-length", "0");
    let begun = fixture.send(&begin, b"").await.text();
    let (_, id) = begun.split_once("<UploadId>").unwrap();
    let (id, _) = id.split_once("</UploadId>").unwrap();
    let part = Request::new("PUT", "/data/big")
        .query(&format!("partNumber=1&uploadId={id}"))
        .header("content-length", "5");
    assert_eq!(fixture.send(&part, b"hello").await.status, 200);
    let abort = Request::new("DELETE", "/data/big").query(&format!("uploadId={id}"));
    assert_eq!(fixture.send(&abort, b"").await.status, 204);
    worker.has_given_up(b"hello").await;
}
