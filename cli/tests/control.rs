//! Jobs and the control API as people meet them first: over the `verbs3 dev` of the folder that
//! they are in.
#![allow(clippy::unwrap_used)]

mod processes;

use std::path::Path;
use std::process::Output;

use aws_sdk_s3::Client;
use processes::{
    Process, dev_key, get, get_object, mount_of_all, put_object, text, verbs3, wait_until,
    write_config,
};

const OBJECTS: usize = 12;
const BYTES: usize = 300_000;

fn start(folder: &Path) -> (Process, Client) {
    start_with(folder, "0B")
}

/// With so much of a disk tier.
fn start_with(folder: &Path, disk: &str) -> (Process, Client) {
    let mut command = verbs3();
    let small = ["--set", "worker.memory.capacity=64MiB", "--set", "gateway.memory.capacity=32MiB"];
    command
        .current_dir(folder)
        .args(["dev", "--no-demo", "--listen", "127.0.0.1:0", "--workers", "2"])
        .args(small);
    command.args(["--set", &format!("dev.disk={disk}")]);
    let dev = Process::start_command(folder, "dev", command);
    let (access, secret) = dev_key(&folder.join(".verbs3"));
    let client = dev.client(&access, &secret);
    (dev, client)
}

/// In the folder, without a word about whom to ask.
fn said(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        verbs3().current_dir(folder).args(words).output().unwrap();
    (status.code(), format!("{}\n{}", text(&stdout), text(&stderr)))
}

/// Until the exit status is 0, or for some minutes.
fn until_good(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut shown = said(folder, words);
    for _ in 0..1800 {
        if shown.0 == Some(0) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        shown = said(folder, words);
    }
    shown
}

fn content(number: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at.wrapping_mul(31) + number) as u8).collect()
}

async fn put(client: &Client, number: usize) {
    put_object(client, "demo", &format!("set/{number:02} x"), content(number)).await;
}

#[tokio::test]
async fn a_prefix_is_loaded_inspected_and_evicted_with_dev_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (mut dev, client) = start(at);
    for number in 0..OBJECTS {
        put(&client, number).await;
    }
    let (code, shown) =
        said(at, &["preload", "s3://demo/set/", "--id", "first", "--follow", "--verify"]);
    assert!(code == Some(0) && shown.contains("job first: done"), "{shown}");
    for number in 0..OBJECTS {
        let answer = get_object(&client, "demo", &format!("set/{number:02} x")).await;
        assert!(
            answer.body == content(number) && answer.head.contains("x-verbs3-cache: hit"),
            "{}",
            answer.head
        );
    }
    // The same by the S3 endpoint, with an access key: its jobs alone.
    let by_key = |words: &[&str]| {
        let (access, secret) = dev_key(&at.join(".verbs3"));
        let endpoint = format!("http://{}", dev.listen);
        let Output { status, stdout, stderr } = verbs3()
            .arg("preload")
            .args(words)
            .args(["--endpoint", &endpoint])
            .env("AWS_ACCESS_KEY_ID", access)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .output()
            .unwrap();
        (status.code(), format!("{}\n{}", text(&stdout), text(&stderr)))
    };
    let (code, shown) = by_key(&["s3://demo/set/", "--id", "own", "--follow", "--verify"]);
    assert!(code == Some(0) && shown.contains("job own: done"), "{shown}");
    let (_, shown) = by_key(&["ls"]);
    assert!(shown.contains("own") && !shown.contains("first"), "{shown}");
    let (code, shown) = by_key(&["show", "first"]);
    assert!(code == Some(2) && shown.contains("there is no job first"), "{shown}");
    let (code, shown) = by_key(&["stop", "first"]);
    assert!(code == Some(2) && shown.contains("there is no job first"), "{shown}");
    let (code, shown) = by_key(&["s3://demo/", "--id", "first"]);
    assert!(code == Some(2) && shown.contains("another id"), "{shown}");
    let (code, shown) = by_key(&["s3://demo/", "--priority", "high"]);
    assert!(code == Some(2) && shown.contains("priority low or normal"), "{shown}");
    let (_, shown) = said(at, &["preload", "ls"]);
    assert!(shown.contains("own") && shown.contains("first"), "{shown}");
    let (code, shown) = said(at, &["cache", "where", "s3://demo/set/03 x"]);
    assert!(
        code == Some(0) && shown.contains("dev-") && !shown.contains("nothing is cached"),
        "{shown}"
    );
    // Its workers join a moment after it serves.
    let (code, shown) = until_good(at, &["status"]);
    assert!(code == Some(0) && shown.contains("2 of 2 workers serve"), "{shown}");

    let (code, shown) = said(at, &["cache", "evict", "s3://demo/set/", "--follow"]);
    assert!(code == Some(0) && shown.contains("given up"), "{shown}");
    let (_, shown) = said(at, &["cache", "where", "s3://demo/set/03 x"]);
    assert!(shown.contains("nothing is cached"), "{shown}");
    let (code, shown) = said(at, &["cache", "pin", "s3://demo/set/", "--ttl", "60", "--follow"]);
    assert!(code == Some(1) && shown.contains("no disk tier"), "{shown}");
    let (code, shown) = said(at, &["cache", "where", "s3://demo/none"]);
    assert!(code == Some(2) && shown.contains("there is no object"), "{shown}");

    // What a job was is known after a restart, also after a sudden one.
    dev.signal("-KILL");
    dev.ended();
    let (mut dev, _) = start(at);
    let (_, shown) = until_good(at, &["preload", "ls"]);
    assert!(shown.contains("first") && shown.contains("done"), "{shown}");
    let metrics = text(&get(&dev.admin, "/metrics").body);
    assert!(
        metrics.contains("verbs3_coordinator_") && metrics.contains("verbs3_preload_"),
        "{metrics}"
    );
    assert_eq!(dev.end(), Some(0));
}

/// Of one object, of all workers: its bytes, those on disk, and those of them that are pinned.
fn on_disk(folder: &Path, object: &str) -> (u64, u64, u64) {
    let (code, shown) = until_good(folder, &["cache", "where", object, "--json"]);
    assert_eq!(code, Some(0), "{shown}");
    let view: serde_json::Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    let places = || {
        view["blocks"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|block| block["places"].as_array().unwrap())
    };
    let sum = |name: &str| places().map(|place| place[name].as_u64().unwrap()).sum();
    (view["bytes"].as_u64().unwrap(), sum("disk_bytes"), sum("pinned_bytes"))
}

#[tokio::test]
async fn pinned_objects_stay_on_disk_through_a_kill_until_unpinned() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (mut dev, client) = start_with(at, "256MiB");
    for number in 0..OBJECTS {
        put(&client, number).await;
    }
    let (all, object, bytes) = ("s3://demo/set/", "s3://demo/set/03 x", BYTES as u64);
    let (code, shown) = said(
        at,
        &[
            "preload",
            all,
            "--tier",
            "disk",
            "--pin-ttl",
            "3600",
            "--id",
            "first",
            "--follow",
            "--verify",
        ],
    );
    assert!(code == Some(0) && shown.contains("job first: done"), "{shown}");
    assert_eq!(on_disk(at, object), (bytes, bytes, bytes));

    dev.signal("-KILL");
    dev.ended();
    let (mut dev, client) = start_with(at, "256MiB");
    assert_eq!(on_disk(at, object), (bytes, bytes, bytes), "pins outlive their worker");
    for number in 0..OBJECTS {
        let answer = get_object(&client, "demo", &format!("set/{number:02} x")).await;
        assert!(
            answer.body == content(number) && answer.head.contains("x-verbs3-cache: hit"),
            "{}",
            answer.head
        );
    }

    let (code, shown) = said(at, &["cache", "unpin", all, "--follow"]);
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(on_disk(at, object), (bytes, bytes, 0));
    let (code, shown) = said(at, &["cache", "pin", all, "--ttl", "3600", "--follow"]);
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(on_disk(at, object), (bytes, bytes, bytes));
    let (code, shown) = said(at, &["cache", "evict", all, "--follow"]);
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(on_disk(at, object), (bytes, 0, 0));
    assert_eq!(dev.end(), Some(0));
}

/// The store's own folder is changed under a gateway that believes what it knows for an hour.
#[tokio::test]
async fn what_was_changed_past_the_gateway_is_seen_when_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (mut store, direct) = start(at);
    let (access, secret) = dev_key(&at.join(".verbs3"));
    let beside = tempfile::tempdir().unwrap();
    let config = format!(
        "{}attributes_ttl = \"1h\"\n\
         [gateway]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nidentities = \"{}\"\nmemory = {{ capacity = \"32MiB\" }}\n\
         tier = {{ hedge_after = \"59s\", first_progress = \"60s\", idle = \"60s\" }}\n\
         [worker]\nmemory = {{ capacity = \"32MiB\" }}\n[dev]\ndemo = false\ndir = \"{}\"\n",
        mount_of_all(&store, (&access, &secret)),
        at.join(".verbs3/identities.toml").display(),
        beside.path().join(".verbs3").display(),
    );
    write_config(beside.path(), "cache", &config);
    let mut command = verbs3();
    command.current_dir(beside.path()).args(["dev", "--config", "cache.toml"]);
    let mut dev = Process::start_command(beside.path(), "cache", command);
    let client = dev.client(&access, &secret);
    let read =
        async |number: usize| get_object(&client, "demo", &format!("set/{number:02} x")).await.body;
    let change = async |number: usize, to: usize| {
        put_object(&direct, "demo", &format!("set/{number:02} x"), content(to)).await;
    };
    for number in 0..4 {
        change(number, number).await;
        assert!(read(number).await == content(number));
        change(number, number + 50).await;
        assert!(read(number).await == content(number), "an hour is not over");
    }
    let (code, shown) =
        said(beside.path(), &["cache", "invalidate", "--path", "s3://demo/set/00 x"]);
    assert!(code == Some(0), "{shown}");
    assert!(read(0).await == content(50) && read(1).await == content(1));
    let event = r#"{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"demo"},"object":{"key":"set/01+x"}}}]}"#;
    std::fs::write(beside.path().join("event.json"), event).unwrap();
    let (code, shown) = said(beside.path(), &["cache", "notify", "event.json", "--warm"]);
    assert!(
        code == Some(0) && shown.contains("1 objects") && shown.contains("notified-"),
        "{shown}"
    );
    assert!(read(1).await == content(51) && read(2).await == content(2));
    let (code, shown) = said(beside.path(), &["cache", "invalidate", "s3://demo/set/"]);
    assert!(code == Some(0), "{shown}");
    assert!(read(2).await == content(52) && read(3).await == content(53));
    assert_eq!((dev.end(), store.end()), (Some(0), Some(0)));
}

/// One worker has no next owner beside it, and lacks none.
#[test]
fn dev_as_it_starts_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = verbs3();
    command.current_dir(folder.path()).args(["dev", "--no-demo", "--listen", "127.0.0.1:0"]);
    command.args([
        "--set",
        "worker.memory.capacity=32MiB",
        "--set",
        "gateway.memory.capacity=32MiB",
    ]);
    let mut dev = Process::start_command(folder.path(), "dev", command);
    let status = || said(folder.path(), &["status"]);
    let serves = || {
        let (code, shown) = status();
        code == Some(0) && shown.contains("1 of 1 workers serve")
    };
    wait_until(serves, || status().1);
    assert_eq!(dev.end(), Some(0));
}
