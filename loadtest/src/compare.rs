//! A whole run: objects put in, warm-up, rounds that take turns between the sides, and the record
//! of it.
//!
//! Interleaved (B, A, B, A, …), so that what changes on the machine changes for both. Owns the
//! order; `round` does the work.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::client::Checksums;
use crate::endpoint::Endpoint;
use crate::plan::{Kind, Plan, Round};
use crate::progress::Progress;
use crate::record::{Record, Side};
use crate::reference::Nginx;
use crate::round::{self, Outcome};
use crate::scenario::{Pace, Scenario};

/// Files of a reference server lie in memory: more is a mistake.
const FILES_BYTES_MAX: u64 = 8 << 30;

/// Which sides get the objects that are not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepare {
    Both,
    Target,
    Against,
    Neither,
}

/// What a target is held against.
#[derive(Debug)]
pub enum Against {
    Nothing,
    Endpoint(Endpoint),
    /// nginx sending the same objects from memory, started for this run.
    Nginx,
}

/// One side while it runs.
struct Running<'a> {
    endpoint: &'a Endpoint,
    checksums: Checksums,
    outcomes: Vec<Outcome>,
}

/// Puts in what is missing, measures, and gives the record.
pub fn run(
    scenario: Scenario,
    target: &Endpoint,
    against: &Against,
    prepare: Prepare,
) -> anyhow::Result<Record> {
    let nginx = match against {
        Against::Nginx => Some(reference(&scenario)?),
        _ => None,
    };
    let reference = nginx.as_ref().map(|nginx| nginx.endpoint()).transpose()?;
    let against = match against {
        Against::Endpoint(endpoint) => Some(endpoint),
        _ => reference.as_ref(),
    };
    put_in(&scenario, target, against.filter(|_| nginx.is_none()), prepare)?;
    let endpoints: Vec<&Endpoint> = [target].into_iter().chain(against).collect();
    let mut sides: Vec<Running<'_>> =
        endpoints.into_iter().map(|endpoint| Running::new(&scenario, endpoint)).collect();
    if scenario.rounds.prime {
        for side in &sides {
            let bar = Progress::objects(
                &format!("{}: reading all once", side.endpoint.label),
                scenario.objects.count,
            );
            round::prime(&scenario, side.endpoint, Round::Measured(0), &|count| bar.add(count))?;
        }
    }
    if scenario.warms_up() {
        for side in sides.iter_mut().rev() {
            let outcome = side.round(&scenario, Round::WarmUp, scenario.rounds.warm_up)?;
            if outcome.tally.sum().latency.count() == 0 {
                let example =
                    outcome.tally.examples.first().map_or("no answer came", String::as_str);
                bail!("{}: nothing worked in the warm-up: {example}", side.endpoint.label);
            }
        }
    }
    for number in 0..scenario.rounds.count {
        for side in sides.iter_mut().rev() {
            let outcome = side.round(&scenario, Round::Measured(number), scenario.rounds.time)?;
            side.outcomes.push(outcome);
        }
    }
    let sides = sides.iter().map(|side| Side::of(side.endpoint, &side.outcomes)).collect();
    Ok(Record::new(scenario, sides))
}

impl<'a> Running<'a> {
    fn new(scenario: &Scenario, endpoint: &'a Endpoint) -> Self {
        // Fresh objects are read once, and have other contents in each round.
        let objects = if scenario.objects.fresh { 0 } else { scenario.objects.count };
        Self { endpoint, checksums: Checksums::new(objects), outcomes: Vec::new() }
    }

    fn round(&self, scenario: &Scenario, round: Round, time: Duration) -> anyhow::Result<Outcome> {
        let what = match round {
            Round::WarmUp => format!("{}: warm-up", self.endpoint.label),
            Round::Measured(number) => format!("{}: round {}", self.endpoint.label, number + 1),
        };
        let job = || round::run(scenario, self.endpoint, &self.checksums, round, time);
        Progress::during(&what, time, job).context(what)
    }
}

/// Puts in what is missing and measures nothing.
pub fn put_in(
    scenario: &Scenario,
    target: &Endpoint,
    against: Option<&Endpoint>,
    prepare: Prepare,
) -> anyhow::Result<()> {
    if scenario.writes() {
        return Ok(());
    }
    let chosen = match prepare {
        Prepare::Both => [Some(target), against],
        Prepare::Target => [Some(target), None],
        Prepare::Against => [None, against],
        Prepare::Neither => [None, None],
    };
    for endpoint in chosen.into_iter().flatten() {
        let bar = Progress::objects(
            &format!("{}: putting objects in", endpoint.label),
            scenario.objects_in_all(),
        );
        for round in rounds(scenario) {
            round::prepare(scenario, endpoint, round, &|count| bar.add(count))?;
        }
    }
    Ok(())
}

/// Those that have objects of their own.
fn rounds(scenario: &Scenario) -> Vec<Round> {
    if !scenario.objects.fresh {
        return vec![Round::Measured(0)];
    }
    let warm_up = scenario.warms_up().then_some(Round::WarmUp);
    warm_up.into_iter().chain((0..scenario.rounds.count).map(Round::Measured)).collect()
}

fn reference(scenario: &Scenario) -> anyhow::Result<Nginx> {
    ensure!(!scenario.writes(), "nginx takes no writes: give an S3 endpoint for --against");
    let bytes = scenario.objects_in_all().saturating_mul(scenario.objects.bytes_to);
    ensure!(
        bytes <= FILES_BYTES_MAX,
        "the objects are too large for nginx to have in memory: {bytes} bytes"
    );
    let nginx = Nginx::start()?;
    for round in rounds(scenario) {
        let plan = Plan::new(scenario, round);
        for object in 0..scenario.objects.count {
            let step = plan.whole(Kind::Put, object);
            nginx.put_content(&plan.key(object), plan.content(object, 0), step.bytes)?;
        }
    }
    Ok(nginx)
}

/// Changes that a command line makes to a scenario.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    pub rounds: Option<u32>,
    pub time: Option<Duration>,
    pub warm_up: Option<Duration>,
    pub connections: Option<usize>,
    pub requests_per_second: Option<f64>,
    pub verify: Option<f64>,
    pub seed: Option<u64>,
}

impl Changes {
    pub fn apply(&self, scenario: &mut Scenario) -> anyhow::Result<()> {
        let (rounds, load) = (&mut scenario.rounds, &mut scenario.load);
        rounds.count = self.rounds.unwrap_or(rounds.count);
        rounds.time = self.time.unwrap_or(rounds.time);
        rounds.warm_up = self.warm_up.unwrap_or(rounds.warm_up);
        load.connections = self.connections.unwrap_or(load.connections);
        scenario.verify = self.verify.unwrap_or(scenario.verify);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        match (&mut load.pace, self.requests_per_second) {
            (Pace::Open { requests_per_second, .. }, Some(rate)) => *requests_per_second = rate,
            (pace, Some(rate)) => *pace = Pace::Open { requests_per_second: rate, poisson: true },
            (_, None) => {}
        }
        let problems = scenario.contradictions();
        let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
        ensure!(problems.is_empty(), "{}", shown.join("\n"));
        Ok(())
    }
}
