//! Populate on write: what was written through a gateway is read back from workers, and the store
//! gives no byte of it. A write that fails, and a tier that is full, leave nothing behind.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use verbs3_tests::metrics::eventually;
use verbs3_tests::proxy::{Fault, Op};
use verbs3_tests::reading::{self, Seen};
use verbs3_tests::{Cluster, ClusterBuilder, PATIENT_TIER, Section, content};

const PAGE: usize = 256 << 10;
const BLOCK: usize = 4 << 20;
const WORKERS: usize = 3;

/// Patient, so that a slow machine is no fault.
fn builder(staged_max: &str) -> ClusterBuilder {
    let bounds = "[gateway.populate]\ncommit_wait_max = \"10s\"\nstage_wait_max = \"1m\"\n";
    Cluster::builder()
        .gateways(2)
        .workers(WORKERS)
        .faulty_store()
        .settings(Section::Mount, "populate_on_write = \"on\"")
        .settings(Section::Worker, &format!("[worker.populate]\nstaged_max = \"{staged_max}\""))
        .settings(Section::Gateway, &format!("{bounds}{PATIENT_TIER}"))
}

struct PopulatingFixture {
    cluster: Cluster,
    bucket: String,
    writer: Client,
    reader: Client,
}

impl PopulatingFixture {
    async fn start(staged_max: &str) -> Self {
        let cluster = builder(staged_max).start().await.unwrap();
        let bucket = cluster.bucket("populate").await.unwrap();
        let [writer, reader] = &cluster.gateways()[..] else { panic!("two were asked for") };
        let (writer, reader) = (reading::once(&writer.client), reading::once(&reader.client));
        Self { cluster, bucket, writer, reader }
    }

    async fn put(&self, key: &str, version: u64, length: usize) -> Option<Seen> {
        reading::put(&self.writer, &self.bucket, key, version, length).await
    }

    async fn is_read_back(&self, key: &str, version: u64, length: usize) {
        let seen = reading::get(&self.reader, &self.bucket, key).await;
        seen.is_whole(key, version, length).unwrap();
    }

    fn store_gets(&self, key: &str) -> usize {
        self.cluster.proxy().faults.seen(Op::Get, key)
    }

    /// The sum of a metric over all workers.
    async fn of_workers(&self, family: &str, label: &str) -> u64 {
        self.cluster.sum_of("worker", family, &[label]).await.unwrap() as u64
    }

    async fn committed_pages(&self) -> u64 {
        self.of_workers("verbs3_worker_staged_pages_total", "end=\"committed\"").await
    }

    /// Waits until no worker keeps pages of a write that is over.
    async fn nothing_is_staged(&self) {
        eventually(Duration::from_secs(30), async || {
            match self.of_workers("verbs3_worker_staged_bytes", "").await {
                0 => Ok(()),
                bytes => Err(format!("{bytes} bytes are staged")),
            }
        })
        .await
        .unwrap();
    }

    /// Uploads `parts` of one object, in this order, and completes it.
    async fn upload(&self, key: &str, parts: &[(i32, &[u8])]) {
        let upload = self.writer.create_multipart_upload().bucket(&self.bucket).key(key);
        let id = upload.send().await.unwrap().upload_id.unwrap();
        let mut done = Vec::new();
        for (number, bytes) in parts {
            let part = self.writer.upload_part().bucket(&self.bucket).key(key).upload_id(&id);
            let part = part.part_number(*number).body(ByteStream::from(bytes.to_vec()));
            let etag = part.send().await.unwrap().e_tag.unwrap();
            done.push(CompletedPart::builder().part_number(*number).e_tag(etag).build());
        }
        done.sort_by_key(|part| part.part_number);
        let done = CompletedMultipartUpload::builder().set_parts(Some(done)).build();
        let complete = self.writer.complete_multipart_upload().bucket(&self.bucket).key(key);
        complete.upload_id(id).multipart_upload(done).send().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_put_is_read_back_without_a_byte_of_the_store() {
    let fixture = PopulatingFixture::start("64MiB").await;
    let mut pages = 0;
    for length in [0, 1, PAGE - 1, PAGE, PAGE + 1, BLOCK + 1, 4 * BLOCK + 3] {
        let key = format!("ckpt/{length}.bin");
        assert_eq!(fixture.put(&key, 1, length).await, None);
        pages += length.div_ceil(PAGE) as u64;
        fixture.is_read_back(&key, 1, length).await;
        let heads = fixture.cluster.proxy().faults.seen(Op::Head, &key);
        // Of an empty object there are no bytes, and a GET asks for its attributes. No range of it can
        // be had, so a HEAD follows, beside the one for its checksums.
        let heads_max = if length == 0 { 2 } else { 1 };
        assert!(heads <= heads_max, "{heads} questions for the attributes of {key}");
        assert_eq!(fixture.store_gets(&key), usize::from(length == 0), "{key}");
    }
    assert_eq!(fixture.committed_pages().await, pages);
    assert_eq!(fixture.of_workers("verbs3_worker_filled_bytes_total", "").await, 0);
    fixture.nothing_is_staged().await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_in_parts_is_read_back_without_a_byte_of_the_store() {
    let fixture = PopulatingFixture::start("64MiB").await;
    let (part, length) = (5 << 20, (15 << 20) + 77_777);
    let body = content::body("parts", 1, length);
    let parts: Vec<(i32, &[u8])> = (1..).zip(body.chunks(part)).collect();
    fixture.upload("parts", &[parts[1], parts[0], parts[2], parts[3]]).await;
    fixture.is_read_back("parts", 1, length).await;
    assert_eq!(fixture.store_gets("parts"), 0);
    assert_eq!(fixture.committed_pages().await, length.div_ceil(PAGE) as u64);

    // Parts that are no whole number of pages: right bytes, whoever gives them.
    let odd = part + 1000;
    let body = content::body("odd", 2, length);
    let parts: Vec<(i32, &[u8])> = (1..).zip(body.chunks(odd)).collect();
    fixture.upload("odd", &parts).await;
    fixture.is_read_back("odd", 2, length).await;
    fixture.nothing_is_staged().await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_leaves_no_page() {
    let fixture = PopulatingFixture::start("64MiB").await;
    let length = BLOCK + 5;
    let faults = &fixture.cluster.proxy().faults;
    faults.next(1, Op::Put, "refused", Fault::Refused { status: 507, code: "Full" });
    assert!(fixture.put("refused", 1, length).await.is_some());
    faults.next(1, Op::Put, "lost", Fault::AnswerLost);
    assert!(fixture.put("lost", 1, length).await.is_some());
    faults.next(1, Op::Put, "cut", Fault::BodyCut { after: PAGE });
    assert!(fixture.put("cut", 1, length).await.is_some());
    let wrong =
        fixture.writer.put_object().bucket(&fixture.bucket).key("wrong").checksum_crc32("AAAAAA==");
    let wrong = wrong.body(content::body("wrong", 1, length).into()).send().await;
    assert!(wrong.is_err(), "its checksum is another's");
    fixture.nothing_is_staged().await;
    assert_eq!(fixture.committed_pages().await, 0);
    assert_eq!(faults.struck(), 3);
    // The store has what was lost, and its bytes come from there.
    fixture.is_read_back("lost", 1, length).await;
    assert!(fixture.of_workers("verbs3_worker_filled_bytes_total", "").await > 0);
    for absent in ["refused", "cut", "wrong"] {
        assert_eq!(
            reading::get(&fixture.reader, &fixture.bucket, absent).await.status(),
            Some(404)
        );
    }
    fixture.cluster.stop().await.unwrap();
}

/// A refused overwrite must not show, and an accepted one must.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overwrite_shows_when_the_store_has_it_and_not_before() {
    let fixture = PopulatingFixture::start("64MiB").await;
    let length = BLOCK + 5;
    assert_eq!(fixture.put("k", 1, length).await, None);
    fixture.is_read_back("k", 1, length).await;
    let faults = &fixture.cluster.proxy().faults;
    faults.next(1, Op::Put, "/k", Fault::Refused { status: 503, code: "SlowDown" });
    assert!(fixture.put("k", 2, length).await.is_some());
    fixture.is_read_back("k", 1, length).await;
    assert_eq!(fixture.put("k", 3, length).await, None);
    fixture.is_read_back("k", 3, length).await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_of_one_key_are_never_mixed() {
    let fixture = PopulatingFixture::start("64MiB").await;
    let length = 2 * BLOCK + 5;
    for round in 0..8 {
        let (one, other) = (2 * round, 2 * round + 1);
        let (first, second) = tokio::join!(
            reading::put(&fixture.writer, &fixture.bucket, "k", one, length),
            reading::put(&fixture.reader, &fixture.bucket, "k", other, length),
        );
        assert_eq!((first, second), (None, None));
        let seen = reading::get(&fixture.reader, &fixture.bucket, "k").await;
        let version = match seen.is_whole("k", one, length) {
            Ok(()) => one,
            Err(_) => other,
        };
        seen.is_whole("k", version, length).unwrap();
        let again = reading::get(&fixture.writer, &fixture.bucket, "k").await;
        again.is_whole("k", version, length).unwrap();
    }
    assert!(fixture.committed_pages().await > 0);
    fixture.nothing_is_staged().await;
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_are_full_or_take_nothing_change_no_write() {
    for staged_max in ["0B", "1MiB"] {
        let fixture = PopulatingFixture::start(staged_max).await;
        let length = 4 * BLOCK;
        assert_eq!(fixture.put("k", 1, length).await, None);
        fixture.is_read_back("k", 1, length).await;
        let most = 1 << 20;
        assert!(
            fixture.of_workers("verbs3_worker_staged_bytes", "").await <= WORKERS as u64 * most
        );
        fixture.cluster.stop().await.unwrap();
    }
}
