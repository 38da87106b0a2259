//! Performs a whole run: writes objects, warms up, alternates rounds between the sides, and makes
//! the record.
//!
//! Rounds alternate (B, A, B, A, …), so that changes on the machine affect both sides. Owns the
//! order; `run_bench_round` does the work.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::bench_record::{BenchRecord, BenchSideRecord};
use crate::bench_round::{self, BenchRoundOutcome};
use crate::client::BenchChecksums;
use crate::endpoint::BenchEndpoint;
use crate::nginx_reference::NginxReference;
use crate::progress::BenchProgressBar;
use crate::request_plan::{BenchRequestPlan, BenchRound, ExchangeKind};
use crate::scenario::{BenchScenario, ScenarioPace};

/// Most bytes of a reference server's files, which lie in memory: more is a mistake.
const FILES_BYTES_MAX: u64 = 8 << 30;

/// Which sides get the missing objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchPreparation {
    Both,
    Target,
    Against,
    Neither,
}

/// What a target is compared with.
#[derive(Debug)]
pub enum BenchReference {
    Nothing,
    Endpoint(BenchEndpoint),
    /// nginx sending the same objects from memory, started for this run.
    Nginx,
}

/// One side during a run.
struct RunningBenchSide<'a> {
    endpoint: &'a BenchEndpoint,
    checksums: BenchChecksums,
    outcomes: Vec<BenchRoundOutcome>,
}

/// Writes the missing objects, measures, and returns the record.
pub fn run_comparison(
    scenario: BenchScenario,
    target: &BenchEndpoint,
    against: &BenchReference,
    prepare: BenchPreparation,
) -> anyhow::Result<BenchRecord> {
    let nginx = match against {
        BenchReference::Nginx => Some(start_reference(&scenario)?),
        _ => None,
    };
    let reference = nginx.as_ref().map(|nginx| nginx.bench_endpoint()).transpose()?;
    let against = match against {
        BenchReference::Endpoint(endpoint) => Some(endpoint),
        _ => reference.as_ref(),
    };
    put_in(&scenario, target, against.filter(|_| nginx.is_none()), prepare)?;
    let endpoints: Vec<&BenchEndpoint> = [target].into_iter().chain(against).collect();
    let mut sides: Vec<RunningBenchSide<'_>> =
        endpoints.into_iter().map(|endpoint| RunningBenchSide::new(&scenario, endpoint)).collect();
    if scenario.rounds.prime {
        for side in &sides {
            let bar = BenchProgressBar::for_objects(
                &format!("{}: reading all once", side.endpoint.label),
                scenario.objects.count,
            );
            bench_round::prime_objects(
                &scenario,
                side.endpoint,
                BenchRound::Measured(0),
                &|count| bar.add_count(count),
            )?;
        }
    }
    if scenario.warms_up() {
        for side in sides.iter_mut().rev() {
            let outcome = side.run_round(&scenario, BenchRound::WarmUp, scenario.rounds.warm_up)?;
            if outcome.tally.sum_kinds().latency.sample_count() == 0 {
                let example =
                    outcome.tally.examples.first().map_or("no answer came", String::as_str);
                bail!("{}: nothing worked in the warm-up: {example}", side.endpoint.label);
            }
        }
    }
    for number in 0..scenario.rounds.count {
        for side in sides.iter_mut().rev() {
            let outcome =
                side.run_round(&scenario, BenchRound::Measured(number), scenario.rounds.time)?;
            side.outcomes.push(outcome);
        }
    }
    let sides = sides
        .iter()
        .map(|side| BenchSideRecord::from_outcomes(side.endpoint, &side.outcomes))
        .collect();
    Ok(BenchRecord::new(scenario, sides))
}

impl<'a> RunningBenchSide<'a> {
    fn new(scenario: &BenchScenario, endpoint: &'a BenchEndpoint) -> Self {
        // Fresh objects are read once, and have other contents in each round.
        let objects = if scenario.objects.fresh { 0 } else { scenario.objects.count };
        Self { endpoint, checksums: BenchChecksums::new(objects), outcomes: Vec::new() }
    }

    fn run_round(
        &self,
        scenario: &BenchScenario,
        round: BenchRound,
        time: Duration,
    ) -> anyhow::Result<BenchRoundOutcome> {
        let what = match round {
            BenchRound::WarmUp => format!("{}: warm-up", self.endpoint.label),
            BenchRound::Measured(number) => {
                format!("{}: round {}", self.endpoint.label, number + 1)
            }
        };
        let job =
            || bench_round::run_bench_round(scenario, self.endpoint, &self.checksums, round, time);
        BenchProgressBar::run_with_bar(&what, time, job).context(what)
    }
}

/// Writes the missing objects and measures nothing.
pub fn put_in(
    scenario: &BenchScenario,
    target: &BenchEndpoint,
    against: Option<&BenchEndpoint>,
    prepare: BenchPreparation,
) -> anyhow::Result<()> {
    if scenario.writes_objects() {
        return Ok(());
    }
    let chosen = match prepare {
        BenchPreparation::Both => [Some(target), against],
        BenchPreparation::Target => [Some(target), None],
        BenchPreparation::Against => [None, against],
        BenchPreparation::Neither => [None, None],
    };
    for endpoint in chosen.into_iter().flatten() {
        let bar = BenchProgressBar::for_objects(
            &format!("{}: putting objects in", endpoint.label),
            scenario.objects_in_all(),
        );
        for round in rounds_with_objects(scenario) {
            bench_round::prepare_objects(scenario, endpoint, round, &|count| bar.add_count(count))?;
        }
    }
    Ok(())
}

/// Returns the rounds that have objects of their own.
fn rounds_with_objects(scenario: &BenchScenario) -> Vec<BenchRound> {
    if !scenario.objects.fresh {
        return vec![BenchRound::Measured(0)];
    }
    let warm_up = scenario.warms_up().then_some(BenchRound::WarmUp);
    warm_up.into_iter().chain((0..scenario.rounds.count).map(BenchRound::Measured)).collect()
}

fn start_reference(scenario: &BenchScenario) -> anyhow::Result<NginxReference> {
    ensure!(!scenario.writes_objects(), "nginx takes no writes: give an S3 endpoint for --against");
    let bytes = scenario.objects_in_all().saturating_mul(scenario.objects.bytes_to);
    ensure!(
        bytes <= FILES_BYTES_MAX,
        "the objects are too large for nginx to have in memory: {bytes} bytes"
    );
    let nginx = NginxReference::start()?;
    for round in rounds_with_objects(scenario) {
        let plan = BenchRequestPlan::new(scenario, round);
        for object in 0..scenario.objects.count {
            let step = plan.whole_object_step(ExchangeKind::Put, object);
            nginx.put_content(
                &plan.object_key(object),
                plan.object_content(object, 0),
                step.bytes,
            )?;
        }
    }
    Ok(nginx)
}

/// Changes that a command line makes to a scenario.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ScenarioOverrides {
    pub rounds: Option<u32>,
    pub time: Option<Duration>,
    pub warm_up: Option<Duration>,
    pub connections: Option<usize>,
    pub requests_per_second: Option<f64>,
    pub verify: Option<f64>,
    pub seed: Option<u64>,
}

impl ScenarioOverrides {
    /// Overwrites the fields that are set. Fails with every contradiction that the scenario has
    /// afterwards.
    pub fn apply_overrides(&self, scenario: &mut BenchScenario) -> anyhow::Result<()> {
        let (rounds, load) = (&mut scenario.rounds, &mut scenario.load);
        rounds.count = self.rounds.unwrap_or(rounds.count);
        rounds.time = self.time.unwrap_or(rounds.time);
        rounds.warm_up = self.warm_up.unwrap_or(rounds.warm_up);
        load.connections = self.connections.unwrap_or(load.connections);
        scenario.verify = self.verify.unwrap_or(scenario.verify);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        match (&mut load.pace, self.requests_per_second) {
            (ScenarioPace::Open { requests_per_second, .. }, Some(rate)) => {
                *requests_per_second = rate
            }
            (pace, Some(rate)) => {
                *pace = ScenarioPace::Open { requests_per_second: rate, poisson: true }
            }
            (_, None) => {}
        }
        let problems = scenario.find_contradictions();
        let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
        ensure!(problems.is_empty(), "{}", shown.join("\n"));
        Ok(())
    }
}
