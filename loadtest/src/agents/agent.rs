//! One agent: does what its conductor says, over a pipe, and tells that it is alive meanwhile. It ends
//! with its input.

use std::cell::RefCell;
use std::io::{BufRead, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::protocol::{
    AGENT_PROTOCOL, AgentMessage, AgentPlan, ConductorMessage, read_message, write_message,
};
use crate::bench_record::AgentHost;
use crate::bench_round::{self, ArmedRound};
use crate::client::BenchChecksums;
use crate::comparison::{self, BenchPreparation};
use crate::endpoint::BenchEndpoint;
use crate::request_plan::BenchRound;
use crate::scenario::BenchScenario;

/// Pause between two signs of life.
const ALIVE_EVERY: Duration = Duration::from_secs(3);
/// Longest wait before a round: a conductor asks for parts of a second.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Obeys the conductor until `input` ends. A failure is told to it before this returns.
pub fn run_agent(input: impl BufRead, output: impl Write + Send) -> anyhow::Result<()> {
    let output = Mutex::new(output);
    let send = |message: &AgentMessage| {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        write_message(&mut *output, message).context("the conductor is gone")
    };
    let send = &send;
    let (over, ended) = mpsc::channel::<()>();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            // Ends with the agent, or with the conductor.
            while ended.recv_timeout(ALIVE_EVERY) == Err(RecvTimeoutError::Timeout)
                && send(&AgentMessage::Alive).is_ok()
            {}
        });
        let result = obey_conductor(&RefCell::new(input), send);
        if let Err(error) = &result {
            // Without a conductor nobody is to be told.
            let _ = send(&AgentMessage::Failed { said: format!("{error:#}") });
        }
        drop(over);
        result
    })
}

/// What an agent has of its plan.
struct AgentJob {
    scenario: BenchScenario,
    endpoint: BenchEndpoint,
    checksums: BenchChecksums,
}

fn obey_conductor<R: BufRead>(
    input: &RefCell<R>,
    send: &dyn Fn(&AgentMessage) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = || {
        read_message::<ConductorMessage>(&mut *input.borrow_mut())
            .context("the conductor's message")
    };
    let plan = match next()? {
        Some(ConductorMessage::Plan(plan)) => plan,
        Some(_) => bail!("the conductor sent no plan first"),
        None => return Ok(()),
    };
    let job = AgentJob::from_plan(&plan)?;
    send(&AgentMessage::Ready(job.describe_host()))?;
    while let Some(message) = next()? {
        match message {
            ConductorMessage::Ping(number) => send(&AgentMessage::Pong(number))?,
            ConductorMessage::Prepare => {
                let (scenario, target) = (&job.scenario, &job.endpoint);
                comparison::put_in(scenario, target, None, BenchPreparation::Target)?;
                send(&AgentMessage::Done)?;
            }
            ConductorMessage::Prime => {
                let round = BenchRound::Measured(0);
                bench_round::prime_objects(&job.scenario, &job.endpoint, round, &|_| {})?;
                send(&AgentMessage::Done)?;
            }
            ConductorMessage::Arm(round) => {
                let await_start = || {
                    send(&AgentMessage::Armed)?;
                    match next()? {
                        Some(ConductorMessage::Start { wait_us }) => {
                            std::thread::sleep(Duration::from_micros(wait_us).min(WAIT_MAX));
                            Ok(())
                        }
                        _ => bail!("the conductor did not start the round"),
                    }
                };
                let outcome = job.run_round(round, &await_start)?;
                send(&AgentMessage::Outcome(Box::new(outcome)))?;
            }
            ConductorMessage::Plan(_) | ConductorMessage::Start { .. } => {
                bail!("the conductor sent what was not due")
            }
        }
    }
    Ok(())
}

impl AgentJob {
    fn from_plan(plan: &AgentPlan) -> anyhow::Result<Self> {
        let (own, theirs) = (env!("CARGO_PKG_VERSION"), &plan.version);
        ensure!(
            plan.protocol == AGENT_PROTOCOL && plan.version == own,
            "this is verbs3 {own}, and the conductor is {theirs}: install the same release"
        );
        let mut scenario = BenchScenario::parse(&plan.scenario).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", lines.join("; "))
        })?;
        scenario.share = plan.share;
        plan.changes.apply_overrides(&mut scenario)?;
        let endpoint =
            BenchEndpoint::parse(&plan.target, "target", plan.credentials.as_ref(), &[])?;
        // Fresh objects are read once, and have other contents in each round.
        let objects = if scenario.objects.fresh { 0 } else { scenario.objects.count };
        Ok(Self { scenario, endpoint, checksums: BenchChecksums::new(objects) })
    }

    fn describe_host(&self) -> AgentHost {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        AgentHost {
            kernel: kernel.trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            label: self.endpoint.label.clone(),
            address: self.endpoint.address.to_string(),
            signed: self.endpoint.signer.is_signing(),
        }
    }

    fn run_round(
        &self,
        round: Option<u32>,
        await_start: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<bench_round::BenchRoundOutcome> {
        let rounds = &self.scenario.rounds;
        let (round, time) = match round {
            None => (BenchRound::WarmUp, rounds.warm_up),
            Some(number) => (BenchRound::Measured(number), rounds.time),
        };
        let armed = ArmedRound { round, time, await_start };
        bench_round::run_armed_round(&self.scenario, &self.endpoint, &self.checksums, armed)
    }
}
