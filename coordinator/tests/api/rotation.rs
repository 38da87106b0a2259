//! Changes the cluster's secret while everybody asks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use verbs3_coordinator::CoordinatorError;

use super::*;

fn numbered(number: u32) -> ClusterSecret {
    ClusterSecret::new("tests", &format!("secret number {number} of the tests of rotation"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_changed_under_load_and_no_request_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (numbered(1), numbered(2));
    let server = ClusterSecrets::from(old.clone());
    let held = server.clone();
    let running =
        start_at("127.0.0.1:0", file_store(&folder), |options| options.secrets = held).await;
    // Each process has its own copy of the files, which change at other times.
    let processes: Vec<ClusterSecrets> =
        (0..4).map(|_| ClusterSecrets::from(old.clone())).collect();
    register(&client(&[&running.url], processes[0].clone()), "a").await;
    let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load: Vec<_> = processes
        .iter()
        .map(|secrets| {
            let asking = client(&[&running.url], secrets.clone());
            let (over, asked) = (over.clone(), asked.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let view: Option<ClusterView> =
                        asking.get("/v1/cluster", Duration::ZERO).await.unwrap();
                    assert!(view.is_some());
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let both = || vec![old.clone(), new.clone()];
    for (used, accepted) in [(&old, both()), (&new, both()), (&new, Vec::new())] {
        for secrets in processes.iter().chain([&server]) {
            secrets.replace_secrets(used.clone(), accepted.clone());
            let before = asked.load(Ordering::Relaxed);
            // Those that were under way at the change, and as many again.
            while asked.load(Ordering::Relaxed) < before + 20 {
                assert!(load.iter().all(|asking| !asking.is_finished()), "a request failed");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    over.store(true, Ordering::Relaxed);
    for asking in load {
        asking.await.unwrap();
    }
    // The old one is over.
    let error = client(&[&running.url], old)
        .get::<ClusterView>("/v1/cluster", Duration::ZERO)
        .await
        .unwrap_err();
    assert!(matches!(error, AskError::Away(_)), "{error}");
    running.coordinator.shutdown().await;
}

#[tokio::test]
async fn a_store_is_claimed_anew_when_the_secret_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (numbered(1), numbered(2));
    let secrets = ClusterSecrets::from(old.clone());
    let (held, store) = (secrets.clone(), file_store(&folder));
    let running = start_at("127.0.0.1:0", store.clone(), |options| options.secrets = held).await;
    secrets.replace_secrets(new.clone(), vec![old]);
    // The claim is written soon. A coordinator that knows the new secret alone then starts.
    let began = Instant::now();
    loop {
        let options = CoordinatorOptions {
            secrets: new.clone().into(),
            ..options("tests", "http://127.0.0.1:1".to_owned())
        };
        let store = store.clone();
        match CoordinatorServer::new(options, store, &Registry::new()).await {
            Ok(_) => break,
            Err(CoordinatorError::Claim(_)) if began.elapsed() < SOON => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    running.coordinator.shutdown().await;
}
