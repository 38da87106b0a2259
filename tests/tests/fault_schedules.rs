//! Random faults against the reference model: stores that refuse, break off and lie, workers that
//! are killed and stopped, gateways that are killed, while objects are written, deleted and read
//! through all gateways. Then everything heals.
//!
//! `SEED=` runs a schedule again, `ROUNDS=` says how many. What must hold: no wrong, stale or mixed
//! byte ever; errors only where a fault explains them, and only of the kinds that S3 has for it;
//! after healing everything works, agrees with the store, and nothing stays borrowed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use rand::RngExt;
use rand::rngs::SmallRng;
use verbs3_tests::metrics::{BORROWED, eventually};
use verbs3_tests::proxy::{Fault, Op};
use verbs3_tests::reading::{self, Seen};
use verbs3_tests::{Cluster, Section, content, seed};

const KEYS: [&str; 5] = ["a", "b/c", "d", "e", "f"];
const LENGTHS: [usize; 6] = [0, 1, 100_000, (256 << 10) + 1, 1 << 20, (4 << 20) + 9];
const SOON: Duration = Duration::from_secs(120);

/// What a key may hold: a version and its length, or nothing. Several after a write of unknown
/// outcome.
type Possible = Vec<Option<(u64, usize)>>;

struct Run {
    cluster: Cluster,
    bucket: String,
    clients: Vec<Client>,
    model: BTreeMap<&'static str, Possible>,
    versions: u64,
    rng: SmallRng,
    /// Whether the store may fail in this schedule, and whether processes may.
    store_fails: bool,
    processes_fail: bool,
    /// What is to be healed: a process, and the signal that stopped it.
    down: Vec<(String, &'static str)>,
    counts: BTreeMap<&'static str, u64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_agree_with_the_model() {
    let seed = seed::from_environment();
    let rounds = seed::rounds(100);
    let mut run = Run::start(seed).await;
    let began = Instant::now();
    for round in 0..rounds {
        run.rng = seed::rng(seed, round as u64);
        if let Err(what) = run.schedule().await {
            panic!("SEED={seed} schedule {round}: {what}");
        }
    }
    println!("{rounds} schedules in {:?}, 0 violations: {:?}", began.elapsed(), run.counts);
    assert!(
        run.cluster.proxy().faults.struck() as usize > rounds / 4,
        "the faults hardly ever struck"
    );
    run.cluster.stop().await.unwrap();
}

impl Run {
    async fn start(seed: u64) -> Self {
        let cluster = Cluster::builder().gateways(2).workers(2).faulty_store();
        // The deadlines of the store stay long. Its `fsync` may take seconds on a busy machine, and a
        // write whose answer was not awaited shows whenever the store is through with it: a later
        // reader may well have seen the version before.
        let cluster = cluster
            .settings(
                Section::Ufs,
                "[ufs.retries]\npause = \"5ms\"\npause_max = \"20ms\"\nbudget_per_second = 100.0\n\
                 [ufs.circuit]\nopen_for = \"50ms\"\nopen_for_max = \"100ms\"",
            )
            .settings(
                Section::Gateway,
                "[gateway.tier]\nfirst_progress = \"300ms\"\nidle = \"1s\"\nhedge_after = \"60ms\"\nannounce_deadline = \"300ms\"\n\
                 report_deadline = \"300ms\"\nrest_min = \"50ms\"\nrest_max = \"200ms\"\nwrite_uncertain_for = \"1s\"\n\
                 [gateway.read]\nresume_wait_max = \"500ms\"\n\
                 [gateway.peers]\npause_min = \"20ms\"\npause_max = \"100ms\"\nrest_min = \
                     \"1s\"\nrest_max = \"1s\"",
            );
        let cluster = cluster.start().await.unwrap();
        let bucket = cluster.bucket("schedules").await.unwrap();
        let clients =
            cluster.gateways().iter().map(|gateway| reading::once(&gateway.client)).collect();
        let model = KEYS.into_iter().map(|key| (key, vec![None])).collect();
        Self {
            cluster,
            bucket,
            clients,
            model,
            versions: 0,
            rng: seed::rng(seed, u64::MAX),
            store_fails: false,
            processes_fail: false,
            down: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    async fn schedule(&mut self) -> Result<(), String> {
        self.store_fails = self.rng.random_bool(0.8);
        self.processes_fail = !self.store_fails || self.rng.random_bool(0.15);
        if self.store_fails {
            let (percent, rng) = (self.rng.random_range(5..60), seed::rng(self.rng.random(), 0));
            let kinds: Vec<_> =
                store_faults().into_iter().filter(|_| self.rng.random_bool(0.4)).collect();
            self.cluster.proxy().faults.random(rng, percent, kinds);
        }
        for _ in 0..self.rng.random_range(8..16) {
            if self.processes_fail && self.rng.random_bool(0.15) {
                self.process_fault().await?;
            }
            self.step().await?;
        }
        self.heal().await
    }

    async fn process_fault(&mut self) -> Result<(), String> {
        let all = ["worker-0", "worker-1", "gateway-1"];
        let name = all[self.rng.random_range(0..all.len())];
        let failed = |error: anyhow::Error| error.to_string();
        if let Some(at) = self.down.iter().position(|(down, _)| down == name) {
            let (name, signal) = self.down.remove(at);
            return self.revive(&name, signal).await;
        }
        // A gateway that is stopped keeps its clients waiting, as any server would.
        let kill = name.starts_with("gateway") || self.rng.random_bool(0.5);
        let signal = if kill { "-KILL" } else { "-STOP" };
        self.cluster.signal(name, signal).map_err(failed)?;
        self.down.push((name.to_owned(), signal));
        self.count(signal);
        Ok(())
    }

    async fn revive(&mut self, name: &str, signal: &str) -> Result<(), String> {
        let done = match signal {
            "-STOP" => self.cluster.signal(name, "-CONT"),
            _ => self.cluster.restart_and_wait(name).await,
        };
        done.map_err(|error| format!("{name} does not come back: {error:#}"))
    }

    async fn step(&mut self) -> Result<(), String> {
        let key = KEYS[self.rng.random_range(0..KEYS.len())];
        let gateway = self.gateway();
        match self.rng.random_range(0..100) {
            0..25 => {
                self.versions += 1;
                let (version, length) =
                    (self.versions, LENGTHS[self.rng.random_range(0..LENGTHS.len())]);
                let failed =
                    reading::put(&self.clients[gateway], &self.bucket, key, version, length).await;
                self.written(key, Some((version, length)), failed)
            }
            25..32 => {
                let failed = reading::delete(&self.clients[gateway], &self.bucket, key).await;
                self.written(key, None, failed)
            }
            _ => {
                let mut seen = reading::get(&self.clients[gateway], &self.bucket, key).await;
                if seen == Seen::Broken && self.processes_fail && gateway == 1 {
                    // The client's connection was to the process before the one that runs now.
                    seen = reading::get(&self.clients[gateway], &self.bucket, key).await;
                }
                self.read(key, &seen).map_err(|why| format!("through gateway {gateway}: {why}"))
            }
        }
    }

    fn gateway(&mut self) -> usize {
        let second = !self.down.iter().any(|(name, _)| name == "gateway-1");
        if second { self.rng.random_range(0..2) } else { 0 }
    }

    fn written(
        &mut self,
        key: &'static str,
        now: Option<(u64, usize)>,
        failed: Option<Seen>,
    ) -> Result<(), String> {
        self.count(if failed.is_some() { "writes failed" } else { "writes" });
        match failed {
            None => drop(self.model.insert(key, vec![now])),
            Some(seen) => {
                self.explained(&seen, true).map_err(|why| format!("write of {key}: {why}"))?;
                self.model.get_mut(key).unwrap().push(now);
            }
        }
        Ok(())
    }

    fn read(&mut self, key: &'static str, seen: &Seen) -> Result<(), String> {
        let possible = self.model[key].clone();
        let wrong = |what: String| Err(format!("{key}: {what}, and {possible:?} is possible"));
        match seen {
            Seen::Whole(body) => {
                self.count("reads");
                let is = |&(version, length): &(u64, usize)| {
                    body.len() == length && content::check(key, version, 0, body).is_ok()
                };
                match possible.iter().flatten().rev().find(|one| is(one)) {
                    // Nobody else writes: what one reader has seen, all have to see from now on.
                    Some(found) => drop(self.model.insert(key, vec![Some(*found)])),
                    None => {
                        return wrong(format!("{} bytes of no possible version came", body.len()));
                    }
                }
            }
            Seen::Cut(body) => {
                self.count("reads cut");
                if !possible
                    .iter()
                    .flatten()
                    .any(|&(version, _)| content::check(key, version, 0, body).is_ok())
                {
                    return wrong(format!(
                        "{} bytes of no possible version came before the cut",
                        body.len()
                    ));
                }
                self.explained(seen, false)?;
            }
            Seen::Refused { status: 404, .. } if possible.contains(&None) => {
                self.count("reads of nothing");
                self.model.insert(key, vec![None]);
            }
            _ => {
                self.count("reads failed");
                self.explained(seen, false).or_else(wrong)?;
            }
        }
        Ok(())
    }

    /// An error has to have a cause: a store that fails explains any, processes that fail explain
    /// refused writes alone.
    fn explained(&self, seen: &Seen, is_write: bool) -> Result<(), String> {
        let kind =
            matches!(seen, Seen::Cut(_)) || matches!(seen.status(), Some(500 | 502 | 503 | 504));
        let cause = self.store_fails || (is_write && self.processes_fail);
        let cut_off = *seen == Seen::Broken && is_write && self.processes_fail;
        if (kind && cause) || cut_off {
            Ok(())
        } else {
            Err(format!("{seen:?} is not explained by any fault"))
        }
    }

    async fn heal(&mut self) -> Result<(), String> {
        self.cluster.proxy().faults.heal();
        for (name, signal) in std::mem::take(&mut self.down) {
            self.revive(&name, signal).await?;
        }
        for key in KEYS {
            let there = reading::get(&self.cluster.store(), &self.bucket, key).await;
            self.read(key, &there).map_err(|why| format!("at the store: {why}"))?;
            for gateway in 0..self.clients.len() {
                let mut seen = Seen::Broken;
                let answers = async || {
                    seen = reading::get(&self.clients[gateway], &self.bucket, key).await;
                    let over = matches!(seen, Seen::Whole(_)) || seen.status() == Some(404);
                    if over {
                        Ok(())
                    } else {
                        Err(format!("after healing, gateway {gateway} answers {seen:?}"))
                    }
                };
                eventually(SOON, answers).await.map_err(|error| format!("{error:#}"))?;
                self.read(key, &seen)
                    .map_err(|why| format!("after healing, gateway {gateway}: {why}"))?;
            }
        }
        self.at_rest().await
    }

    async fn at_rest(&self) -> Result<(), String> {
        for name in ["gateway-0", "gateway-1", "worker-0", "worker-1"] {
            let families = [&BORROWED[..], &["verbs3_ufs_in_flight"]].concat();
            let rested = self.cluster.until_zero(name, &families, SOON).await;
            rested.map_err(|error| format!("{error:#}"))?;
        }
        Ok(())
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

fn store_faults() -> Vec<(Op, Fault)> {
    let (wait, pause) = (Duration::from_millis(80), Duration::from_millis(1));
    vec![
        (Op::Any, Fault::Refused { status: 500, code: "InternalError" }),
        (Op::Any, Fault::Refused { status: 503, code: "SlowDown" }),
        (Op::Any, Fault::Dropped),
        (Op::Any, Fault::AnswerLost),
        (Op::Any, Fault::Slow { wait, pause }),
        (Op::Get, Fault::BodyCut { after: 0 }),
        (Op::Get, Fault::BodyCut { after: 70_000 }),
        (Op::Get, Fault::OtherEtag),
        (Op::Head, Fault::OtherEtag),
        (Op::Put, Fault::BodyCut { after: 50_000 }),
    ]
}
