//! An older copy of the store is put back, or the store is emptied, while workers and followers of
//! the map live on.

use std::collections::HashMap;
use std::path::Path;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::MapFollower;
use verbs3_coordinator_client::api::CoordinatorRefusalKind;
use verbs3_coordinator_client::lease_clock::{BootLeaseClock, LeaseClock};
use verbs3_coordinator_client::worker_lease::{WorkerLease, WorkerLeaseDuty};
use verbs3_protocol::MemberRoster;

use super::*;

#[path = "../../../tests/src/folder_copy.rs"]
mod folder_copy;

use folder_copy::copy_folder;

/// Every map that anybody was told of. One epoch has one map.
#[derive(Default)]
struct SeenMaps(Mutex<HashMap<Epoch, MemberRoster>>);

impl SeenMaps {
    fn note_map(&self, map: &MemberRoster) {
        let mut seen = self.0.lock();
        let first = seen.entry(map.epoch).or_insert_with(|| map.clone());
        assert_eq!(first, map, "epoch {} has two maps", map.epoch.0);
    }
}

/// A worker that keeps its lease as a process does, and has no cache.
struct LivingWorker {
    id: &'static str,
    tenure: WorkerLease,
    registered: bool,
    map: Option<MemberRoster>,
}

impl LivingWorker {
    fn new(id: &'static str) -> Self {
        let tenure = WorkerLease::new(registration(id).incarnation);
        Self { id, tenure, registered: false, map: None }
    }

    /// Asks once, and does what it is told to.
    async fn ask(&mut self, client: &CoordinatorClient, seen: &SeenMaps) {
        let sent = BootLeaseClock.latest_now();
        let answer: Result<Option<WorkerLeaseGrant>, AskError> = if self.registered {
            let renewal = WorkerLeaseRenewal { wait_ms: 0, ..self.tenure.next_renewal() };
            client
                .post_json(&format!("/v1/workers/{}/renew", self.id), &renewal, Duration::ZERO)
                .await
        } else {
            let knows = self.tenure.known_epoch();
            let asked = WorkerRegistration { knows, ..registration(self.id) };
            client.post_json("/v1/workers", &asked, Duration::ZERO).await
        };
        match answer {
            Ok(granted) => {
                self.registered = true;
                self.tenure.apply_grant(sent, granted.unwrap()).into_iter().for_each(|duty| {
                    self.perform_duty(duty, seen);
                });
            }
            Err(error) if error.refusal_kind() == Some(CoordinatorRefusalKind::Unknown) => {
                self.registered = false;
            }
            // Nobody leads at this moment, or a map is coming into force.
            Err(AskError::Away(_)) => {}
            Err(error) => panic!("{}: {error}", self.id),
        }
    }

    fn perform_duty(&mut self, duty: WorkerLeaseDuty, seen: &SeenMaps) {
        match duty {
            WorkerLeaseDuty::GiveUp => self.map = None,
            WorkerLeaseDuty::Prepare(epoch) => {
                self.map = None;
                self.tenure.confirm_prepare(epoch, Some(Vec::new()), Duration::ZERO);
            }
            WorkerLeaseDuty::Activate(activation) => {
                let epoch = activation.membership.epoch;
                seen.note_map(&activation.membership);
                self.map = Some(activation.membership);
                self.tenure.confirm_activation(epoch);
            }
            WorkerLeaseDuty::Lease { .. } | WorkerLeaseDuty::Hear(_) => {}
        }
    }
}

/// Has these workers ask until all answer under one map of exactly them that `follows` has, too,
/// and that is later than `before`.
async fn agree(
    workers: &mut [LivingWorker],
    client: &CoordinatorClient,
    seen: &SeenMaps,
    follows: &verbs3_coordinator_client::MapWatch,
    before: Epoch,
) -> MemberRoster {
    let began = Instant::now();
    loop {
        for worker in workers.iter_mut() {
            worker.ask(client, seen).await;
        }
        let followed = follows.borrow().clone();
        followed.iter().for_each(|map| seen.note_map(map));
        if let Some(map) = followed.filter(|map| map.epoch > before)
            && map.members.len() == workers.len()
            && workers.iter().all(|worker| worker.map.as_ref() == Some(&*map))
        {
            return MemberRoster::clone(&map);
        }
        assert!(began.elapsed() < SOON, "not all agree on a map later than {before:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Replaces the store's content: by `copy`, or by nothing.
async fn put_back(folder: &tempfile::TempDir, copy: Option<&Path>) {
    // Nobody has it open any more.
    drop(file_store_again(folder).await);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }
    if let Some(copy) = copy {
        copy_folder(copy, folder.path());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_store_that_is_put_back_never_gives_one_epoch_two_maps() {
    let (folder, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = copies.path().join("copy");
    let mut running = start(file_store(&folder)).await;
    let address = running.url.trim_start_matches("http://").to_owned();
    let client = client(&[&running.url], secret());
    let (follower, follows) = MapFollower::new(client.clone());
    let stop = CancellationToken::new();
    let following = tokio::spawn(follower.run(stop.clone()));
    let seen = SeenMaps::default();

    let mut workers = vec![LivingWorker::new("a"), LivingWorker::new("b")];
    let saved = agree(&mut workers, &client, &seen, &follows, Epoch(0)).await;
    running.coordinator.shutdown().await;
    drop(running);
    drop(file_store_again(&folder).await);
    copy_folder(folder.path(), &copy);

    running = start_at(&address, file_store_again(&folder).await, |_| {}).await;
    for id in ["c", "d"] {
        workers.push(LivingWorker::new(id));
        agree(&mut workers, &client, &seen, &follows, saved.epoch).await;
    }
    let mut last = follows.borrow().as_ref().unwrap().epoch;

    // Another member than the copy's has joined in each of these lives.
    for (kept, id) in [(Some(&*copy), "e"), (None, "f"), (Some(&*copy), "g")] {
        running.coordinator.shutdown().await;
        drop(running);
        put_back(&folder, kept).await;
        running = start_at(&address, file_store_again(&folder).await, |_| {}).await;
        workers.push(LivingWorker::new(id));
        last = agree(&mut workers, &client, &seen, &follows, last).await.epoch;
    }
    stop.cancel();
    following.await.unwrap();
    running.coordinator.shutdown().await;
}
