//! `verbs3 dev` as a process.
#![allow(clippy::unwrap_used)]

mod processes;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use aws_sdk_s3::presigning::PresigningConfig;
use processes::{Process, dev_key, get, get_object, put_object, run, text, verbs3, wait_until};

fn start(folder: &Path, words: &[&str]) -> Process {
    // Of three workers, each one has room for an object of 9 MB, which lies with one of them.
    let small = ["--set", "worker.memory.capacity=96MiB", "--set", "gateway.memory.capacity=32MiB"];
    Process::start_dev(folder, "dev", &[&small[..], words].concat())
}

#[tokio::test]
async fn objects_and_credentials_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut dev = start(folder.path(), &[]);
    let (access, secret) = dev_key(&folder.path().join("data"));
    let client = dev.client(&access, &secret);
    let body: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    put_object(&client, "demo", "a/b", body.clone()).await;
    client.create_bucket().bucket("another").send().await.unwrap();
    put_object(&client, "another", "x", b"y").await;
    assert_eq!(dev.end(), Some(0));

    let dev = start(folder.path(), &[]);
    assert_eq!(dev_key(&folder.path().join("data")), (access.clone(), secret.clone()));
    let client = dev.client(&access, &secret);
    let found = client.get_object().bucket("demo").key("a/b").send().await.unwrap();
    assert_eq!(found.body.collect().await.unwrap().to_vec(), body);
    let buckets = client.list_buckets().send().await.unwrap();
    let names: Vec<&str> = buckets.buckets().iter().filter_map(|bucket| bucket.name()).collect();
    assert_eq!(names, ["another", "demo"]);
}

#[tokio::test]
async fn a_second_read_hits_shared_memory_with_any_number_of_workers() {
    for workers in ["1", "3"] {
        let folder = tempfile::tempdir().unwrap();
        let dev = start(folder.path(), &["--workers", workers]);
        let (access, secret) = dev_key(&folder.path().join("data"));
        let client = dev.client(&access, &secret);
        let body = vec![7; 9_000_000];
        put_object(&client, "demo", "k", body.clone()).await;
        let first = get_object(&client, "demo", "k").await;
        assert!(first.head.contains("x-verbs3-cache: miss"), "{}", first.head);
        let second = get_object(&client, "demo", "k").await;
        assert!(second.head.contains("x-verbs3-cache: hit"), "{}", second.head);
        assert!(second.head.contains("x-verbs3-transport: shm"), "{}", second.head);
        assert!(first.body == body && second.body == body);

        let metrics = get(&dev.admin, "/metrics");
        let metrics = text(&metrics.body);
        let arenas = metrics
            .lines()
            .filter(|line| line.starts_with("verbs3_arena_bytes{") && line.contains("capacity"));
        assert_eq!(arenas.count().to_string(), workers, "{metrics}");
        assert_eq!(metrics.matches("# TYPE verbs3_arena_bytes ").count(), 1, "{metrics}");
    }
}

/// Gateway and worker end together, so the worker leases it what is hot.
#[tokio::test]
async fn a_gateway_serves_a_hot_small_object_until_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let soon = ["--set", "worker.leases.quiet_for=0s", "--set", "worker.leases.reads_min=2"];
    let dev = start(folder.path(), &soon);
    let (access, secret) = dev_key(&folder.path().join("data"));
    let client = dev.client(&access, &secret);
    for version in 1..=5 {
        let body = vec![version; 4096];
        put_object(&client, "demo", "k", body.clone()).await;
        let began = Instant::now();
        loop {
            let read = get_object(&client, "demo", "k").await;
            assert_eq!(read.body, body, "{}", read.head);
            if read.head.contains("x-verbs3-transport: gateway") {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{}", read.head);
        }
    }
}

#[test]
fn admin_endpoints_answer_and_a_taken_port_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dev = start(folder.path(), &[]);
    assert_eq!(get(&dev.admin, "/healthz").status, 200);
    assert_eq!(get(&dev.admin, "/readyz").status, 200);
    assert_eq!(get(&dev.admin, "/nothing").status, 404);

    let other = folder.path().join("other");
    let second =
        run(&["dev", "--no-demo", "--dir", other.to_str().unwrap(), "--listen", &dev.listen]);
    let complaint = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{complaint}");
    assert!(
        complaint.contains(&dev.listen) && complaint.contains("another process"),
        "{complaint}"
    );

    let same = run(&[
        "dev",
        "--no-demo",
        "--dir",
        folder.path().join("data").to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
    ]);
    let complaint = text(&same.stderr);
    assert_eq!(same.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("open in another process"), "{complaint}");
}

#[test]
fn the_demonstration_shows_misses_then_hits_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let demonstrate = || {
        let words =
            ["dev", "--demo-only", "--listen", "127.0.0.1:0", "--dir", dir.to_str().unwrap()];
        // Patience for a machine that is busy with other tests: a worker that is slow there is no
        // reason to warn of.
        let patient = [
            "first_progress=200s",
            "idle=200s",
            "hedge_after=50s",
            "announce_deadline=200s",
            "report_deadline=200s",
        ];
        let patient =
            patient.iter().flat_map(|set| ["--set".to_owned(), format!("gateway.tier.{set}")]);
        let output = verbs3().args(words).args(patient).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        (text(&output.stdout), text(&output.stderr))
    };
    let (first, log) = demonstrate();
    assert!(first.contains("565 written now"), "{first}");
    let row = |text: &str, name: &str| {
        text.lines().find(|line| line.trim().starts_with(name)).unwrap().to_owned()
    };
    assert!(row(&first, "cold").ends_with("565 miss"), "{first}");
    assert!(
        row(&first, "hot").ends_with("565 hit") && row(&first, "hot").contains(" 0 B "),
        "{first}"
    );
    assert!(!log.contains("ERROR") && !log.contains("\"level\":\"WARN\""), "{log}");
    let (again, _) = demonstrate();
    assert!(again.contains("kept from before"), "{again}");
}

#[tokio::test]
async fn the_first_signal_drains_requests_and_the_second_ends_at_once() {
    for patient in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut dev = start(folder.path(), &["--set", "process.drain_for=600s"]);
        let (access, secret) = dev_key(&folder.path().join("data"));
        let client = dev.client(&access, &secret);
        let expires = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
        let signed =
            client.put_object().bucket("demo").key("slow").presigned(expires).await.unwrap();
        let path = signed.uri().split_once(&dev.listen).unwrap().1;
        let mut upload = TcpStream::connect(&dev.listen).unwrap();
        write!(
            upload,
            "PUT {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 4\r\n\r\nhal",
            dev.listen
        )
        .unwrap();
        // Once another request has been answered on a new connection, this one has been accepted.
        get(&dev.listen, "/");
        dev.signal("-INT");
        let began = Instant::now();
        wait_until(|| dev.log().contains("ending"), || dev.log());
        if patient {
            upload.write_all(b"f").unwrap();
            let mut answer = String::new();
            upload.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert_eq!(dev.ended(), Some(0));
        } else {
            dev.signal("-INT");
            assert_eq!(dev.ended(), Some(1));
            assert!(began.elapsed() < Duration::from_secs(300), "the drain was waited for");
        }
    }
}
