//! A store in a folder is whole after kill -9 at any instant, and keeps what was acknowledged.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use verbs3_coordinator::store::file::FileStore;
use verbs3_coordinator::store::{
    ClusterStore, ClusterStoreError, ClusterStoreRevision, EntryPrecondition,
};

const CHILD: &str = "VERBS3_TEST_STORE_FOLDER";
const KEYS: u64 = 5;

fn content(key: u64, number: u64) -> Bytes {
    Bytes::from(format!("{key}:{number}:").repeat(1 + (number % 700) as usize))
}

/// Runs in a process of its own: writes for ever, and says what is done.
#[tokio::test]
async fn writes_until_it_is_killed() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let store = FileStore::open_folder(folder.as_ref()).unwrap();
    for number in 0u64.. {
        let key = number % KEYS;
        let revision = store
            .put_entry(&format!("k{key}"), content(key, number), EntryPrecondition::Any, None)
            .await
            .unwrap();
        println!("DONE {key} {number} {}", revision.0);
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_and_nothing_is_torn() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = ClusterStoreRevision(0);
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let wait = Duration::from_millis(rand::rng().random_range(100..400));
        let (first_done, writes) = std::sync::mpsc::channel();
        let killer = std::thread::spawn(move || {
            // However long the start takes. An error: it has ended by itself, or hangs.
            let _ = writes.recv_timeout(Duration::from_secs(120));
            std::thread::sleep(wait);
            child.kill().unwrap();
            child.wait().unwrap();
        });
        let mut done: HashMap<u64, (u64, u64)> = HashMap::new();
        for line in output.lines() {
            let line = line.unwrap();
            let Some(at) = line.find("DONE ") else { continue };
            let words: Vec<u64> =
                line[at + 5..].split(' ').filter_map(|word| word.parse().ok()).collect();
            if let [key, number, revision] = words[..] {
                done.insert(key, (number, revision));
                let _ = first_done.send(());
            }
        }
        drop(first_done);
        killer.join().unwrap();
        let store = FileStore::open_folder(folder.path()).unwrap();
        for (key, (number, revision)) in &done {
            let entry = store.get_entry(&format!("k{key}")).await.unwrap().unwrap();
            assert!(
                entry.revision >= ClusterStoreRevision(*revision),
                "round {round}: an acknowledged write is lost"
            );
            let text = String::from_utf8(entry.value.to_vec()).unwrap();
            let found: u64 = text.split(':').nth(1).unwrap().parse().unwrap();
            assert!(found >= *number && entry.value == content(*key, found), "round {round}: torn");
        }
        let next =
            store.put_entry("next", Bytes::new(), EntryPrecondition::Any, None).await.unwrap();
        assert!(next > last && done.values().all(|(_, revision)| next.0 > *revision));
        last = next;
    }
    assert!(
        std::fs::read_dir(folder.path().join("entries")).unwrap().count() > 1,
        "too little happened"
    );
}

#[tokio::test]
async fn damage_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open_folder(folder.path()).unwrap();
    store
        .put_entry("map", Bytes::from_static(b"precious"), EntryPrecondition::Any, None)
        .await
        .unwrap();
    drop(store);
    let path = folder.path().join("entries/map");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut error = FileStore::open_folder(folder.path()).err().unwrap();
    // A process that another case is just starting holds what this one had open, until it is
    // another program.
    while error.to_string().contains("another coordinator") {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        error = FileStore::open_folder(folder.path()).err().unwrap();
    }
    assert!(
        matches!(&error, ClusterStoreError::Damaged { damage, .. }
            if damage.to_string().contains("entries/map")),
        "{error}"
    );
}

#[test]
fn a_second_process_is_kept_out() {
    let folder = tempfile::tempdir().unwrap();
    let _store = FileStore::open_folder(folder.path()).unwrap();
    let error = FileStore::open_folder(folder.path()).err().unwrap();
    assert!(error.to_string().contains("another coordinator"), "{error}");
}
