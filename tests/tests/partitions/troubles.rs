//! What is done to a cluster while it is written and read, and the consequence that each trouble
//! must have.

use std::time::SystemTime;

use rand::RngExt;
use rand::rngs::SmallRng;
use verbs3_tests::history::History;
use verbs3_tests::metrics::eventually;
use verbs3_tests::spread_cluster::{LEADERSHIP, SpreadCluster};
use verbs3_tests::starved::Starved;

use super::SECOND;

/// What is done to the cluster while it is written and read.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// Neither hears the other; the worker and the gateways do.
    WorkerFromCoordinators,
    /// The coordinators hear the worker; it does not hear them.
    WorkerDeafToCoordinators,
    CoordinatorsDeafToWorker,
    GatewayFromWorker,
    /// The worker hears the gateway, which hears no answer.
    GatewayDeafToWorker,
    /// Who relays what the gateway can't say itself is gone in the middle of it.
    GatewayFromWorkerAndKillLeader,
    GatewayFromCoordinators,
    WorkerFromAll,
    /// Its cable is out.
    WorkerLinkDown,
    LeaderFromEtcd,
    LeaderDeafToEtcd,
    LeaderFromWorkers,
    FollowerFromEtcd,
    KillLeader,
    KillEtcdAfterCompaction,
    ClocksJump,
}

pub const TROUBLES: [Trouble; 16] = [
    Trouble::WorkerFromCoordinators,
    Trouble::WorkerDeafToCoordinators,
    Trouble::CoordinatorsDeafToWorker,
    Trouble::GatewayFromWorker,
    Trouble::GatewayDeafToWorker,
    Trouble::GatewayFromWorkerAndKillLeader,
    Trouble::GatewayFromCoordinators,
    Trouble::WorkerFromAll,
    Trouble::WorkerLinkDown,
    Trouble::LeaderFromEtcd,
    Trouble::LeaderDeafToEtcd,
    Trouble::LeaderFromWorkers,
    Trouble::FollowerFromEtcd,
    Trouble::KillLeader,
    Trouble::KillEtcdAfterCompaction,
    Trouble::ClocksJump,
];

fn one_of(cluster: &SpreadCluster, role: &str, rng: &mut SmallRng) -> String {
    let mut all = cluster.hosts(role);
    all.swap_remove(rng.random_range(0..all.len()))
}

/// Drops packets from each of `from` to each of `to`.
fn cut(cluster: &mut SpreadCluster, from: &[String], to: &[String]) {
    for from in from {
        for to in to {
            cluster.network.cut(from, to).unwrap();
        }
    }
}

pub fn cut_both(cluster: &mut SpreadCluster, some: &[String], others: &[String]) {
    cut(cluster, some, others);
    cut(cluster, others, some);
}

/// Makes the trouble, waits until the cluster has taken the consequence that it must have, and ends
/// the trouble.
pub async fn make_trouble(
    cluster: &mut SpreadCluster,
    history: &mut History,
    what: Trouble,
    rng: &mut SmallRng,
) {
    let (worker, gateway) = ([one_of(cluster, "worker", rng)], [one_of(cluster, "gateway", rng)]);
    let (coordinators, workers) = (cluster.hosts("coordinator"), cluster.hosts("worker"));
    let etcd = ["etcd".to_owned()];
    // Where a worker can't be heard, or does not hear, the next map is without it.
    let is_left_out = ["2 of 3 workers serve", "MISSING"];
    match what {
        Trouble::WorkerFromCoordinators => {
            cut_both(cluster, &worker, &coordinators);
            cluster.status_shows(&is_left_out).await.unwrap();
        }
        Trouble::WorkerDeafToCoordinators => {
            cut(cluster, &coordinators, &worker);
            cluster.status_shows(&is_left_out).await.unwrap();
        }
        Trouble::CoordinatorsDeafToWorker => {
            cut(cluster, &worker, &coordinators);
            cluster.status_shows(&is_left_out).await.unwrap();
        }
        Trouble::GatewayFromWorker => cut_both(cluster, &gateway, &worker),
        Trouble::GatewayDeafToWorker => cut(cluster, &worker, &gateway),
        Trouble::GatewayFromWorkerAndKillLeader => {
            cut_both(cluster, &gateway, &worker);
            history.run_for(SECOND).await;
            let leader = cluster.leader(None).await.unwrap();
            let taken_over = Takeover::begins();
            cluster.kill(&leader).unwrap();
            taken_over.took_over_in_time(cluster, &leader).await;
            cluster.restart(&leader).unwrap();
        }
        Trouble::GatewayFromCoordinators => {
            cut_both(cluster, &gateway, &coordinators);
            // It goes on with a map that is replaced meanwhile.
            cluster.kill(&worker[0]).unwrap();
            cluster.status_shows(&is_left_out).await.unwrap();
            history.run_for(SECOND).await;
            cluster.restart(&worker[0]).unwrap();
        }
        Trouble::WorkerFromAll => {
            cluster.network.isolate(&worker[0]).unwrap();
            cluster.status_shows(&is_left_out).await.unwrap();
        }
        Trouble::WorkerLinkDown => {
            cluster.network.link(&worker[0], false).unwrap();
            cluster.status_shows(&is_left_out).await.unwrap();
        }
        Trouble::LeaderFromEtcd
        | Trouble::LeaderDeafToEtcd
        | Trouble::LeaderFromWorkers
        | Trouble::KillLeader => {
            let leader = [cluster.leader(None).await.unwrap()];
            let taken_over = Takeover::begins();
            match what {
                Trouble::LeaderFromEtcd => cut_both(cluster, &leader, &etcd),
                Trouble::LeaderDeafToEtcd => cut(cluster, &etcd, &leader),
                Trouble::KillLeader => cluster.kill(&leader[0]).unwrap(),
                // It goes on to lead, and nobody has a lease: all ask the UFS, and stand by their
                // map.
                _ => cut_both(cluster, &leader, &workers),
            }
            if !matches!(what, Trouble::LeaderFromWorkers) {
                taken_over.took_over_in_time(cluster, &leader[0]).await;
                cluster.status_shows(&["3 of 3 workers serve"]).await.unwrap();
            }
            if matches!(what, Trouble::KillLeader) {
                cluster.restart(&leader[0]).unwrap();
            }
        }
        Trouble::FollowerFromEtcd => {
            let follower = [follower(cluster).await];
            cut_both(cluster, &follower, &etcd);
            cluster.kill(&worker[0]).unwrap();
            // Who asks it is told of a map that is not in force any more.
            let lags = format!(
                "coordinator http://{}:9500 is at map",
                cluster.network.address(&follower[0]).unwrap()
            );
            cluster.status_shows(&[is_left_out[0], is_left_out[1], &lags]).await.unwrap();
            history.run_for(SECOND).await;
            cluster.restart(&worker[0]).unwrap();
        }
        Trouble::KillEtcdAfterCompaction => {
            let all = cluster
                .ask_etcd("/v3/kv/range", r#"{"key":"AA==","range_end":"AA==","count_only":true}"#)
                .unwrap();
            let revision = all["header"]["revision"].as_str().unwrap().to_owned();
            cluster
                .ask_etcd(
                    "/v3/kv/compaction",
                    &format!(r#"{{"revision":"{revision}","physical":true}}"#),
                )
                .unwrap();
            cluster.kill("etcd").unwrap();
            // Past the leadership and every lease.
            history.run_for(3 * SECOND).await;
            cluster.restart("etcd").unwrap();
            // Another map: whose watch of the store did not come back lags behind, which the status
            // says in the end.
            cluster.status_shows(&["3 of 3 workers serve"]).await.unwrap();
            cluster.kill(&worker[0]).unwrap();
            cluster.status_shows(&is_left_out).await.unwrap();
            cluster.restart(&worker[0]).unwrap();
        }
        Trouble::ClocksJump => clocks_jump(cluster, history).await,
    }
    history.run_for(SECOND).await;
    cluster.network.mend().unwrap();
    if matches!(what, Trouble::WorkerLinkDown) {
        cluster.network.link(&worker[0], true).unwrap();
    }
    cluster.status_shows(&["3 of 3 workers serve", "cluster tests: well"]).await.unwrap();
    history.run_for(SECOND).await;
}

/// A coordinator that does not lead.
async fn follower(cluster: &SpreadCluster) -> String {
    let leader = cluster.leader(None).await.unwrap();
    cluster.hosts("coordinator").into_iter().find(|name| *name != leader).unwrap()
}

/// From the moment at which a leader dies or is cut off, until another leads.
pub struct Takeover {
    began: SystemTime,
    starved: Starved,
}

impl Takeover {
    pub fn begins() -> Self {
        Self { began: SystemTime::now(), starved: Starved::watch() }
    }

    /// Within three leadership periods, and what time the machine let nobody run. Who leads then.
    pub async fn took_over_in_time(self, cluster: &SpreadCluster, before: &str) -> String {
        let next = cluster.leader(Some(before)).await.unwrap();
        let (took, starved) = (cluster.led_after(&next, self.began).unwrap(), self.starved.time());
        println!("    {next} leads {:.1} s after {before} did", took.as_secs_f64());
        assert!(
            took <= 3 * LEADERSHIP + starved,
            "{next} led after {took:?}, of which {starved:?} nobody could run"
        );
        next
    }
}

/// Of coordinators by more than they bear, of those who sign what stores take by less than these
/// bear.
async fn clocks_jump(cluster: &mut SpreadCluster, history: &mut History) {
    // Of a request that is signed before a jump, or whose skew is learnt across one, stores and
    // gateways bear 15 minutes.
    for (coordinators, others) in [(3600, 400), (-86_400, -400), (0, 0)] {
        let before = refused_for_their_time(cluster).await;
        for (role, seconds) in
            [("coordinator", coordinators), ("worker", others), ("gateway-0", others)]
        {
            cluster.set_clock(role, &format!("{seconds:+}s")).unwrap();
        }
        history.run_for(SECOND).await;
        // By the date of their answers, which does not go back.
        if coordinators > 0 {
            has_jumped(cluster, "coordinator", coordinators).await;
            has_jumped(cluster, "worker", others).await;
            has_jumped(cluster, "gateway-0", others).await;
        }
        // Their questions were of another time, and they asked again.
        let were_refused = async || match refused_for_their_time(cluster).await {
            after if after > before => Ok(()),
            after => Err(format!("{after} questions were refused for their time, as before")),
        };
        eventually(60 * SECOND, were_refused).await.unwrap();
    }
}

/// Each process of the role goes by a clock that is ahead by so much.
async fn has_jumped(cluster: &SpreadCluster, role: &str, seconds: i32) {
    for name in cluster.hosts(role) {
        let is_ahead = async || match cluster.clock_ahead(&name).await {
            Ok(ahead) if (ahead - f64::from(seconds)).abs() < 60.0 => Ok(()),
            other => Err(format!(
                "the clock of {name} is ahead by {other:?} seconds instead of {seconds}"
            )),
        };
        eventually(60 * SECOND, is_ahead).await.unwrap();
    }
}

async fn refused_for_their_time(cluster: &SpreadCluster) -> f64 {
    let mut refused = 0.0;
    for name in cluster.hosts("coordinator") {
        refused +=
            cluster.metrics(&name).await.unwrap().sum("verbs3_coordinator_unproven_total", &[]);
    }
    refused
}
