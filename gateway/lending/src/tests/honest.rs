//! What honest clients see: every byte, errors that say what is wrong, and a gateway that comes
//! back.

use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;
use verbs3_lending_client::{ClientLendingError, LendingClient};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_every_length_land_whole() {
    let server = TestServer::start();
    let client = server.connect().await;
    blocking(move || {
        for bytes in [0, 1, 4095, 4096, 4097, 100_000, 1_048_577, 3_000_000] {
            let request = get(&format!("bytes/{bytes}"));
            // A body that is longer than expected takes a second try.
            for expected in [bytes as u64, 1] {
                let answer = client.read_object(&request, expected, go_on).unwrap();
                assert_eq!(answer.head.status, 200);
                assert_eq!(answer.body.to_vec(), pattern(bytes), "{bytes}");
                let length = answer.head.headers.iter().find(|(name, _)| name == "content-length");
                assert_eq!(length.unwrap().1, bytes.to_string().into_bytes());
            }
        }
    })
    .await;
    server.until(|server| server.metrics.reads_in_flight.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_share_a_client_and_mix_nothing_up() {
    let server = TestServer::start();
    let client = server.connect().await;
    let threads: Vec<_> = (0..6_usize)
        .map(|thread| {
            let client = client.clone();
            std::thread::spawn(move || {
                for round in 0..200 {
                    let bytes = 1000 * thread + round;
                    let request = get(&format!("bytes/{bytes}"));
                    let answer = client.read_object(&request, bytes as u64, go_on).unwrap();
                    assert_eq!(answer.body.to_vec(), pattern(bytes));
                }
            })
        })
        .collect();
    blocking(move || threads.into_iter().for_each(|thread| thread.join().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_answered_whole_though_it_is_larger_than_the_ring() {
    let server = TestServer::start_with(|limits| limits.reads_in_flight_max = 3);
    let client = server.connect().await;
    let seen = blocking(move || {
        let mut batch = client.begin_batch();
        for read in 0..100 {
            batch.add_read(&get(&format!("bytes/{read}")), 4096).unwrap();
        }
        let mut seen = Vec::new();
        while let Some(answer) = batch.next_answer(go_on).unwrap() {
            assert_eq!(answer.answer.body.to_vec(), pattern(answer.index));
            seen.push(answer.index);
        }
        seen.sort_unstable();
        seen
    })
    .await;
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    assert!(server.metrics.reads_saturated.get() > 0, "the bound was reached");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_place_serves_many_submissions_without_a_pause() {
    let server = TestServer::start_with(|limits| limits.reads_in_flight_max = 1);
    let client = server.connect().await;
    let reads = blocking(move || {
        let mut batch = client.begin_batch();
        for _ in 0..200 {
            batch.add_read(&get("bytes/10"), 10).unwrap();
        }
        let mut answers = 0;
        while batch.next_answer(go_on).unwrap().is_some() {
            answers += 1;
        }
        assert_eq!(answers, 200);
    });
    // Nobody wakes who waits for the session's look, once a second.
    tokio::time::timeout(Duration::from_secs(60), reads).await.expect("reads wait for a look");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_in_use_is_not_used_again() {
    let server = TestServer::start();
    let client = server.connect().await;
    blocking(move || {
        let request = get("bytes/1000000");
        let mut held = Vec::new();
        let full = loop {
            match client.read_object(&request, 1_000_000, go_on) {
                Ok(answer) => held.push(answer),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, ClientLendingError::MemoryFull { .. }), "{full}");
        assert!(held.len() >= 6, "{}", held.len());
        assert!(held.iter().all(|answer| answer.body.to_vec() == pattern(1_000_000)));
        held.pop();
        assert!(client.read_object(&request, 1_000_000, go_on).is_ok());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_given_up_keeps_its_memory_until_it_has_landed() {
    let server = TestServer::start();
    let client = server.connect().await;
    let given_up = client.clone();
    blocking(move || {
        let mut polls = 0;
        let gone = given_up.read_object(&get("hang/4000000"), 4_000_000, || {
            polls += 1;
            if polls > 1 { Err(ClientLendingError::TimedOut) } else { Ok(()) }
        });
        assert!(matches!(gone, Err(ClientLendingError::TimedOut)));
        let mut polls = 0;
        let other = given_up.read_object(&get("bytes/5000000"), 5_000_000, || {
            polls += 1;
            if polls > 9 { Err(ClientLendingError::TimedOut) } else { Ok(()) }
        });
        assert!(matches!(other, Err(ClientLendingError::TimedOut)), "its range is busy");
    })
    .await;
    server.until(|server| server.state.hanging.load(Ordering::SeqCst) == 1).await;
    server.state.gate.add_permits(1);
    server.until(|server| server.metrics.reads_in_flight.get() == 0).await;
    blocking(move || {
        let answer = client.read_object(&get("bytes/5000000"), 5_000_000, go_on).unwrap();
        assert_eq!(answer.body.to_vec(), pattern(5_000_000));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_reads_are_tried_again_and_then_given_up() {
    let server = TestServer::start();
    let client = server.connect().await;
    blocking(move || {
        for key in ["cut/1000", "panic"] {
            let failed = client.read_object(&get(key), 4096, go_on);
            assert!(matches!(failed, Err(ClientLendingError::Failed)), "{key}");
        }
        assert!(client.read_object(&get("bytes/10"), 4096, go_on).is_ok(), "no slot is lost");
    })
    .await;
    server.until(|server| server.metrics.reads_in_flight.get() == 0).await;
    assert_eq!(server.state.nonces.lock().len(), 1, "the connection is still the first one");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_repeated_on_a_gateway_that_has_come_back() {
    let server = TestServer::start();
    let client = server.connect().await;
    let before = client.clone();
    let held = blocking(move || before.read_object(&get("bytes/5000"), 5000, go_on).unwrap()).await;
    let reader = client.clone();
    let waiting =
        std::thread::spawn(move || reader.read_object(&get("hang/7000"), 7000, go_on).unwrap());
    server.until(|server| server.state.hanging.load(Ordering::SeqCst) == 1).await;
    server.stop.stop.cancel();
    server.stop.cut.cancel();
    server.until(|server| server.state.hanging.load(Ordering::SeqCst) == 0).await;
    server.until(|server| !server.socket.exists()).await;
    let stop = LendingStop { stop: CancellationToken::new(), cut: CancellationToken::new() };
    server.serve(LIMITS, stop);
    server.state.gate.add_permits(1);
    let answer = blocking(move || waiting.join().unwrap()).await;
    assert_eq!(answer.body.to_vec(), pattern(7000));
    assert_eq!(held.body.to_vec(), pattern(5000), "what was read before stays as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_reads_under_way() {
    let server = TestServer::start();
    let client = server.connect().await;
    let waiting = std::thread::spawn(move || client.read_object(&get("hang/9000"), 9000, go_on));
    server.until(|server| server.state.hanging.load(Ordering::SeqCst) == 1).await;
    server.stop.stop.cancel();
    server.state.gate.add_permits(1);
    let answer = blocking(move || waiting.join().unwrap()).await.unwrap();
    assert_eq!(answer.body.to_vec(), pattern(9000));
    server.tasks.close();
    server.tasks.wait().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_why() {
    let server = TestServer::start();
    let mut options = server.options();
    options.memory_bytes = 65 * MIB;
    let refused = blocking(move || LendingClient::connect(options)).await.unwrap_err();
    assert!(refused.to_string().contains("larger than one client may lend"), "{refused}");
    let mut options = server.options();
    options.access_key = "AKSTRANGER".to_owned();
    let refused = blocking(move || LendingClient::connect(options)).await.unwrap_err();
    assert!(refused.to_string().contains("no such access key"), "{refused}");
    server.state.memory.store(MIB as i64, Ordering::SeqCst);
    let options = server.options();
    let refused = blocking(move || LendingClient::connect(options)).await.unwrap_err();
    assert!(refused.to_string().contains("all clients together"), "{refused}");
    server.until(|server| server.state.memory.load(Ordering::SeqCst) == MIB as i64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_client_gives_its_place_back_though_bodies_are_left() {
    let server = TestServer::start();
    let client = server.connect().await;
    let held = blocking(move || client.read_object(&get("bytes/5000"), 5000, go_on).unwrap()).await;
    server.until(|server| server.state.memory.load(Ordering::SeqCst) == 256 << 20).await;
    assert_eq!(held.body.to_vec(), pattern(5000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_nobody_answers_is_given_up() {
    let server = TestServer::start();
    let mut options = server.options();
    // Also what it waits for an answer of the handshake.
    options.read_for = Duration::from_secs(2);
    let client = blocking(move || LendingClient::connect(options)).await.unwrap();
    blocking(move || {
        let late = client.read_object(&get("hang/100"), 4096, go_on);
        assert!(matches!(late, Err(ClientLendingError::TimedOut)), "{late:?}");
        // Its place is free again; a slow machine may take longer than this client waits.
        let again = || client.read_object(&get("bytes/10"), 4096, go_on);
        let served = (0..200).any(|_| match again() {
            Ok(_) => true,
            Err(error) => {
                assert!(matches!(error, ClientLendingError::TimedOut), "{error:?}");
                false
            }
        });
        assert!(served, "no read succeeds after one that was given up");
    })
    .await;
    server.until(|server| server.state.hanging.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_accepts_nobody_is_not_waited_for() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let mut options = server.options();
    options.socket = folder.path().join("stopped.sock");
    options.read_for = Duration::from_millis(200);
    let stopped = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&stopped, &SocketAddrUnix::new(&options.socket).unwrap()).unwrap();
    listen(&stopped, 0).unwrap();
    blocking(move || {
        // The first takes the one place in the queue, and hears nothing; the second finds none.
        let _first = std::os::unix::net::UnixStream::connect(&options.socket).unwrap();
        let refused = LendingClient::connect(options).unwrap_err();
        assert!(matches!(refused, ClientLendingError::Unavailable { .. }), "{refused}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_one_connection_wait_for_each_others_room() {
    let server = TestServer::start();
    let client = server.connect().await;
    // 8 slots, and room for 3 bodies of 2 MB.
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || {
                for _ in 0..20 {
                    let answer = client.read_object(&get("bytes/1000"), 2_000_000, go_on).unwrap();
                    assert_eq!(answer.body.to_vec(), pattern(1000));
                }
            })
        })
        .collect();
    blocking(move || threads.into_iter().for_each(|thread| thread.join().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_heads_are_answered_in_their_order() {
    let server = TestServer::start_with(|limits| limits.reads_in_flight_max = 3);
    let client = server.connect().await;
    blocking(move || {
        let objects: Vec<(String, String)> = (0..1000)
            .map(|at| {
                let kind = if at % 3 == 0 { "missing" } else { "there" };
                let long = "k".repeat(at % 300);
                (["train", "eval"][at / 7 % 2].to_owned(), format!("{kind}/{at}/{long}"))
            })
            .collect();
        let statuses = client.head_statuses(&objects, go_on).unwrap();
        let heads = client.head_objects(&objects, go_on).unwrap();
        assert_eq!((statuses.len(), heads.len()), (1000, 1000));
        for (at, (bucket, key)) in objects.iter().enumerate() {
            let expected = if key.starts_with("missing") { 404 } else { 200 };
            assert_eq!((statuses[at], heads[at].status), (expected, expected), "{key}");
            let header = |name| heads[at].headers.iter().find(|(other, _)| other == name).unwrap();
            assert_eq!(header("x-key").1, key.as_bytes());
            assert_eq!(header("x-bucket").1, bucket.as_bytes());
        }
        assert!(client.head_statuses(&[], go_on).unwrap().is_empty());
        let endless = [("train".to_owned(), "k".repeat(5000))];
        let refused = client.head_statuses(&endless, go_on).unwrap_err();
        assert!(matches!(refused, ClientLendingError::TooLong), "{refused}");
        // An answer that does not fit its list is none.
        let short = ["short", "a"].map(|key| ("train".to_owned(), key.to_owned()));
        let failed = client.head_statuses(&short, go_on).unwrap_err();
        assert!(matches!(failed, ClientLendingError::Failed), "{failed}");
    })
    .await;
    server.until(|server| server.metrics.reads_in_flight.get() == 0).await;
}
