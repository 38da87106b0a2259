//! Writes from lent memory: every byte once, and none of it after the write is over.

use verbs3_lending_client::{ClientLendingError, LendingClient, WriteWait};
use verbs3_lending_protocol::{LentOutcome, LentPart};

use super::raw_client::RawMemory;
use super::*;

pub(super) fn put(key: &str) -> LentWriteRequest {
    LentWriteRequest {
        bucket: "train".to_owned(),
        key: key.to_owned(),
        part: None,
        headers: vec![("content-type".to_owned(), "a/b".to_owned())],
    }
}

pub(super) fn write(
    client: &Arc<LendingClient>,
    request: &LentWriteRequest,
    body: &[u8],
    poll: impl FnMut() -> Result<(), ClientLendingError>,
) -> Result<u16, ClientLendingError> {
    let mut writer = client.begin_write(body.len() as u64, WriteWait::Long, go_on)?;
    for piece in body.chunks(300_000) {
        writer.append_bytes(piece)?;
    }
    Ok(writer.finish_write(request, poll)?.head.status)
}

/// Errs at the second time that it is asked.
fn soon() -> impl FnMut() -> Result<(), ClientLendingError> {
    let mut polls = 0;
    move || {
        polls += 1;
        if polls > 1 { Err(ClientLendingError::TimedOut) } else { Ok(()) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_every_length_come_whole() {
    let server = TestServer::start();
    let client = server.connect().await;
    let part = LentPart { upload_id: "an upload".to_owned(), number: 7 };
    let of_part = LentWriteRequest { part: Some(part), ..put("part") };
    let lengths = [0, 1, 4095, 4096, 4097, 131_072, 131_073, 1_048_577, 3_000_000];
    let asked = of_part.clone();
    blocking(move || {
        for bytes in lengths {
            for request in [put("object"), asked.clone()] {
                assert_eq!(write(&client, &request, &pattern(bytes), go_on).unwrap(), 200);
            }
        }
        // Its memory is free again: as much as there is, many times over.
        for _ in 0..20 {
            write(&client, &put("long"), &pattern(7_500_000), go_on).unwrap();
        }
    })
    .await;
    let written = server.state.written.lock();
    let mut written = written.iter();
    for bytes in lengths {
        for request in [put("object"), of_part.clone()] {
            assert_eq!(written.next(), Some(&(request, pattern(bytes))), "{bytes}");
        }
    }
    assert!(written.all(|(_, body)| *body == pattern(7_500_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_or_less_than_was_announced_is_not_sent() {
    let server = TestServer::start();
    let client = server.connect().await;
    blocking(move || {
        let mut longer =
            client.begin_write::<ClientLendingError>(5, WriteWait::Long, go_on).unwrap();
        longer.append_bytes(b"abc").unwrap();
        let full = longer.append_bytes(b"def");
        assert!(matches!(full, Err(ClientLendingError::MemoryFull { wanted: 6 })), "{full:?}");
        let short = longer.finish_write(&put("k"), go_on);
        assert!(matches!(short, Err(ClientLendingError::Incomplete)));
        for bytes in [8 * MIB, u64::MAX - 4096, u64::MAX] {
            let full = client
                .begin_write::<ClientLendingError>(bytes, WriteWait::Long, go_on)
                .err()
                .unwrap();
            assert!(matches!(full, ClientLendingError::MemoryFull { .. }), "{full}");
        }
        write(&client, &put("k"), b"after that", go_on).unwrap();
    })
    .await;
    assert_eq!(server.state.written.lock().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_body_is_an_answer_and_ends_the_body() {
    let server = TestServer::start();
    let client = server.connect().await;
    blocking(move || {
        assert_eq!(write(&client, &put("refused"), &pattern(1_000_000), go_on).unwrap(), 403);
    })
    .await;
    assert_no_more_is_taken(&server).await;
}

/// Somebody else holds the body, and its lender has been told that the write is over.
async fn assert_no_more_is_taken(server: &TestServer) {
    let mut kept = server.state.kept.lock().take().unwrap();
    assert!(kept.bytes_left() > 0);
    assert!(kept.frame().await.unwrap().is_err(), "bytes of what may be another body by now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_given_up_ends_at_the_gateway() {
    let server = TestServer::start();
    let client = server.connect().await;
    blocking(move || {
        let gone = write(&client, &put("hang"), &pattern(1_000_000), soon());
        assert!(matches!(gone, Err(ClientLendingError::TimedOut)), "{gone:?}");
        // The same client goes on, by a new connection with new memory.
        assert_eq!(write(&client, &put("next"), b"next", go_on).unwrap(), 200);
        assert!(client.read_object(&get("bytes/100"), 100, go_on).is_ok());
    })
    .await;
    server.until(|server| server.metrics.reads_in_flight.get() == 0).await;
    assert_no_more_is_taken(&server).await;
    let written = server.state.written.lock();
    assert_eq!(written.len(), 1, "it would have been noted at its end");
    assert_eq!(written[0].0.key, "next");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_not_sent_twice_where_the_gateway_goes_away() {
    let server = TestServer::start();
    let client = server.connect().await;
    let writing =
        tokio::task::spawn_blocking(move || write(&client, &put("hang"), &pattern(500_000), go_on));
    server.until(|server| server.state.kept.lock().is_some()).await;
    server.stop.stop.cancel();
    server.stop.cut.cancel();
    let gone = writing.await.unwrap();
    let is_unknown =
        matches!(gone, Err(ClientLendingError::Disconnected | ClientLendingError::Failed));
    assert!(is_unknown, "{gone:?}");
    assert_no_more_is_taken(&server).await;
    assert!(server.state.written.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_given_up_ends_in_a_shutdown_too() {
    let server = TestServer::start();
    let client = server.connect().await;
    let writing = tokio::task::spawn_blocking(move || {
        write(&client, &put("hang"), &pattern(500_000), soon())
    });
    server.until(|server| server.state.kept.lock().is_some()).await;
    server.stop.stop.cancel();
    let gone = writing.await.unwrap();
    assert!(matches!(gone, Err(ClientLendingError::TimedOut)), "{gone:?}");
    server.until(|server| server.metrics.reads_in_flight.get() == 0).await;
    assert_no_more_is_taken(&server).await;
    assert!(server.state.written.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_client_finds_the_gateway_again_before_it_writes() {
    let mut server = TestServer::start();
    let client = server.connect().await;
    server.stop.stop.cancel();
    server.tasks.close();
    server.tasks.wait().await;
    server.stop = LendingStop { stop: CancellationToken::new(), cut: CancellationToken::new() };
    server.serve(LIMITS, server.stop.clone());
    blocking(move || assert_eq!(write(&client, &put("k"), b"again", go_on).unwrap(), 200)).await;
    assert_eq!(server.state.written.lock().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_breaks_down_fails_and_ends_its_body() {
    let server = TestServer::start();
    let client = server.connect().await;
    blocking(move || {
        let failed = write(&client, &put("panic"), &pattern(500_000), go_on);
        assert!(matches!(failed, Err(ClientLendingError::Failed)), "{failed:?}");
        assert_eq!(write(&client, &put("next"), b"next", go_on).unwrap(), 200);
    })
    .await;
    assert_no_more_is_taken(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_reads_share_the_memory_and_wait_for_each_other() {
    let server = TestServer::start();
    let client = server.connect().await;
    let threads: Vec<_> = (0..4_usize)
        .map(|thread| {
            let client = client.clone();
            std::thread::spawn(move || {
                let mut full = 0;
                for round in 0..60 {
                    let bytes = 2_500_000 + 1000 * thread + round;
                    match write(&client, &put("shared"), &pattern(bytes), go_on) {
                        Ok(status) => assert_eq!(status, 200),
                        Err(ClientLendingError::MemoryFull { .. }) => full += 1,
                        Err(error) => panic!("{error}"),
                    }
                    let request = get(&format!("bytes/{bytes}"));
                    match client.read_object(&request, bytes as u64, go_on) {
                        Ok(answer) => assert_eq!(answer.body.to_vec(), pattern(bytes)),
                        Err(ClientLendingError::MemoryFull { .. }) => full += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                full
            })
        })
        .collect();
    let full: usize =
        blocking(move || threads.into_iter().map(|thread| thread.join().unwrap()).sum()).await;
    let written = server.state.written.lock();
    assert!(written.iter().all(|(_, body)| *body == pattern(body.len())));
    assert!(written.len() >= 240 - full, "{} and {full}", written.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_that_lie_elsewhere_are_refused() {
    let server = TestServer::start();
    let socket = server.socket.clone();
    blocking(move || {
        let mut client = RawMemory::lend(&socket, KEY, MIB);
        let request = put("k").encode_request().unwrap();
        for (offset, bytes) in [(MIB, 1), (MIB - 1, 2), (u64::MAX, 2), (0, u64::MAX), (1, MIB)] {
            let mut submission = client.place(&request, 600_000);
            (submission.source_offset, submission.source_bytes) = (offset, bytes);
            client.submit(&submission);
            assert_eq!(client.complete().outcome, LentOutcome::Malformed, "{offset} {bytes}");
        }
    })
    .await;
    assert!(server.state.written.lock().is_empty());
}
