//! Tests a process that is killed at any moment. What it acknowledged is there, what it did not
//! finish is not, and its leftovers are cleared away.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;

/// Tells this test binary that it is the one to be killed, and where to write.
const ROOT: &str = "VERBS3_LOCAL_CRASH_ROOT";
const SEED: &str = "VERBS3_LOCAL_CRASH_SEED";

/// Not a test: what the killed process does. Prints a line for each operation that begins and each
/// that is acknowledged.
#[test]
#[ignore = "run by acknowledged_writes_survive_kill_9 in a process of its own"]
fn the_process_that_is_killed() {
    let (Ok(root), Ok(seed)) = (std::env::var(ROOT), std::env::var(SEED)) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(Path::new(&root));
        let seed: u64 = seed.parse().unwrap();
        let tasks = (0..4u64).map(|task| tokio::spawn(write_for_ever(store.clone(), task, seed)));
        futures::future::join_all(tasks).await;
    });
}

/// Each task has keys of its own, so that the order of acknowledgements is the order of writes.
async fn write_for_ever(store: LocalStore, task: u64, seed: u64) {
    for n in 1u64.. {
        let (key, value) = (format!("k{task}-{}", n % 5), seed + n);
        let len = len_of(value);
        // A delete shows as 0.
        say(&format!("begin {key} {}", if n % 4 == 0 { 0 } else { value }));
        match n % 4 {
            0 => {
                delete(&store, &key).await;
                say(&format!("done {key} 0"));
                continue;
            }
            1 => {
                let id = start_upload(&store, &key).await;
                let part = upload_part(&store, &key, &id, 1, content(value, len)).await.unwrap();
                complete(&store, &key, &id, vec![part]).await.unwrap();
            }
            _ => put(&store, &key, content(value, len)).await.unwrap(),
        }
        say(&format!("done {key} {value}"));
    }
}

/// At least eight, so that every object names its value.
fn len_of(value: u64) -> usize {
    8 + (value as usize * 7919) % 200_000
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[tokio::test]
async fn acknowledged_writes_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    drop(open_with_bucket(folder.path()).await);
    // Per key, the last acknowledged value (0 is absent), and the value under way.
    let mut known: BTreeMap<String, (u64, Option<u64>)> = BTreeMap::new();
    for round in 0..8u64 {
        let lines = run_and_kill(folder.path(), round * 1_000_000, 40 + round as usize * 37);
        for line in lines {
            let mut words = line.split(' ');
            let (Some(verb), Some(key), Some(value)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(value) = value.parse() else { continue };
            let entry = known.entry(key.to_owned()).or_default();
            match verb {
                "begin" => entry.1 = Some(value),
                "done" => *entry = (value, None),
                _ => {}
            }
        }
        let store = open(folder.path());
        for (key, (acknowledged, under_way)) in &mut known {
            let found = match get(&store, key).await {
                Ok(bytes) => {
                    let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    assert_eq!(bytes.len(), len_of(value), "half an object: {key}");
                    assert!(bytes == content(value, bytes.len()), "mixed bytes: {key}");
                    value
                }
                Err(e) => {
                    assert_eq!(e.code().as_str(), "NoSuchKey", "{key}");
                    0
                }
            };
            // A write in flight may have either outcome, and no third.
            let allowed = found == *acknowledged || Some(found) == *under_way;
            assert!(
                allowed,
                "{key} is {found}, acknowledged {acknowledged}, under way {under_way:?}, round \
                {round}"
            );
            (*acknowledged, *under_way) = (found, None);
        }
        drop(store);
    }
    assert!(known.len() >= 8, "the process did too little: {known:?}");
}

/// Runs the writing process, kills it after some lines, and returns all that it said.
fn run_and_kill(root: &Path, seed: u64, lines: usize) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tests::crash::the_process_that_is_killed", "--nocapture"])
        .env(ROOT, root)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut out: Vec<String> = said.by_ref().take(lines).map(Result::unwrap).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    // Read what it printed before it died. A torn last line has no newline and may be cut.
    out.extend(said.map_while(Result::ok));
    out
}

#[tokio::test]
async fn leftovers_of_a_killed_process_are_swept() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    put(&store, "k", content(1, 1000)).await.unwrap();
    let kept = blobs(folder.path());
    let beside = kept[0].parent().unwrap().to_owned();
    drop(store);
    // Simulates a death before these were committed.
    fs::write(beside.join("00000000aa"), b"half a body").unwrap();
    fs::write(beside.join("00000000ab"), b"").unwrap();

    let store = open(folder.path());
    assert_eq!(blobs(folder.path()), kept);
    assert!(get(&store, "k").await.unwrap() == content(1, 1000));
}

#[tokio::test]
async fn garbage_left_by_a_killed_process_is_removed_later() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_bucket(folder.path()).await;
    put(&store, "k", content(1, 2_000_000)).await.unwrap();
    let reading = start_get(&store, "k").await.unwrap();
    delete(&store, "k").await;
    drop(store);
    // The reader kept the file in place while the store closed: what is left is a garbage row and
    // its file.
    assert_eq!(blobs(folder.path()).len(), 1);
    drop(reading);
    let _store = open(folder.path());
    until("removal after the restart", || blobs(folder.path()).is_empty()).await;
}
