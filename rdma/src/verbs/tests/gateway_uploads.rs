//! A client of another party that puts objects through a running gateway, which reads them out of its
//! memory, on real kernel verbs. What is stored is compared by the step `s3_over_rdma` of
//! tests/testbed/vm-system.sh, at the store, with what is written down here.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::client_memory::{Client, pattern};
use super::gateway_client::{ControlAnswer, PreparedSession, SessionWish, from_step, order_by};

/// Writes down what has to be at the store: `KEY SHA256`, or `KEY absent`.
fn note_object(key: &str, content: Option<&[u8]>) {
    let mut line = format!("{key} ");
    match content {
        Some(content) => line += &hex::encode(Sha256::digest(content)),
        None => line += "absent",
    }
    line.push('\n');
    let mut list = OpenOptions::new().create(true).append(true).open(from_step("UPLOADS")).unwrap();
    list.write_all(line.as_bytes()).unwrap();
}

fn session_of(
    client: Client,
    key: &str,
    bytes: usize,
    plain: &[(&str, String)],
) -> PreparedSession {
    let (operation, target) = ("PUT", format!("/demo/{key}"));
    PreparedSession::prepare(SessionWish { client, operation, target, offset: 0, bytes }, plain)
}

fn upload(key: &str, content: &[u8]) -> PreparedSession {
    session_of(Client::with_content(content.to_vec()), key, content.len(), &[])
}

/// Has a session's memory read from its beginning.
fn order(session: &PreparedSession) -> JoinHandle<ControlAnswer> {
    order_by(session.ready_fields(session.client.place_at(0)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a gateway and an RDMA device: the step s3_over_rdma of tests/testbed/vm-suite.sh"]
async fn gateway_client_stores_every_byte_of_its_memory() {
    let piece = 256 << 10;
    for bytes in [
        1,
        2,
        1_023,
        4_096,
        4_097,
        65_537,
        piece - 1,
        piece,
        piece + 1,
        8 * piece + 1,
        (8 << 20) - 3,
        9_000_001,
        64 << 20,
    ] {
        let (key, content) = (format!("up/{bytes}"), pattern(bytes, bytes as u64));
        let session = upload(&key, &content);
        let answer = order(&session).join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert_eq!(answer.field("bytes-transferred"), bytes.to_string());
        assert!(answer.field("etag").starts_with('"'));
        assert!(session.client.memory == content, "{bytes}: it is read, and no more");
        // It is answered: this memory is nobody's any more.
        drop(session);
        note_object(&key, Some(&content));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a gateway and an RDMA device: the step s3_over_rdma of tests/testbed/vm-suite.sh"]
async fn gateway_client_that_lies_or_goes_stores_nothing() {
    let content = pattern(40 << 20, 11);
    let honest = upload("up/honest", &content[..300_000]);
    let lies = [("key", 0x00ff_ff00, 0), ("end", 0, 4_097), ("address", 0, 1 << 40)];
    for (lie, key_change, address_change) in lies {
        let session = upload(&format!("up/lie-{lie}"), &content[..3 << 20]);
        let mut place = session.client.place_at(0);
        place.key ^= key_change;
        place.address += address_change;
        let answer = order_by(session.ready_fields(place)).join().unwrap();
        assert_eq!(answer.status, 500, "{lie}: {}", answer.head);
        note_object(&format!("up/lie-{lie}"), None);
    }
    // Its memory may be written, and not read.
    let shut = session_of(Client::with_bytes(4_096), "up/shut", 4_096, &[]);
    assert_eq!(order(&shut).join().unwrap().status, 500);
    note_object("up/shut", None);
    let gone = upload("up/gone", &content);
    let answer = order(&gone);
    // In the middle, where it comes to that; it may be over on a fast machine.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(gone);
    match answer.join().unwrap().status {
        200 => note_object("up/gone", Some(&content)),
        status => {
            assert_eq!(status, 500);
            note_object("up/gone", None);
        }
    }
    let never = upload("up/never", &content[..4_096]);
    let fields = never.ready_fields(never.client.place_at(0));
    drop(never);
    let answer = order_by(fields);
    assert_eq!(answer.join().unwrap().status, 500);
    note_object("up/never", None);
    assert_eq!(order(&honest).join().unwrap().status, 200);
    note_object("up/honest", Some(&content[..300_000]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a gateway and an RDMA device: the step s3_over_rdma of tests/testbed/vm-suite.sh"]
async fn gateway_client_that_cancels_stores_all_or_nothing() {
    let content = pattern(64 << 20, 12);
    let mut session = upload("up/cancelled", &content);
    let answer = order(&session);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(session.cancel(), 204);
    // Used for something else at once, as a client may.
    session.client.memory.fill(0xee);
    match answer.join().unwrap().status {
        // It was over before.
        200 => note_object("up/cancelled", Some(&content)),
        status => {
            assert_eq!(status, 409);
            note_object("up/cancelled", None);
        }
    }
    assert_eq!(session.cancel(), 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a gateway and an RDMA device: the step s3_over_rdma of tests/testbed/vm-suite.sh"]
async fn gateway_client_keeps_its_promise_or_stores_nothing() {
    let promise = [("content-md5", "SjCjzCqnwdLrLY1p4Q5Gkg==".to_owned())];
    for (key, content, status) in
        [("up/kept", b"what is written", 200), ("up/broken", b"something else!", 400)]
    {
        let client = Client::with_content(content.to_vec());
        let session = session_of(client, key, content.len(), &promise);
        let answer = order(&session).join().unwrap();
        assert_eq!(answer.status, status, "{}", answer.head);
        note_object(key, (status == 200).then_some(&content[..]));
    }
}
