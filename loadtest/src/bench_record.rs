//! Owns the figures of a run and their names in JSON: by side and round, and target ÷ reference.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench_limits::{self, BenchEffort};
use crate::bench_round::BenchRoundOutcome;
use crate::endpoint::BenchEndpoint;
use crate::scenario::BenchScenario;
use crate::statistics::{RatioEstimate, estimate_ratio, median};
use crate::tally::{BenchRoundTally, ExchangeKindTally, LatencyTally, sum_counts};

/// Version of the JSON form. Raise it when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;
const MIB: f64 = 1_048_576.0;
/// Percentiles of a side's latency curve.
const CURVE: [f64; 15] =
    [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];

/// Whole run with its scenario, host and figures, as in JSON.
#[derive(Debug, Serialize)]
pub struct BenchRecord {
    pub schema: u32,
    pub version: &'static str,
    pub kernel: String,
    pub cpus: usize,
    pub scenario: BenchScenario,
    /// The target and its reference, if any.
    pub sides: Vec<BenchSideRecord>,
    /// Target ÷ reference, if there is a reference.
    pub ratios: BTreeMap<&'static str, RatioEstimate>,
    /// Limits other than the server.
    pub limits: Vec<String>,
    /// The hosts that measured together; none where this process measured alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<BenchAgentRecord>,
    /// Microseconds by which agents started a round apart, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_skew_us_max: Option<u64>,
}

/// What one of several hosts says of itself before it measures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHost {
    pub kernel: String,
    pub cpus: usize,
    pub label: String,
    pub address: String,
    pub signed: bool,
}

/// One of several hosts that measured together.
#[derive(Debug, Serialize)]
pub struct BenchAgentRecord {
    pub host: String,
    pub kernel: String,
    pub cpus: usize,
    /// Where its requests went.
    pub address: String,
    pub all: BenchFigures,
    pub limits: Vec<String>,
}

/// Figures of one endpoint, by round and in all.
#[derive(Debug, Serialize)]
pub struct BenchSideRecord {
    pub label: String,
    pub address: String,
    pub signed: bool,
    pub rounds: Vec<BenchFigures>,
    /// All rounds together.
    pub all: BenchFigures,
    /// Points (percentile, µs).
    pub latency_curve: Vec<(f64, u64)>,
    pub examples: Vec<String>,
}

/// Figures of one round, or of all rounds together. Rates count the requests that succeeded.
#[derive(Debug, Serialize)]
pub struct BenchFigures {
    pub seconds: f64,
    pub requests: u64,
    pub bytes: u64,
    pub requests_per_second: f64,
    pub mib_per_second: f64,
    pub latency: Option<LatencyPercentiles>,
    pub first_byte: Option<LatencyPercentiles>,
    pub server_cpu_us_per_request: Option<f64>,
    pub server_cpu_us_per_mib: Option<f64>,
    pub errors: BTreeMap<String, u64>,
    pub wrong_answers: u64,
    pub cache: BTreeMap<String, u64>,
    pub kinds: BTreeMap<&'static str, ExchangeKindFigures>,
    pub effort: BenchEffort,
}

/// Figures of one kind of exchange.
#[derive(Debug, Serialize)]
pub struct ExchangeKindFigures {
    pub requests: u64,
    pub bytes: u64,
    pub latency: Option<LatencyPercentiles>,
    pub first_byte: Option<LatencyPercentiles>,
}

/// Microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LatencyPercentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl LatencyPercentiles {
    fn from_latencies(latencies: &LatencyTally) -> Option<Self> {
        let at = |percentile| latencies.time_at_percentile(percentile).map(whole_micros);
        Some(Self {
            p50: at(50.0)?,
            p90: at(90.0)?,
            p99: at(99.0)?,
            p999: at(99.9)?,
            max: whole_micros(latencies.max_time()?),
        })
    }
}

fn whole_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl BenchFigures {
    fn from_outcome(outcome: &BenchRoundOutcome) -> Self {
        let BenchRoundOutcome { tally, took, server_cpu, effort } = outcome;
        let (sum, seconds) = (tally.sum_kinds(), took.as_secs_f64().max(1e-9));
        let (requests, mib) = (sum.latency.sample_count(), sum.bytes as f64 / MIB);
        let per = |count: f64| {
            server_cpu.filter(|_| count > 0.0).map(|cpu| cpu.as_secs_f64() * 1e6 / count)
        };
        Self {
            seconds,
            requests,
            bytes: sum.bytes,
            requests_per_second: requests as f64 / seconds,
            mib_per_second: mib / seconds,
            latency: LatencyPercentiles::from_latencies(&sum.latency),
            first_byte: LatencyPercentiles::from_latencies(&sum.first_byte),
            server_cpu_us_per_request: per(requests as f64),
            server_cpu_us_per_mib: per(mib),
            errors: tally.errors.clone(),
            wrong_answers: tally.wrong,
            cache: tally.cache.clone(),
            kinds: tally
                .kinds
                .iter()
                .map(|(kind, of_kind)| (kind.as_str(), ExchangeKindFigures::from_tally(of_kind)))
                .collect(),
            effort: *effort,
        }
    }

    /// Returns the sum of the errors of all kinds.
    pub fn errors_in_all(&self) -> u64 {
        sum_counts(&self.errors)
    }

    /// Computes the figures of several hosts that measured at once. Rates are the sums of theirs;
    /// latencies are of all requests.
    pub fn from_agents(outcomes: &[BenchRoundOutcome]) -> Self {
        let mut merged = Self::from_outcome(&BenchRoundOutcome::merge_hosts(outcomes));
        let each: Vec<Self> = outcomes.iter().map(Self::from_outcome).collect();
        merged.requests_per_second = each.iter().map(|host| host.requests_per_second).sum();
        merged.mib_per_second = each.iter().map(|host| host.mib_per_second).sum();
        merged
    }
}

impl ExchangeKindFigures {
    fn from_tally(of_kind: &ExchangeKindTally) -> Self {
        Self {
            requests: of_kind.latency.sample_count(),
            bytes: of_kind.bytes,
            latency: LatencyPercentiles::from_latencies(&of_kind.latency),
            first_byte: LatencyPercentiles::from_latencies(&of_kind.first_byte),
        }
    }
}

/// Who was measured, as the record names it.
struct MeasuredSide {
    label: String,
    address: String,
    signed: bool,
}

impl BenchSideRecord {
    /// Computes one endpoint's figures from the outcomes of its measured rounds.
    pub fn from_outcomes(endpoint: &BenchEndpoint, outcomes: &[BenchRoundOutcome]) -> Self {
        let side = MeasuredSide {
            label: endpoint.label.clone(),
            address: endpoint.address.to_string(),
            signed: endpoint.signer.is_signing(),
        };
        Self::from_rounds(side, outcomes)
    }

    /// Computes the figures of several hosts that measured at once: of `rounds`, and of all rounds
    /// of each host (`by_agent`) together.
    pub fn from_agents(
        hosts: &[AgentHost],
        rounds: Vec<BenchFigures>,
        by_agent: &[BenchRoundOutcome],
    ) -> Self {
        let addresses: BTreeSet<&str> = hosts.iter().map(|host| host.address.as_str()).collect();
        let side = MeasuredSide {
            label: hosts.first().map(|host| host.label.clone()).unwrap_or_default(),
            address: addresses.into_iter().collect::<Vec<_>>().join(", "),
            signed: hosts.iter().any(|host| host.signed),
        };
        let all = BenchFigures::from_agents(by_agent);
        Self { rounds, all, ..Self::from_rounds(side, by_agent) }
    }

    fn from_rounds(side: MeasuredSide, outcomes: &[BenchRoundOutcome]) -> Self {
        let whole = BenchRoundOutcome::add_rounds(outcomes);
        let curve = whole.tally.sum_kinds().latency;
        let latency_curve = CURVE
            .iter()
            .filter_map(|&at| Some((at, whole_micros(curve.time_at_percentile(at)?))))
            .collect();
        let MeasuredSide { label, address, signed } = side;
        Self {
            label,
            address,
            signed,
            rounds: outcomes.iter().map(BenchFigures::from_outcome).collect(),
            all: BenchFigures::from_outcome(&whole),
            latency_curve,
            examples: whole.tally.examples,
        }
    }
}

impl BenchRoundOutcome {
    /// Adds rounds that followed each other. Times that are too long stay at the most: another host
    /// may have measured anything.
    pub fn add_rounds(outcomes: &[Self]) -> Self {
        let times = outcomes.iter().map(|outcome| outcome.took);
        let took = times.fold(Duration::ZERO, Duration::saturating_add);
        Self { took, ..Self::merge_hosts(outcomes) }
    }

    /// Merges what several hosts measured at once: that took as long as the longest.
    fn merge_hosts(outcomes: &[Self]) -> Self {
        let mut tally = BenchRoundTally::default();
        outcomes.iter().for_each(|outcome| tally.merge_from(&outcome.tally));
        let took = outcomes.iter().map(|outcome| outcome.took).max().unwrap_or_default();
        let mut times = outcomes.iter().map(|outcome| outcome.server_cpu);
        let server_cpu =
            times.try_fold(Duration::ZERO, |sum, time| Some(sum.saturating_add(time?)));
        Self { tally, took, server_cpu, effort: worst_effort(outcomes) }
    }
}

/// Returns the worst of each figure over rounds.
fn worst_effort(outcomes: &[BenchRoundOutcome]) -> BenchEffort {
    let mut all = BenchEffort { host_idle: 1.0, ..BenchEffort::default() };
    for effort in outcomes.iter().map(|outcome| outcome.effort) {
        all.cpus = effort.cpus;
        all.host_idle = all.host_idle.min(effort.host_idle);
        let both = [
            (&mut all.cpus_used, effort.cpus_used),
            (&mut all.busiest, effort.busiest),
            (&mut all.waiting, effort.waiting),
            (&mut all.woken_late, effort.woken_late),
            (&mut all.queued, effort.queued),
            (&mut all.not_sent, effort.not_sent),
        ];
        both.into_iter().for_each(|(worst, this)| *worst = worst.max(this));
    }
    all
}

impl BenchRecord {
    /// Computes ratios and limits. `sides`: the target and its reference, if any.
    pub fn new(scenario: BenchScenario, sides: Vec<BenchSideRecord>) -> Self {
        let limits = sides
            .iter()
            .flat_map(|side| {
                bench_limits::find_limits(&side.all.effort)
                    .into_iter()
                    .map(|limit| format!("{}: {limit}", side.label))
            })
            .collect();
        let ratios = match sides.as_slice() {
            [target, against] => compare_sides(target, against, scenario.seed),
            _ => BTreeMap::new(),
        };
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned();
        let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            kernel,
            cpus,
            scenario,
            sides,
            ratios,
            limits,
            agents: Vec::new(),
            start_skew_us_max: None,
        }
    }

    /// Returns the number of errors of all sides and all rounds.
    pub fn error_count(&self) -> u64 {
        self.sides.iter().map(|side| side.all.errors_in_all()).fold(0, u64::saturating_add)
    }
}

/// Selects a figure of a round.
type FigureSelector = fn(&BenchFigures) -> Option<f64>;

/// Figures that are compared between two sides, with their names in JSON.
pub const COMPARED: [(&str, FigureSelector); 6] = [
    ("requests_per_second", |figures| Some(figures.requests_per_second)),
    ("mib_per_second", |figures| Some(figures.mib_per_second)),
    ("latency_p50", |figures| Some(figures.latency?.p50 as f64)),
    ("latency_p99", |figures| Some(figures.latency?.p99 as f64)),
    ("first_byte_p50", |figures| Some(figures.first_byte?.p50 as f64)),
    ("server_cpu_per_request", |figures| figures.server_cpu_us_per_request),
];

fn compare_sides(
    target: &BenchSideRecord,
    against: &BenchSideRecord,
    seed: u64,
) -> BTreeMap<&'static str, RatioEstimate> {
    let of = |side: &BenchSideRecord, figure: FigureSelector| -> Vec<f64> {
        side.rounds.iter().map(|round| figure(round).unwrap_or(f64::NAN)).collect()
    };
    COMPARED
        .iter()
        .filter_map(|(name, figure)| {
            Some((*name, estimate_ratio(&of(target, *figure), &of(against, *figure), seed)?))
        })
        .collect()
}

/// Returns the median of a figure over a side's rounds.
pub fn median_over_rounds(
    side: &BenchSideRecord,
    figure: impl Fn(&BenchFigures) -> Option<f64>,
) -> Option<f64> {
    median(&side.rounds.iter().filter_map(figure).collect::<Vec<_>>())
}
