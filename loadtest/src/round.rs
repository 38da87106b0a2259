//! One side of one round: threads that drive connections, and what they and the server used
//! meanwhile.
//!
//! A thread for each connection, blocking: nothing runs between the socket and the clock. Owns
//! threads, and the counting of CPU time; the loop of one connection is `drive`.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::client::{Checksums, Client};
use crate::cpu;
use crate::drive::{Ended, Record, Timed, drive};
use crate::endpoint::Endpoint;
use crate::limits::{Effort, LATE};
use crate::plan::{Kind, Plan, Round};
use crate::random::hash;
use crate::scenario::Scenario;
use crate::schedule::{Late, Monotonic, Schedule};
use crate::tally::Tally;

/// Tallies that connections share: memory does not grow with connections.
const SHARDS: usize = 16;
/// Nothing deep is called.
const STACK_BYTES: usize = 512 << 10;

/// What a side did in a round.
#[derive(Debug)]
pub struct Outcome {
    pub tally: Tally,
    pub took: Duration,
    /// CPU time of the server's processes, where they are known.
    pub server_cpu: Option<Duration>,
    pub effort: Effort,
}

struct Shard<'a>(&'a Mutex<Tally>);

impl Record for Shard<'_> {
    fn late(&mut self, late: Late) {
        if let Ok(mut tally) = self.0.lock() {
            tally.late(late);
        }
    }

    fn step(&mut self, kind: Kind, intended: Duration, ended: Ended) {
        if let Ok(mut tally) = self.0.lock() {
            tally.record(kind, intended, ended.first_byte, ended.at, ended.done);
        }
    }
}

/// Runs `round` of `scenario` against `endpoint` for `time`.
pub fn run(
    scenario: &Scenario,
    endpoint: &Endpoint,
    checksums: &Checksums,
    round: Round,
    time: Duration,
) -> anyhow::Result<Outcome> {
    let plan = Plan::new(scenario, round);
    let mut clients = Vec::with_capacity(scenario.load.connections);
    for stream in 0..scenario.load.connections as u64 {
        let mut client = Client::new(
            endpoint,
            &plan,
            checksums,
            (scenario.verify, scenario.load.timeout),
            stream,
        );
        client.connect().with_context(|| format!("{} can't be reached", endpoint.label))?;
        clients.push(client);
    }
    let seed = match round {
        Round::WarmUp => 0,
        Round::Measured(number) => u64::from(number) + 1,
    };
    let schedule = Schedule::new(&scenario.load, time, hash(&[scenario.seed, seed]));
    let shards: Vec<Mutex<Tally>> =
        (0..SHARDS.min(clients.len())).map(|_| Mutex::default()).collect();
    let (cpu_before, host_before) = (cpu::Moment::now(&endpoint.pids)?, cpu::of_host());
    let began = Instant::now();
    let clock = Monotonic(began);
    let used = on_threads(clients, |stream, client| {
        let mut record = Shard(&shards[stream % shards.len()]);
        drive(&schedule, &plan, &clock, stream as u64, &mut Timed { client, clock }, &mut record);
        Ok(())
    })?;
    let took = began.elapsed();
    let server = cpu::Moment::now(&endpoint.pids)?.since(&cpu_before);
    let mut tally = Tally::default();
    for shard in &shards {
        tally.add(&*shard.lock().map_err(|_| anyhow::anyhow!("a connection's thread panicked"))?);
    }
    let effort = effort(&tally, &used, took, host_before, schedule.not_sent());
    let server_cpu = (!endpoint.pids.is_empty()).then_some(server);
    Ok(Outcome { tally, took, server_cpu, effort })
}

/// Runs `job` on a thread for each client; gives the CPU time and the wait for a CPU of each.
fn on_threads<'a>(
    clients: Vec<Client<'a>>,
    job: impl Fn(usize, Client<'a>) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Vec<(Duration, Duration)>> {
    let job = &job;
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(clients.len());
        for (stream, client) in clients.into_iter().enumerate() {
            let builder =
                thread::Builder::new().name(format!("connection {stream}")).stack_size(STACK_BYTES);
            let run = move || job(stream, client).map(|()| cpu::of_this_thread());
            threads.push(
                builder
                    .spawn_scoped(scope, run)
                    .context("can't start a thread; lower load.connections")?,
            );
        }
        threads
            .into_iter()
            .map(|thread| {
                thread.join().map_err(|_| anyhow::anyhow!("a connection's thread panicked"))?
            })
            .collect()
    })
}

fn effort(
    tally: &Tally,
    used: &[(Duration, Duration)],
    took: Duration,
    host: (u64, u64),
    not_sent: u64,
) -> Effort {
    let seconds = took.as_secs_f64().max(1e-9);
    let (idle, all) = cpu::of_host();
    let due = (tally.woken_late.count() + tally.queued.count() + not_sent).max(1) as f64;
    Effort {
        cpus_used: used.iter().map(|(on, _)| on.as_secs_f64()).sum::<f64>() / seconds,
        cpus: thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64),
        busiest: used.iter().map(|(on, _)| on.as_secs_f64()).fold(0.0, f64::max) / seconds,
        waiting: used.iter().map(|(_, waited)| waited.as_secs_f64()).sum::<f64>()
            / seconds
            / used.len().max(1) as f64,
        host_idle: idle.saturating_sub(host.0) as f64 / all.saturating_sub(host.1).max(1) as f64,
        woken_late: tally.woken_late.above(LATE) as f64 / due,
        queued: tally.queued.above(LATE) as f64 / due,
        not_sent: not_sent as f64 / due,
    }
}

/// Puts the objects of `round` that are not there yet; gives how many were put. `progress` is told
/// of each object.
pub fn prepare(
    scenario: &Scenario,
    endpoint: &Endpoint,
    round: Round,
    progress: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<u64> {
    let put = std::sync::atomic::AtomicU64::new(0);
    each_object(scenario, endpoint, round, |client, plan, object| {
        let step = plan.whole(Kind::Put, object);
        if !client.is_stored(&step)? {
            client.store(&step, scenario.objects.part_bytes)?;
            put.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        progress(1);
        Ok(())
    })?;
    Ok(put.into_inner())
}

/// Reads every object of `round` once, checking all of it.
pub fn prime(
    scenario: &Scenario,
    endpoint: &Endpoint,
    round: Round,
    progress: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<()> {
    each_object(scenario, endpoint, round, |client, plan, object| {
        client.perform(&plan.whole(Kind::Get, object)).outcome?;
        progress(1);
        Ok(())
    })
}

/// Calls `job` for every object of `round`, over all connections.
fn each_object(
    scenario: &Scenario,
    endpoint: &Endpoint,
    round: Round,
    job: impl Fn(&mut Client<'_>, &Plan<'_>, u64) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let (plan, checksums) = (Plan::new(scenario, round), Checksums::new(0));
    let next = std::sync::atomic::AtomicU64::new(0);
    let count = scenario.objects.count;
    let connections =
        scenario.load.connections.clamp(1, 64).min(usize::try_from(count).unwrap_or(64));
    let clients = (0..connections as u64)
        .map(|stream| {
            Client::new(endpoint, &plan, &checksums, (1.0, scenario.load.timeout), stream)
        })
        .collect();
    on_threads(clients, |_, mut client| {
        loop {
            let object = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if object >= count {
                return Ok(());
            }
            job(&mut client, &plan, object).with_context(|| {
                format!("{}: {}", endpoint.label, endpoint.path(&plan.key(object)))
            })?;
        }
    })?;
    Ok(())
}
