//! Runs one side of one round: threads that drive connections, and the CPU time that they and the
//! server use.
//!
//! Each connection has a blocking thread: nothing runs between the socket and the clock. Owns
//! threads and the counting of CPU time; `drive_connection` is the loop of one connection.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::bench_limits::{BenchEffort, LATE};
use crate::client::{BenchChecksums, BenchClient};
use crate::connection_loop::{StepRecorder, TimedBenchClient, TimedStepResult, drive_connection};
use crate::cpu_time::{self, HostCpuTicks, ThreadCpuTime};
use crate::endpoint::BenchEndpoint;
use crate::random::hash;
use crate::request_plan::{BenchRequestPlan, BenchRound, ExchangeKind};
use crate::scenario::BenchScenario;
use crate::schedule::{LoadSchedule, MonotonicBenchClock, StartLateness};
use crate::tally::BenchRoundTally;

/// Number of tallies, which connections share so that memory does not grow with them.
const SHARDS: usize = 16;
/// Stack of a thread in bytes; its calls are shallow.
const STACK_BYTES: usize = 512 << 10;

/// Result of one side of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BenchRoundOutcome {
    pub tally: BenchRoundTally,
    pub took: Duration,
    /// CPU time of the server's processes, if they are known.
    pub server_cpu: Option<Duration>,
    pub effort: BenchEffort,
}

struct BenchTallyShard<'a>(&'a Mutex<BenchRoundTally>);

impl StepRecorder for BenchTallyShard<'_> {
    fn record_lateness(&mut self, late: StartLateness) {
        if let Ok(mut tally) = self.0.lock() {
            tally.record_lateness(late);
        }
    }

    fn record_step(&mut self, kind: ExchangeKind, intended: Duration, ended: TimedStepResult) {
        if let Ok(mut tally) = self.0.lock() {
            tally.record_exchange(kind, intended, ended.first_byte, ended.at, ended.done);
        }
    }
}

/// One round, and what its start waits for.
#[derive(Clone, Copy)]
pub struct ArmedRound<'a> {
    pub round: BenchRound,
    pub time: Duration,
    /// Called once all connections are made; the first request follows its return.
    pub await_start: &'a dyn Fn() -> anyhow::Result<()>,
}

/// Runs `round` of `scenario` against `endpoint` for `time`.
pub fn run_bench_round(
    scenario: &BenchScenario,
    endpoint: &BenchEndpoint,
    checksums: &BenchChecksums,
    round: BenchRound,
    time: Duration,
) -> anyhow::Result<BenchRoundOutcome> {
    let armed = ArmedRound { round, time, await_start: &|| Ok(()) };
    run_armed_round(scenario, endpoint, checksums, armed)
}

/// Runs a round that begins when it is told to.
pub fn run_armed_round(
    scenario: &BenchScenario,
    endpoint: &BenchEndpoint,
    checksums: &BenchChecksums,
    armed: ArmedRound<'_>,
) -> anyhow::Result<BenchRoundOutcome> {
    let ArmedRound { round, time, await_start } = armed;
    let plan = BenchRequestPlan::new(scenario, round);
    let mut clients = Vec::with_capacity(scenario.load.connections);
    for stream in 0..scenario.load.connections as u64 {
        let mut client = BenchClient::new(
            endpoint,
            &plan,
            checksums,
            scenario.verify,
            scenario.load.timeout,
            stream,
        );
        client.connect().with_context(|| format!("{} can't be reached", endpoint.label))?;
        clients.push(client);
    }
    let seed = match round {
        BenchRound::WarmUp => 0,
        BenchRound::Measured(number) => u64::from(number) + 1,
    };
    // Arrivals of several processes must not fall together.
    let seeds = [scenario.seed, seed, scenario.share.number];
    let seeds = if scenario.share.number == 0 { &seeds[..2] } else { &seeds[..] };
    let schedule = LoadSchedule::new(&scenario.load, time, hash(seeds));
    let shards: Vec<Mutex<BenchRoundTally>> =
        (0..SHARDS.min(clients.len())).map(|_| Mutex::default()).collect();
    await_start()?;
    let (cpu_before, host_before) =
        (cpu_time::CpuTimeSnapshot::take_snapshot(&endpoint.pids)?, cpu_time::of_host());
    let began = Instant::now();
    let clock = MonotonicBenchClock(began);
    let used = on_threads(clients, |stream, client| {
        let mut record = BenchTallyShard(&shards[stream % shards.len()]);
        drive_connection(
            &schedule,
            &plan,
            &clock,
            stream as u64,
            &mut TimedBenchClient { client, clock },
            &mut record,
        );
        Ok(())
    })?;
    let took = began.elapsed();
    let server =
        cpu_time::CpuTimeSnapshot::take_snapshot(&endpoint.pids)?.elapsed_since(&cpu_before);
    let mut tally = BenchRoundTally::default();
    for shard in &shards {
        tally.merge_from(
            &*shard.lock().map_err(|_| anyhow::anyhow!("a connection's thread panicked"))?,
        );
    }
    let effort = measure_effort(&tally, &used, took, host_before, schedule.not_sent());
    let server_cpu = (!endpoint.pids.is_empty()).then_some(server);
    Ok(BenchRoundOutcome { tally, took, server_cpu, effort })
}

/// Runs `job` on a thread for each client. Returns each thread's CPU time and its wait for a CPU.
fn on_threads<'a>(
    clients: Vec<BenchClient<'a>>,
    job: impl Fn(usize, BenchClient<'a>) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Vec<ThreadCpuTime>> {
    let job = &job;
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(clients.len());
        for (stream, client) in clients.into_iter().enumerate() {
            let builder =
                thread::Builder::new().name(format!("connection {stream}")).stack_size(STACK_BYTES);
            let run = move || job(stream, client).map(|()| cpu_time::of_this_thread());
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

fn measure_effort(
    tally: &BenchRoundTally,
    used: &[ThreadCpuTime],
    took: Duration,
    host_before: HostCpuTicks,
    not_sent: u64,
) -> BenchEffort {
    let seconds = took.as_secs_f64().max(1e-9);
    let host = cpu_time::of_host();
    let due =
        (tally.woken_late.sample_count() + tally.queued.sample_count() + not_sent).max(1) as f64;
    BenchEffort {
        cpus_used: used.iter().map(|thread| thread.running.as_secs_f64()).sum::<f64>() / seconds,
        cpus: thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64),
        busiest: used.iter().map(|thread| thread.running.as_secs_f64()).fold(0.0, f64::max)
            / seconds,
        waiting: used.iter().map(|thread| thread.waiting.as_secs_f64()).sum::<f64>()
            / seconds
            / used.len().max(1) as f64,
        host_idle: host.idle.saturating_sub(host_before.idle) as f64
            / host.all.saturating_sub(host_before.all).max(1) as f64,
        woken_late: tally.woken_late.count_above(LATE) as f64 / due,
        queued: tally.queued.count_above(LATE) as f64 / due,
        not_sent: not_sent as f64 / due,
    }
}

/// Writes the missing objects of `round` and returns their number. Reports each object to
/// `progress`.
pub fn prepare_objects(
    scenario: &BenchScenario,
    endpoint: &BenchEndpoint,
    round: BenchRound,
    progress: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<u64> {
    let put = std::sync::atomic::AtomicU64::new(0);
    each_object(scenario, endpoint, round, |client, plan, object| {
        let step = plan.whole_object_step(ExchangeKind::Put, object);
        if !client.is_stored(&step)? {
            client.store_object(&step, scenario.objects.part_bytes)?;
            put.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        progress(1);
        Ok(())
    })?;
    Ok(put.into_inner())
}

/// Reads and fully checks every object of `round` once.
pub fn prime_objects(
    scenario: &BenchScenario,
    endpoint: &BenchEndpoint,
    round: BenchRound,
    progress: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<()> {
    each_object(scenario, endpoint, round, |client, plan, object| {
        client.perform_step(&plan.whole_object_step(ExchangeKind::Get, object)).outcome?;
        progress(1);
        Ok(())
    })
}

/// Calls `job` for every object of `round`, over all connections.
fn each_object(
    scenario: &BenchScenario,
    endpoint: &BenchEndpoint,
    round: BenchRound,
    job: impl Fn(&mut BenchClient<'_>, &BenchRequestPlan<'_>, u64) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let (plan, checksums) = (BenchRequestPlan::new(scenario, round), BenchChecksums::new(0));
    let next = std::sync::atomic::AtomicU64::new(0);
    let count = scenario.objects.count;
    let connections =
        scenario.load.connections.clamp(1, 64).min(usize::try_from(count).unwrap_or(64));
    let clients = (0..connections as u64)
        .map(|stream| {
            BenchClient::new(endpoint, &plan, &checksums, 1.0, scenario.load.timeout, stream)
        })
        .collect();
    on_threads(clients, |_, mut client| {
        loop {
            let object = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if object >= count {
                return Ok(());
            }
            job(&mut client, &plan, object).with_context(|| {
                format!("{}: {}", endpoint.label, endpoint.object_path(&plan.object_key(object)))
            })?;
        }
    })?;
    Ok(())
}
