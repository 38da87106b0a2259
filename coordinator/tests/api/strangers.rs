//! Tests what strangers can do who do not know the secret, but may have recorded proofs: nothing,
//! and not for long.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use verbs3_coordinator_client::proof::{ProvenRequest, REQUEST_HEADER, wall_clock_ms};

use super::refused::{EVENT, unproven};
use super::*;

async fn connect(url: &str) -> TcpStream {
    TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap()
}

/// Returns when the other side has closed.
async fn closed(mut socket: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let read = socket.read_to_end(&mut rest);
    let _ = timeout(SOON, read).await.expect("the connection is cut");
    rest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_that_was_heard_is_of_no_use_elsewhere_or_later() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (one, other) = (start(file_store(&folders[0])).await, start(file_store(&folders[1])).await);
    let asking = client(&[&one.url], secret());
    register(&asking, "a").await;
    // Replays of repeatable requests at their recipient pass the proof: 400, since the body does
    // not fit the route.
    let path = "/v1/workers/a/relay";
    let said = ProvenRequest { method: "POST", path_and_query: path, body: EVENT.as_bytes() };
    let (proof, _) =
        secret().prove_request(said, &asking.known_recipient(&one.url).unwrap(), wall_clock_ms());
    let header = format!("{REQUEST_HEADER}: {proof}\r\n");
    assert_eq!(unproven(&one.url, "POST", path, &header).await, 400);
    assert_eq!(unproven(&other.url, "POST", path, &header).await, 401, "at another coordinator");
    one.coordinator.shutdown().await;
    drop(one.coordinator);
    let address = one.url.strip_prefix("http://").unwrap();
    let again = start_at(address, file_store_again(&folders[0]).await, |_| {}).await;
    assert_eq!(unproven(&again.url, "POST", path, &header).await, 401, "after a restart");
    // A client with the secret goes on, and notices nothing.
    register(&asking, "a").await;
    again.coordinator.shutdown().await;
    other.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_is_read_before_a_proof() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let wrong = format!("1.{0}.{0}.{1}.{1}", "0".repeat(32), "0".repeat(64));
    for header in [String::new(), format!("{REQUEST_HEADER}: {wrong}\r\n")] {
        let mut socket = connect(&running.url).await;
        let head = format!(
            "POST /v1/workers HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n{header}\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        // Nothing follows, and the answer comes all the same.
        let mut answer = [0; 12];
        timeout(SOON, socket.read_exact(&mut answer)).await.expect("an answer").unwrap();
        assert_eq!(&answer, b"HTTP/1.1 401");
    }
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_proves_nothing_is_cut_and_who_has_proved_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let change = |options: &mut CoordinatorOptions| {
        options.settings.proof_deadline = TimePeriod::from_seconds(1)
    };
    let running = start_at("127.0.0.1:0", file_store(&folder), change).await;
    let asking = client(&[&running.url], secret());
    register(&asking, "a").await;
    let (mut trickle, silent) = (connect(&running.url).await, connect(&running.url).await);
    let trickled = async {
        while trickle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // A question that waits for longer than a stranger may stay.
    let waiting = renew(&asking, "a", Epoch(0), Epoch(0), Duration::from_secs(3));
    let (trickled, silent, waited) = tokio::join!(timeout(SOON, trickled), closed(silent), waiting);
    assert!(trickled.is_ok() && silent.is_empty() && waited.is_ok(), "{waited:?}");
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let mut strangers = Vec::new();
    for _ in 0..150 {
        strangers.push(connect(&running.url).await);
    }
    // As soon as they have been there for a second.
    register(&client(&[&running.url], secret()), "a").await;
    running.coordinator.shutdown().await;
}
