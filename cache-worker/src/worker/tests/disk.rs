//! The disk tier behind a worker: what a restart finds, what memory gives up, what a bad disk
//! costs.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use tempfile::TempDir;
use verbs3_protocol::{BlockGeometry, ByteRange, CacheVerdict, ReadSource, RefusalKind};
use verbs3_rdma::inprocess::InProcessMode;

use super::holding_store::{HoldingStore, Stored};
use super::worker_fixture::{
    BLOCK, PAGE, WorkerFixture, disk_folder, map, modes, object, open, read, read_from, version,
    with_disk,
};
use crate::metrics::PageFound;
use crate::worker::{CacheWorker, WorkerAskers, WorkerComponents, WorkerError};
use crate::{DiskError, WorkerVolumes};
use verbs3_settings::{ByteSize, TimePeriod};

const ALL: Option<ByteRange> = Some(ByteRange::All);

/// A worker with a disk of 64 MiB and this much memory.
fn new_fixture(
    folder: &TempDir,
    store: &Arc<HoldingStore>,
    mode: InProcessMode,
    mebibytes: usize,
) -> WorkerFixture {
    WorkerFixture::before(store.clone(), mode, mebibytes, with_disk(folder.path(), 64))
}

fn disk(fixture: &WorkerFixture) -> &crate::disk::DiskTier {
    fixture.worker.pages.filler.disk_tier().unwrap()
}

/// Objects of some sizes, some in several blocks.
fn objects() -> Vec<(String, Stored)> {
    let sizes = [1, 5000, PAGE - 1, PAGE, 3 * PAGE + 17, BLOCK + PAGE / 2, 2 * BLOCK];
    sizes
        .iter()
        .enumerate()
        .map(|(n, &bytes)| (format!("k{n}"), Stored::new(n as u64 + 1, bytes)))
        .collect()
}

async fn read_all(fixture: &WorkerFixture, objects: &[(String, Stored)]) -> Vec<CacheVerdict> {
    let mut verdicts = Vec::new();
    for (key, stored) in objects {
        let first = fixture.open(open(key, ALL)).await;
        assert_eq!(first.refused(), None, "{key}");
        verdicts.push(first.verdict());
        let mut bytes = first.bytes;
        while (bytes.len() as u64) < stored.bytes {
            let at = bytes.len() as u64;
            let end = (stored.bytes - at / BLOCK * BLOCK).min(BLOCK) as u32;
            let got = fixture
                .read(read(key, stored, (at / BLOCK) as u32, (at % BLOCK) as u32..end))
                .await;
            verdicts.push(got.verdict());
            bytes.extend(got.bytes);
        }
        assert!(bytes == stored.content(0..stored.bytes), "{key} has other bytes");
    }
    verdicts
}

/// What a worker that has read all objects leaves behind when it ends in order.
async fn left_on_disk(mode: InProcessMode) -> (TempDir, Arc<HoldingStore>, Vec<(String, Stored)>) {
    let (folder, store, objects) =
        (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()), objects());
    objects.iter().for_each(|(key, stored)| store.put(key, stored.clone()));
    let first = new_fixture(&folder, &store, mode, 128);
    read_all(&first, &objects).await;
    first.worker.shutdown().await;
    (folder, store, objects)
}

#[tokio::test]
async fn a_restart_keeps_pages_and_no_attributes() {
    for (mode, orderly) in modes().into_iter().zip([true, false]) {
        let (folder, store, objects) =
            (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()), objects());
        objects.iter().for_each(|(key, stored)| store.put(key, stored.clone()));
        let first = new_fixture(&folder, &store, mode.clone(), 128);
        assert!(read_all(&first, &objects).await.contains(&CacheVerdict::Miss));
        if orderly {
            first.assert_nothing_leaked().await;
        } else {
            // What a killed process has written is all there is.
            disk(&first).settle();
            first.worker.stop_without_a_word();
            drop(first);
        }
        let (bytes, (gets, heads)) = (store.body_bytes(), store.asked());
        let second = new_fixture(&folder, &store, mode, 128);
        let verdicts = read_all(&second, &objects).await;
        assert!(verdicts.iter().all(|&verdict| verdict == CacheVerdict::Hit), "{verdicts:?}");
        assert_eq!(store.body_bytes(), bytes, "the store was read again");
        assert_eq!(
            store.asked(),
            (gets, heads + objects.len()),
            "each object's attributes are asked once"
        );
        second.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn an_object_changed_while_the_worker_was_away_is_read_anew() {
    let (folder, store, objects) = left_on_disk(InProcessMode::Share).await;
    // Of the same length, so that nothing but the version tells them apart.
    let changed: Vec<(String, Stored)> = objects
        .iter()
        .map(|(key, stored)| (key.clone(), Stored::new(stored.seed + 100, stored.bytes)))
        .collect();
    changed.iter().for_each(|(key, stored)| store.put(key, stored.clone()));
    let second = new_fixture(&folder, &store, InProcessMode::Share, 128);
    let verdicts = read_all(&second, &changed).await;
    assert!(verdicts.iter().all(|&verdict| verdict == CacheVerdict::Miss), "{verdicts:?}");
}

#[tokio::test]
async fn pages_without_a_place_in_memory_are_read_from_disk() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()));
    let objects: Vec<(String, Stored)> =
        (0..24).map(|n| (format!("k{n}"), Stored::new(n + 1, 4 * PAGE))).collect();
    objects.iter().for_each(|(key, stored)| store.put(key, stored.clone()));
    let fixture = new_fixture(&folder, &store, InProcessMode::Share, 8);
    for object in objects.chunks(1) {
        read_all(&fixture, object).await;
        disk(&fixture).settle();
    }
    let bytes = store.body_bytes();
    for _ in 0..2 {
        let verdicts = read_all(&fixture, &objects).await;
        assert!(verdicts.iter().all(|&verdict| verdict == CacheVerdict::Hit), "{verdicts:?}");
    }
    assert_eq!(store.body_bytes(), bytes);
    let memory = fixture.worker.pages.filler.memory_tier().held_totals().1;
    assert!(memory <= 8 << 20, "{memory}");
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn readers_of_one_page_share_its_way_from_disk() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()));
    let stored = Stored::new(1, BLOCK);
    store.put("k", stored.clone());
    let first = new_fixture(&folder, &store, InProcessMode::Share, 128);
    read_all(&first, &[("k".into(), stored.clone())]).await;
    first.worker.shutdown().await;
    drop(first);
    let fixture = Arc::new(new_fixture(&folder, &store, InProcessMode::Share, 128));
    let got = join_all(
        (0..50u32).map(|at| fixture.read(read("k", &stored, 0, at * 1000..at * 1000 + 3_000_000))),
    )
    .await;
    for (at, got) in (0..50u64).zip(got) {
        assert!(got.bytes == stored.content(at * 1000..at * 1000 + 3_000_000));
        assert_eq!(got.verdict(), CacheVerdict::Hit);
    }
    assert_eq!(fixture.worker.metrics.pages[PageFound::Disk].get(), 12);
    assert_eq!(fixture.worker.metrics.pages[PageFound::Missed].get(), 0);
}

/// Overwrites what lies after the tables of headers.
fn spoil(folder: &Path, every: u64) {
    for entry in std::fs::read_dir(folder.join("tier")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("segment-") {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            for at in (150_000..file.metadata().unwrap().len()).step_by(every as usize) {
                file.write_all_at(b"rot", at).unwrap();
            }
        }
    }
}

/// What a replica's disk could not give was once asked of the UFS, which may have another version
/// by then.
#[tokio::test]
async fn a_replica_with_corrupt_pages_sends_readers_to_the_owner() {
    let (folder, store, objects) = left_on_disk(InProcessMode::Share).await;
    spoil(folder.path(), 4096);
    let fixture = new_fixture(&folder, &store, InProcessMode::Share, 128);
    let (key, stored) = objects.last().unwrap();
    let before = (store.asked(), store.body_bytes());
    let of_block = |block| read(key, stored, block, 0..BLOCK as u32);
    let got = fixture.ask(read_from(ReadSource::Replica, of_block(0))).await;
    assert_eq!(got.refused(), Some(&RefusalKind::NotHeld));
    assert_eq!((store.asked(), store.body_bytes()), before);
    // Who may fill does so, though it joins the replica's way to the disk.
    let block_1 = read_from(ReadSource::Replica, of_block(1));
    let (_, filled) = tokio::join!(fixture.ask(block_1), fixture.read(of_block(1)));
    assert!(filled.bytes == stored.content(BLOCK..2 * BLOCK), "{:?}", filled.refused());
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn rotten_pages_are_filled_again_and_never_served() {
    for (mode, every) in modes().into_iter().zip([4096, 700_000]) {
        let (folder, store, objects) = left_on_disk(mode.clone()).await;
        spoil(folder.path(), every);
        let fixture = new_fixture(&folder, &store, mode, 128);
        let before = store.body_bytes();
        read_all(&fixture, &objects).await;
        assert!(store.body_bytes() > before, "nothing was filled again");
        // What was filled again is on disk again.
        disk(&fixture).settle();
        let bytes = store.body_bytes();
        fixture.assert_nothing_leaked().await;
        let again = self::new_fixture(&folder, &store, InProcessMode::Share, 128);
        let verdicts = read_all(&again, &objects).await;
        assert!(verdicts.iter().all(|&verdict| verdict == CacheVerdict::Hit), "{verdicts:?}");
        assert_eq!(store.body_bytes(), bytes);
    }
}

#[tokio::test]
async fn segments_that_are_gone_or_cut_short_cost_a_fill_and_no_more() {
    let (folder, store, objects) = left_on_disk(InProcessMode::Share).await;
    let fixture = new_fixture(&folder, &store, InProcessMode::Share, 128);
    for entry in std::fs::read_dir(folder.path().join("tier")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("segment-") {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        }
    }
    read_all(&fixture, &objects).await;
    fixture.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_scan_does_not_drive_out_what_is_read_again() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()));
    let hot: Vec<(String, Stored)> =
        (0..16).map(|n| (format!("hot{n}"), Stored::new(n + 1, 4 * PAGE))).collect();
    let scan: Vec<(String, Stored)> =
        (0..80).map(|n| (format!("scan{n}"), Stored::new(n + 100, 4 * PAGE))).collect();
    hot.iter().chain(&scan).for_each(|(key, stored)| store.put(key, stored.clone()));
    let fixture = new_fixture(&folder, &store, InProcessMode::Share, 8);
    for _ in 0..4 {
        for one in hot.chunks(1) {
            read_all(&fixture, one).await;
            disk(&fixture).settle();
        }
    }
    for one in scan.chunks(1) {
        read_all(&fixture, one).await;
        disk(&fixture).settle();
    }
    let bytes = store.body_bytes();
    read_all(&fixture, &hot).await;
    assert_eq!(
        store.body_bytes(),
        bytes,
        "a scan of more than the disk holds drove out what was read four times"
    );
}

#[tokio::test]
async fn a_queue_that_is_full_drops_pages_and_delays_nobody() {
    let (folder, store, objects) =
        (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()), objects());
    objects.iter().for_each(|(key, stored)| store.put(key, stored.clone()));
    let mut worker = with_disk(folder.path(), 64);
    let disk = &mut worker.settings.disk;
    (disk.queue_max, disk.write_rate_max) = (ByteSize(PAGE), ByteSize(1));
    disk.flush_max = TimePeriod::from_seconds(0);
    let fixture = WorkerFixture::before(store, InProcessMode::Share, 32, worker);
    let reading = tokio::time::timeout(Duration::from_secs(20), read_all(&fixture, &objects)).await;
    assert!(reading.is_ok(), "readers waited for a disk that takes a byte a second");
    tokio::time::timeout(Duration::from_secs(20), fixture.worker.shutdown())
        .await
        .expect("the end waited for the disk");
}

#[tokio::test]
async fn a_version_can_be_pinned() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()));
    let stored = Stored::new(1, BLOCK + 1);
    store.put("k", stored.clone());
    let fixture = new_fixture(&folder, &store, InProcessMode::Share, 128);
    let until = SystemTime::now() + Duration::from_secs(1000);
    assert_eq!(
        fixture.worker.pin_version(&object("k"), &version(&stored), Some(until)),
        0,
        "nothing is there yet"
    );
    read_all(&fixture, &[("k".into(), stored.clone())]).await;
    disk(&fixture).settle();
    assert_eq!(fixture.worker.pin_version(&object("k"), &version(&stored), Some(until)), 17);
    assert_eq!(
        fixture.worker.pin_version(&object("k"), &version(&Stored::new(2, BLOCK)), Some(until)),
        0
    );
    assert_eq!(fixture.worker.pin_version(&object("k"), &version(&stored), None), 17);
}

#[tokio::test]
async fn a_second_worker_on_a_folder_is_refused() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()));
    let _first = new_fixture(&folder, &store, InProcessMode::Share, 128);
    let registry = prometheus::Registry::new();
    let components = WorkerComponents {
        geometry: BlockGeometry::DEFAULT,
        askers: WorkerAskers::Any,
        arena: map(8),
        volumes: WorkerVolumes::default(),
    };
    let second = CacheWorker::new(&with_disk(folder.path(), 64).settings, components, &registry);
    assert!(matches!(second.err(), Some(WorkerError::Disk(DiskError::InUse { .. }))));
}

#[tokio::test]
async fn pages_spread_over_folders_and_a_lost_folder_costs_its_own() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(HoldingStore::default()));
    let objects: Vec<(String, Stored)> =
        (0..24).map(|n| (format!("k{n}"), Stored::new(n + 1, PAGE + n))).collect();
    objects.iter().for_each(|(key, stored)| store.put(key, stored.clone()));
    let start = || {
        let mut worker = with_disk(folder.path(), 64);
        worker.settings.disk.folders.push(disk_folder(folder.path(), "other", 64));
        WorkerFixture::before(store.clone(), InProcessMode::Share, 128, worker)
    };
    let first = start();
    read_all(&first, &objects).await;
    first.worker.shutdown().await;
    drop(first);
    std::fs::remove_dir_all(folder.path().join("other")).unwrap();
    let second = start();
    let bytes = store.body_bytes();
    read_all(&second, &objects).await;
    // Each page falls to one of the two by chance: all to the same one in 8 million tries once.
    let again = store.body_bytes() - bytes;
    assert!((PAGE..24 * PAGE).contains(&again), "{again} bytes were read again");
    second.assert_nothing_leaked().await;
}
