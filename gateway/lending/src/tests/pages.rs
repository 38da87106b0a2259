//! Bodies that clients read in the pages of a worker: what they see, how long it stays, and what a
//! client that keeps it for ever costs.

use std::sync::atomic::Ordering;

use verbs3_lending_client::LentBody;

use super::writes::{put, write};
use super::*;

const PAGE: usize = 256 << 10;
/// Six threads have room for a body each. Longer ones take a second try.
const BODY_MAX: u64 = MIB;

fn read_pages(client: &Arc<LendingClient>, key: &str) -> LentBody {
    let answer = client.read_pages(&get(key), BODY_MAX, go_on).unwrap();
    assert_eq!(answer.head.status, 200);
    answer.body
}

impl TestServer {
    /// Bytes of the arena that somebody keeps.
    fn kept_bytes(&self) -> u64 {
        self.state.arena.arena_usage().loaned_bytes
    }

    /// Writes something else wherever the arena has room.
    fn overwrite_arena(&self) {
        let mut cells = Vec::new();
        while let Some(cell) = self.state.arena.allocate_cell(PAGE) {
            let (mut writer, reader) = cell.split_writer_reader();
            writer.spare_bytes().fill(0xEE);
            writer.publish_bytes(PAGE);
            cells.push(reader);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_every_shape_are_read_where_they_lie() {
    let server = TestServer::start();
    let _offered = server.state.arena.offer_pages().unwrap();
    let client = server.connect().await;
    let in_pages = |bytes: usize| bytes >= 64 << 10;
    blocking(move || {
        for kind in ["pages", "mixed", "bytes"] {
            for bytes in [0, 1, 65_535, 65_536, PAGE, PAGE + 1, 3 * PAGE - 7, 8 * PAGE] {
                let body = read_pages(&client, &format!("{kind}/{bytes}"));
                assert!(body.to_vec() == pattern(bytes), "{kind} {bytes}");
                assert_eq!(
                    body.is_in_pages(),
                    kind != "bytes" && in_pages(bytes),
                    "{kind} {bytes}"
                );
                let segments = (0..body.segment_count()).map(|at| body.locate_segment(at).unwrap());
                assert_eq!(segments.map(|(_, length)| length).sum::<usize>(), bytes);
            }
        }
        // Who did not ask for pages gets none.
        let body = client.read_object(&get("pages/300000"), MIB, go_on).unwrap().body;
        assert!(!body.is_in_pages() && body.to_vec() == pattern(300_000));
    })
    .await;
    server.until(|server| server.kept_bytes() == 0).await;
    assert_eq!(server.metrics.page_loans.get(), 0);
    assert_eq!(server.state.pages.load(Ordering::SeqCst), 64 << 20, "all places are back");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_not_offered_is_copied() {
    let server = TestServer::start();
    let client = server.connect().await;
    let body = blocking(move || read_pages(&client, "pages/300000")).await;
    assert!(!body.is_in_pages() && body.to_vec() == pattern(300_000));
}

/// The one that matters: whatever ends first, bytes that a client looks at stay what they are.
#[tokio::test(flavor = "multi_thread")]
async fn kept_pages_stay_whatever_becomes_of_the_session() {
    let server = TestServer::start();
    let _offered = server.state.arena.offer_pages().unwrap();
    let client = server.connect().await;
    let reader = client.clone();
    let body = blocking(move || read_pages(&reader, "pages/1000000")).await;
    assert!(body.is_in_pages());
    server.overwrite_arena();
    assert!(body.to_vec() == pattern(1_000_000), "while the session goes on");

    server.state.is_welcome.store(false, Ordering::SeqCst);
    let lent_at_most = server.state.memory.load(Ordering::SeqCst) + 8 * MIB as i64;
    server.until(|server| server.state.memory.load(Ordering::SeqCst) == lent_at_most).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.overwrite_arena();
    assert!(body.to_vec() == pattern(1_000_000), "after its end");
    drop(client);
    server.overwrite_arena();
    assert!(body.to_vec() == pattern(1_000_000), "and after that of its client");
    assert!(server.kept_bytes() > 0);
    drop(body);
    server.until(|server| server.kept_bytes() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_keeps_all_it_may_gets_copies() {
    let server = TestServer::start();
    let _offered = server.state.arena.offer_pages().unwrap();
    let client = server.connect().await;
    blocking(move || {
        let mut kept: Vec<_> = (0..8).map(|_| read_pages(&client, "pages/70000")).collect();
        assert!(kept.iter().all(LentBody::is_in_pages));
        let copied = read_pages(&client, "pages/70000");
        assert!(!copied.is_in_pages(), "it has said that it keeps eight");
        kept.pop();
        // The session learns of it by itself.
        let is_lent_again = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            read_pages(&client, "pages/70000").is_in_pages()
        });
        assert!(is_lent_again, "one was given back");
        assert!(copied.to_vec() == pattern(70_000));
    })
    .await;
    server.until(|server| server.kept_bytes() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_bound_of_all_clients_bytes_are_copied() {
    let server = TestServer::start();
    server.state.pages.store(200_000, Ordering::SeqCst);
    let _offered = server.state.arena.offer_pages().unwrap();
    let client = server.connect().await;
    let server_state = server.state.clone();
    blocking(move || {
        let first = read_pages(&client, "pages/150000");
        let second = read_pages(&client, "pages/150000");
        assert!(first.is_in_pages() && !second.is_in_pages());
        assert!(first.to_vec() == second.to_vec());
        // A body for which there is not enough is copied whole, also what was kept already.
        drop(first);
        for bytes in [400_000, 3 * PAGE] {
            let body = read_pages(&client, &format!("pages/{bytes}"));
            assert!(!body.is_in_pages() && body.to_vec() == pattern(bytes));
        }
        server_state.pages.fetch_add(100_000, Ordering::SeqCst);
        let body = read_pages(&client, "pages/400000");
        assert!(!body.is_in_pages() && body.to_vec() == pattern(400_000));
        assert!(read_pages(&client, "pages/262144").is_in_pages());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_given_up_keeps_no_pages() {
    let server = TestServer::start();
    let _offered = server.state.arena.offer_pages().unwrap();
    let client = server.connect().await;
    blocking(move || {
        for _ in 0..40 {
            let mut batch = client.begin_batch();
            for _ in 0..4 {
                batch.add_read_of_pages(&get("pages/500000"), MIB).unwrap();
            }
            let _ = batch.next_answer(go_on).unwrap().unwrap();
        }
        assert!(read_pages(&client, "pages/500000").is_in_pages());
    })
    .await;
    server.until(|server| server.kept_bytes() == 0).await;
}

/// Threads that read at once find each other's messages on one socket.
#[tokio::test(flavor = "multi_thread")]
async fn threads_share_what_was_passed() {
    let server = TestServer::start();
    let client = server.connect().await;
    let arena = server.state.arena.clone();
    blocking(move || {
        for _ in 0..30 {
            // Passed anew in each round, and retired in between.
            let _offered = arena.offer_pages().unwrap();
            std::thread::scope(|scope| {
                for thread in 0..6_usize {
                    let client = &client;
                    scope.spawn(move || {
                        for read in 0..20 {
                            let bytes = PAGE + 1000 * thread + read;
                            let body = read_pages(client, &format!("pages/{bytes}"));
                            assert!(body.to_vec() == pattern(bytes));
                        }
                    });
                }
            });
        }
    })
    .await;
    server.until(|server| server.kept_bytes() == 0).await;
}

/// A worker has several connections, whose memory is one. What is known of the last of them is known
/// of all.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_read_however_reads_and_writes_follow_each_other() {
    let server = TestServer::start();
    let _first = server.state.arena.offer_pages().unwrap();
    for round in 0..20 {
        let _other = server.state.arena.offer_pages().unwrap();
        let client = server.connect().await;
        blocking(move || {
            // The read that is given up may leave the message about its memory in the socket.
            let mut batch = client.begin_batch();
            batch.add_read(&get("bytes/1"), 4096).unwrap();
            batch.add_read_of_pages(&get("pages/500000"), MIB).unwrap();
            batch.next_answer(go_on).unwrap().unwrap();
            drop(batch);
            if round % 2 == 0 {
                assert_eq!(write(&client, &put("between"), b"bytes", go_on).unwrap(), 200);
            }
            let body = read_pages(&client, "pages/500000");
            assert!(body.is_in_pages() && body.to_vec() == pattern(500_000));
        })
        .await;
    }
    server.until(|server| server.kept_bytes() == 0).await;
}

/// The memory that an answer is named by stays known until the answer is returned.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_retired_behind_the_last_answer_in_it() {
    let server = TestServer::start();
    let client = server.connect().await;
    let _first = server.state.arena.offer_pages().unwrap();
    let arena = server.state.arena.clone();
    let reader = client.clone();
    let kept = blocking(move || {
        let last = arena.offer_pages().unwrap();
        let body = read_pages(&reader, "pages/500000");
        let known = Arc::downgrade(&last);
        drop(last);
        assert!(known.upgrade().is_none(), "an answer keeps no connection");
        body
    })
    .await;
    // Long enough for the gateway to retire what is gone.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    blocking(move || {
        for _ in 0..3 {
            let body = read_pages(&client, "pages/500000");
            assert!(body.is_in_pages() && body.to_vec() == pattern(500_000));
        }
        assert!(kept.to_vec() == pattern(500_000));
    })
    .await;
    server.until(|server| server.kept_bytes() == 0).await;
}

/// A client does not keep the memory of a worker that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_gone_is_unmapped_at_the_next_read() {
    let server = TestServer::start();
    let offered = server.state.arena.offer_pages().unwrap();
    let inode = rustix::fs::fstat(offered.memory_fd()).unwrap().st_ino.to_string();
    let mappings = move || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count()
    };
    let client = server.connect().await;
    let reader = client.clone();
    let kept = blocking(move || read_pages(&reader, "pages/500000")).await;
    let both = mappings();
    drop(offered);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let reader = client.clone();
    blocking(move || read_pages(&reader, "bytes/10")).await;
    assert_eq!(mappings(), both, "a body lies there");
    drop(kept);
    server.until(|server| server.kept_bytes() == 0).await;
    for _ in 0..100 {
        let reader = client.clone();
        blocking(move || read_pages(&reader, "bytes/10")).await;
        if mappings() == both - 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the client still maps what is gone");
}
