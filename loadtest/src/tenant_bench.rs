//! Measures what one tenant notices of another: a victim that reads hot objects at a part of what
//! there is, alone and beside an aggressor with ten times its connections.
//!
//! Where the gateway itself is what is scarce, a tenant's share is half. A victim that asks for
//! just that has a queue as long as that of any server at full load, however fair it is.
//!
//! Every round has three parts: the victim alone, beside the aggressor at a gateway that shares
//! fairly, and beside it at a gateway to which both are one tenant. Only ratios within a round are
//! judged: figures of different minutes are not comparable.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;

use crate::bench_round::{BenchRoundOutcome, prepare_objects, prime_objects, run_bench_round};
use crate::client::BenchChecksums;
use crate::connection::BenchConnection;
use crate::credentials::BenchCredentials;
use crate::endpoint::BenchEndpoint;
use crate::request_plan::BenchRound;
use crate::scenario::{BenchScenario, ScenarioPace};
use crate::statistics;

/// The victim: hot reads of whole objects.
const VICTIM: &str = r#"
name = "tenant-victim"
objects = { count = 32, bytes = "1MiB" }
access = { pattern = "uniform" }
load = { connections = 4 }
rounds = { prime = true, warm_up = "0s" }
verify = 0.1
"#;
/// The aggressor's connections for each of the victim's.
const AGGRESSION: usize = 10;
/// Objects that the aggressor reads again and again.
const HOT_OBJECTS: u64 = 32;
/// Bytes of each object of the aggressor, and of each upload.
const OBJECT_BYTES: u64 = 1 << 20;
/// A slow upload sends this, then pauses: 80 KiB/s, more than the slowest that a gateway suffers.
const TRICKLE_BYTES: usize = 8 << 10;
const TRICKLE_PAUSE: Duration = Duration::from_millis(100);
/// Pause after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);
/// Niceness of the aggressor's threads: the victim's client computes first, as if it had a host of
/// its own. What the aggressor does to the gateway is measured, not what it does to other clients.
const AGGRESSOR_NICENESS: i32 = 15;
/// How long the aggressor works before the victim is measured.
const LEAD: Duration = Duration::from_millis(500);

/// Command line of `verbs3-loadtest tenants`.
#[derive(Args)]
pub struct TenantBenchOptions {
    /// Gateway at which victim and aggressor are two tenants: http://HOST:PORT/BUCKET
    #[arg(long)]
    fair: String,
    /// Gateway at which they are one.
    #[arg(long)]
    shared: String,
    #[arg(long)]
    victim_key: String,
    #[arg(long)]
    aggressor_key: String,
    /// Of both keys.
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret_key: String,
    /// Objects that a scan reads in turn; together they should be larger than the cache.
    #[arg(long, default_value_t = 768)]
    cold_objects: u64,
    /// What the victim asks for, of what it gets alone at full load.
    #[arg(long, default_value_t = 0.5)]
    load: f64,
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

/// What the aggressor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AggressorKind {
    HotReads,
    ColdScan,
    SlowUploads,
    Listings,
}

const KINDS: [AggressorKind; 4] = [
    AggressorKind::HotReads,
    AggressorKind::ColdScan,
    AggressorKind::SlowUploads,
    AggressorKind::Listings,
];

impl fmt::Display for AggressorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HotReads => "hot reads",
            Self::ColdScan => "cold scan",
            Self::SlowUploads => "slow uploads",
            Self::Listings => "listings",
        })
    }
}

/// A gateway, as both tenants see it.
struct BesiegedGateway {
    victim: BenchEndpoint,
    aggressor: BenchEndpoint,
}

/// What the aggressor has got.
#[derive(Default)]
struct AggressorTally {
    bytes: AtomicU64,
    refusals: AtomicU64,
}

/// One part of a round.
struct MeasuredPart {
    p99_ms: f64,
    victim_errors: u64,
    /// Of both, in MiB/s.
    throughput: f64,
    aggressor_refusals: u64,
}

/// The parts of all rounds of one kind.
#[derive(Default)]
struct KindFigures {
    fair_ratios: Vec<f64>,
    shared_ratios: Vec<f64>,
    throughput_ratios: Vec<f64>,
    fair_errors: u64,
    shared_errors: u64,
}

/// Writes the objects, finds out what half load is, measures, and prints the ratios.
pub fn run_tenant_bench(options: &TenantBenchOptions) -> anyhow::Result<()> {
    let mut scenario = BenchScenario::parse(VICTIM)
        .map_err(|problems| anyhow::anyhow!("the victim's scenario: {problems:?}"))?;
    let fair = BesiegedGateway::new(&options.fair, options)?;
    let shared = BesiegedGateway::new(&options.shared, options)?;
    let (time, checksums) = (Duration::from_secs_f64(options.seconds), BenchChecksums::new(32));
    prepare_objects(&scenario, &fair.victim, BenchRound::Measured(0), &|_| ())?;
    fair.write_objects(options)?;
    for gateway in [&fair, &shared] {
        prime_objects(&scenario, &gateway.victim, BenchRound::Measured(0), &|_| ())?;
    }
    let whole = run_bench_round(&scenario, &fair.victim, &checksums, BenchRound::WarmUp, time)?;
    let rate = whole.tally.sum_kinds().latency.sample_count() as f64 / whole.took.as_secs_f64();
    ensure!(rate > 0.0, "the victim alone gets nothing: {:?}", whole.tally.examples);
    ensure!(options.load > 0.0 && options.load <= 1.0, "--load is above 0, and 1 at most");
    let requests_per_second = rate * options.load;
    scenario.load.pace = ScenarioPace::Open { requests_per_second, poisson: true };
    println!("alone at full load: {rate:.0} requests/s; {requests_per_second:.0} from here on");
    let mut figures: BTreeMap<AggressorKind, KindFigures> = BTreeMap::new();
    for number in 0..options.rounds {
        for kind in KINDS {
            let run = |gateway: &BesiegedGateway, kind| {
                let round = BenchRound::Measured(number);
                let victim =
                    || run_bench_round(&scenario, &gateway.victim, &checksums, round, time);
                gateway.run_beside(kind, &scenario, options, victim)
            };
            let alone = run(&fair, None)?;
            let (beside, mixed) = (run(&fair, Some(kind))?, run(&shared, Some(kind))?);
            let figures = figures.entry(kind).or_default();
            figures.fair_ratios.push(beside.p99_ms / alone.p99_ms);
            figures.shared_ratios.push(mixed.p99_ms / alone.p99_ms);
            figures.throughput_ratios.push(beside.throughput / mixed.throughput);
            figures.fair_errors += beside.victim_errors;
            figures.shared_errors += mixed.victim_errors;
            println!(
                "{kind}, round {}: p99 {:.1} ms alone; fair {:.1} ms, {:.0} MiB/s, {} refused; \
                 shared {:.1} ms, {:.0} MiB/s, {} refused",
                number + 1,
                alone.p99_ms,
                beside.p99_ms,
                beside.throughput,
                beside.aggressor_refusals,
                mixed.p99_ms,
                mixed.throughput,
                mixed.aggressor_refusals,
            );
            std::io::stdout().flush()?;
        }
    }
    print_figures(&figures);
    Ok(())
}

fn print_figures(figures: &BTreeMap<AggressorKind, KindFigures>) {
    println!(
        "| beside | victim's p99 ÷ alone, fair (range) | the same, one tenant (range) | victim's \
         errors, fair / one tenant | throughput, fair ÷ one tenant (range) |\n|---|---|---|---|---|"
    );
    for (kind, figures) in figures {
        println!(
            "| {kind} | {} | {} | {} / {} | {} |",
            show_ratios(&figures.fair_ratios),
            show_ratios(&figures.shared_ratios),
            figures.fair_errors,
            figures.shared_errors,
            show_ratios(&figures.throughput_ratios),
        );
    }
}

/// Shows the median, and the range.
fn show_ratios(ratios: &[f64]) -> String {
    let median = statistics::median(ratios).unwrap_or(f64::NAN);
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    format!("{median:.2} ({low:.2}–{high:.2})")
}

impl BesiegedGateway {
    fn new(url: &str, options: &TenantBenchOptions) -> anyhow::Result<Self> {
        let endpoint = |key: &String, label: &str| {
            let credentials = BenchCredentials {
                access_key: key.clone(),
                secret_key: options.secret_key.clone(),
                region: "us-east-1".to_owned(),
            };
            BenchEndpoint::parse(url, label, Some(&credentials), &[])
        };
        Ok(Self {
            victim: endpoint(&options.victim_key, "victim")?,
            aggressor: endpoint(&options.aggressor_key, "aggressor")?,
        })
    }

    /// Writes what the aggressor reads.
    fn write_objects(&self, options: &TenantBenchOptions) -> anyhow::Result<()> {
        let body = vec![7; OBJECT_BYTES as usize];
        let mut connection = BenchConnection::connect(self.aggressor.address)?;
        let hot = (0..HOT_OBJECTS).map(|number| object_key(AggressorKind::HotReads, number));
        let cold =
            (0..options.cold_objects).map(|number| object_key(AggressorKind::ColdScan, number));
        for key in hot.chain(cold) {
            let path = self.aggressor.object_path(&key);
            let head = self.aggressor.signer.streaming_put(&path, OBJECT_BYTES)?;
            let answer = connection.send_repeated(&head, &body, 1).with_context(|| path.clone())?;
            ensure!(answer.status == 200, "PUT {path} answered {}", answer.head);
        }
        Ok(())
    }

    /// Runs the victim's round beside the aggressor. `None`: alone.
    fn run_beside(
        &self,
        kind: Option<AggressorKind>,
        scenario: &BenchScenario,
        options: &TenantBenchOptions,
        victim: impl FnOnce() -> anyhow::Result<BenchRoundOutcome>,
    ) -> anyhow::Result<MeasuredPart> {
        let (stop, tally, turn) =
            (AtomicBool::new(false), AggressorTally::default(), AtomicU64::new(0));
        let connections = kind.map_or(0, |_| scenario.load.connections * AGGRESSION);
        std::thread::scope(|scope| {
            for _ in 0..connections {
                let (stop, tally, turn) = (&stop, &tally, &turn);
                scope.spawn(move || {
                    let Some(kind) = kind else { return };
                    // Of this thread alone. Anybody may lower it.
                    let _ = rustix::process::setpriority_process(None, AGGRESSOR_NICENESS);
                    self.attack(kind, options, stop, |outcome| tally.record(outcome), turn);
                });
            }
            std::thread::sleep(LEAD);
            let before = tally.bytes.load(Ordering::Relaxed);
            let began = Instant::now();
            let outcome = victim();
            let (took, after) = (began.elapsed(), tally.bytes.load(Ordering::Relaxed));
            stop.store(true, Ordering::Relaxed);
            let outcome = outcome?;
            let got = outcome.tally.sum_kinds();
            let p99 = got.latency.time_at_percentile(99.0).context("the victim got nothing")?;
            let bytes = got.bytes + (after - before);
            Ok(MeasuredPart {
                p99_ms: p99.as_secs_f64() * 1e3,
                victim_errors: outcome.tally.errors_in_all(),
                throughput: bytes as f64 / took.as_secs_f64() / f64::from(1 << 20),
                aggressor_refusals: tally.refusals.load(Ordering::Relaxed),
            })
        })
    }

    /// Drives one connection of the aggressor until it is told to stop.
    fn attack(
        &self,
        kind: AggressorKind,
        options: &TenantBenchOptions,
        stop: &AtomicBool,
        record: impl Fn(Option<u64>),
        turn: &AtomicU64,
    ) {
        let mut connection = None;
        while !stop.load(Ordering::Relaxed) {
            let number = turn.fetch_add(1, Ordering::Relaxed);
            let open = match connection.take() {
                Some(open) => Ok(open),
                None => BenchConnection::connect(self.aggressor.address),
            };
            let done = open.ok().and_then(|mut open| {
                let bytes = self.attack_once(kind, options, number, &mut open, stop)?;
                connection = Some(open).filter(BenchConnection::is_reusable);
                bytes
            });
            record(done);
            if done.is_none() {
                std::thread::sleep(REFUSED_PAUSE);
            }
        }
    }

    /// Sends one request. Returns its bytes; `Some(None)` if it was refused, `None` if the
    /// connection is of no more use.
    fn attack_once(
        &self,
        kind: AggressorKind,
        options: &TenantBenchOptions,
        number: u64,
        connection: &mut BenchConnection,
        stop: &AtomicBool,
    ) -> Option<Option<u64>> {
        let (endpoint, signer) = (&self.aggressor, &self.aggressor.signer);
        let in_turn = match kind {
            AggressorKind::HotReads => number % HOT_OBJECTS,
            AggressorKind::ColdScan => number % options.cold_objects.max(1),
            AggressorKind::SlowUploads | AggressorKind::Listings => number,
        };
        let path = endpoint.object_path(&object_key(kind, in_turn));
        let (answer, sent) = match kind {
            AggressorKind::HotReads | AggressorKind::ColdScan => {
                let request = signer.sign_request("GET", &path, b"").ok()?;
                (connection.exchange_request(&request, b"", |_| ()), 0)
            }
            AggressorKind::Listings => {
                let path = format!("{}?list-type=2&prefix=tenants%2F", endpoint.base);
                let request = signer.sign_request("GET", &path, b"").ok()?;
                (connection.exchange_request(&request, b"", |_| ()), 0)
            }
            AggressorKind::SlowUploads => {
                let request = signer.streaming_put(&path, OBJECT_BYTES).ok()?;
                let trickle = |stream: &mut std::net::TcpStream| {
                    for _ in 0..OBJECT_BYTES as usize / TRICKLE_BYTES {
                        if stop.load(Ordering::Relaxed) {
                            return Err(std::io::ErrorKind::Interrupted.into());
                        }
                        stream.write_all(&[7; TRICKLE_BYTES])?;
                        std::thread::sleep(TRICKLE_PAUSE);
                    }
                    Ok(())
                };
                (connection.send_request(&request, trickle, |_| ()), OBJECT_BYTES)
            }
        };
        let answer = answer.ok()?;
        Some((answer.status == 200).then_some(answer.body_bytes + sent))
    }
}

impl AggressorTally {
    fn record(&self, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => self.bytes.fetch_add(bytes, Ordering::Relaxed),
            None => self.refusals.fetch_add(1, Ordering::Relaxed),
        };
    }
}

fn object_key(kind: AggressorKind, number: u64) -> String {
    match kind {
        AggressorKind::HotReads => format!("tenants/hot-{number}"),
        AggressorKind::ColdScan => format!("tenants/cold-{number:06}"),
        AggressorKind::SlowUploads | AggressorKind::Listings => {
            format!("uploads/slow-{}", number % 64)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn victims_scenario_is_one() {
        let scenario = BenchScenario::parse(VICTIM).unwrap();
        assert_eq!((scenario.objects.count, scenario.load.connections), (32, 4));
    }

    #[test]
    fn ratios_are_shown_by_their_median_and_range() {
        assert_eq!(show_ratios(&[1.0, 3.0, 1.5]), "1.50 (1.00–3.00)");
    }
}
