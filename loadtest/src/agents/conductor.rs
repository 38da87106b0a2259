//! The conductor: takes agents through the rounds of a scenario together. Owns the moment at which a
//! round starts, and what is done about an agent that is lost: the run fails with its name.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::link::{AgentEvent, AgentLink};
use super::protocol::{AgentMessage, AgentPlan, ConductorMessage};
use crate::bench_record::{AgentHost, BenchFigures};
use crate::bench_round::BenchRoundOutcome;
use crate::scenario::{BenchScenario, LoadShare};

/// Messages there and back by which an agent's distance is measured; the fastest counts.
const PINGS: u32 = 5;
/// Time for sending the start to all before the round begins, besides the longest way to one.
const START_MARGIN: Duration = Duration::from_millis(50);
/// Pause between two looks for silent agents.
const LOOK: Duration = Duration::from_millis(200);

/// How long a conductor waits for agents.
#[derive(Debug, Clone, Copy)]
pub struct AgentPatience {
    /// An agent that has said nothing for so long is lost. It says that it is alive every 3 s.
    pub silence_max: Duration,
}

/// Why a run of agents failed. Each names the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("agent {agent} is lost: {said}")]
    Lost { agent: String, said: String },
    #[error("agent {agent} is lost: nothing was heard of it for {silence:?}")]
    Silent { agent: String, silence: Duration },
    #[error("agent {agent} failed: {said}")]
    Failed { agent: String, said: String },
    #[error("agent {agent} said what was not due: {said}")]
    Unexpected { agent: String, said: String },
}

/// Agents under one conductor.
pub struct AgentConductor {
    links: Vec<AgentLink>,
    events: Receiver<(usize, AgentEvent)>,
    /// Half of the fastest way there and back, by agent.
    distances: Vec<Duration>,
    hosts: Vec<AgentHost>,
    patience: AgentPatience,
}

/// What agents found. Single outcomes are not kept: memory does not grow with rounds times agents.
pub struct AgentRounds {
    pub hosts: Vec<AgentHost>,
    /// Of all agents together, by round.
    pub figures: Vec<BenchFigures>,
    /// Of all rounds together, by agent.
    pub by_agent: Vec<BenchRoundOutcome>,
    /// The longest half of a way there and back: rounds start together but for this.
    pub start_skew_max: Duration,
}

impl AgentConductor {
    /// Gives every agent its plan, with a share of its own unless `plan.share` is to be that of all,
    /// and waits until all are ready.
    pub fn start_agents(
        mut links: Vec<AgentLink>,
        plan: &AgentPlan,
        shares: bool,
        patience: AgentPatience,
    ) -> Result<Self, AgentError> {
        let (sender, events) = mpsc::channel();
        for (number, link) in links.iter_mut().enumerate() {
            link.start_reading(number, sender.clone()).map_err(|error| AgentError::Lost {
                agent: link.name.clone(),
                said: format!("no thread to read it: {error}"),
            })?;
        }
        let count = links.len();
        let mut conductor = Self {
            links,
            events,
            distances: vec![Duration::ZERO; count],
            hosts: Vec::new(),
            patience,
        };
        for number in 0..count {
            let mut plan = plan.clone();
            if shares {
                plan.share = LoadShare { number: number as u64, count: count as u64 };
            }
            conductor.send_to(number, &ConductorMessage::Plan(Box::new(plan)))?;
        }
        let all: Vec<usize> = (0..count).collect();
        conductor.hosts = conductor.await_answers(&all, |message| match message {
            AgentMessage::Ready(host) => Ok(host),
            other => Err(other),
        })?;
        Ok(conductor)
    }

    /// Puts objects in and reads them once, by the first agent, as the scenario wants it. Then runs
    /// the warm-up and every round, on all agents at once.
    pub fn run_rounds(
        mut self,
        scenario: &BenchScenario,
        prepares: bool,
    ) -> Result<AgentRounds, AgentError> {
        if prepares {
            self.run_first(&ConductorMessage::Prepare)?;
        }
        if scenario.rounds.prime {
            self.run_first(&ConductorMessage::Prime)?;
        }
        self.measure_distances()?;
        if scenario.warms_up() {
            let outcomes = self.run_round(None)?;
            for (number, outcome) in outcomes.iter().enumerate() {
                if outcome.tally.sum_kinds().latency.sample_count() == 0 {
                    let example = outcome.tally.examples.first();
                    let example = example.map_or("no answer came", String::as_str);
                    let said = format!("nothing worked in the warm-up: {example}");
                    return Err(AgentError::Failed { agent: self.name_of(number), said });
                }
            }
        }
        let (mut figures, mut by_agent) = (Vec::new(), Vec::<BenchRoundOutcome>::new());
        for number in 0..scenario.rounds.count {
            let outcomes = self.run_round(Some(number))?;
            figures.push(BenchFigures::from_agents(&outcomes));
            by_agent = match by_agent.is_empty() {
                true => outcomes,
                false => by_agent
                    .into_iter()
                    .zip(outcomes)
                    .map(|(before, now)| BenchRoundOutcome::add_rounds(&[before, now]))
                    .collect(),
            };
        }
        let start_skew_max = self.distances.iter().copied().max().unwrap_or_default();
        Ok(AgentRounds { hosts: self.hosts, figures, by_agent, start_skew_max })
    }

    /// Puts objects in by the first agent.
    pub fn put_objects_in(mut self) -> Result<(), AgentError> {
        self.run_first(&ConductorMessage::Prepare)
    }

    fn run_first(&mut self, message: &ConductorMessage) -> Result<(), AgentError> {
        self.send_to(0, message)?;
        self.await_answers(&[0], |message| match message {
            AgentMessage::Done => Ok(()),
            other => Err(other),
        })?;
        Ok(())
    }

    fn measure_distances(&mut self) -> Result<(), AgentError> {
        for number in 0..self.links.len() {
            let mut fastest = Duration::MAX;
            for ping in 0..PINGS {
                let sent = Instant::now();
                self.send_to(number, &ConductorMessage::Ping(ping))?;
                self.await_answers(&[number], |message| match message {
                    AgentMessage::Pong(pong) if pong == ping => Ok(()),
                    other => Err(other),
                })?;
                fastest = fastest.min(sent.elapsed());
            }
            self.distances[number] = fastest / 2;
        }
        Ok(())
    }

    /// Arms every agent, and tells each when to begin, sooner to those that hear of it later.
    fn run_round(&mut self, round: Option<u32>) -> Result<Vec<BenchRoundOutcome>, AgentError> {
        let all: Vec<usize> = (0..self.links.len()).collect();
        for &number in &all {
            self.send_to(number, &ConductorMessage::Arm(round))?;
        }
        self.await_answers(&all, |message| match message {
            AgentMessage::Armed => Ok(()),
            other => Err(other),
        })?;
        let longest = self.distances.iter().copied().max().unwrap_or_default();
        let begins = Instant::now() + longest + START_MARGIN;
        for &number in &all {
            let left = begins.saturating_duration_since(Instant::now());
            let wait = left.saturating_sub(self.distances[number]);
            let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
            self.send_to(number, &ConductorMessage::Start { wait_us })?;
        }
        self.await_answers(&all, |message| match message {
            AgentMessage::Outcome(outcome) => Ok(*outcome),
            other => Err(other),
        })
    }

    fn name_of(&self, number: usize) -> String {
        self.links[number].name.clone()
    }

    fn send_to(&mut self, number: usize, message: &ConductorMessage) -> Result<(), AgentError> {
        if self.links[number].send_message(message).is_ok() {
            return Ok(());
        }
        // What it said last says more than a broken pipe.
        let last = self.await_answers(&[number], Err::<(), _>);
        let said = "its input is closed".to_owned();
        Err(last.err().unwrap_or(AgentError::Lost { agent: self.name_of(number), said }))
    }

    /// Waits for one answer of each agent of `whom`, and gives them in that order. An agent that is
    /// lost or fails meanwhile ends the run, whether or not its answer is awaited.
    fn await_answers<T>(
        &mut self,
        whom: &[usize],
        pick: impl Fn(AgentMessage) -> Result<T, AgentMessage>,
    ) -> Result<Vec<T>, AgentError> {
        let mut answers: Vec<Option<T>> = whom.iter().map(|_| None).collect();
        let mut look = Instant::now() + LOOK;
        while answers.iter().any(Option::is_none) {
            let event = self.events.recv_timeout(look.saturating_duration_since(Instant::now()));
            // By the clock: who says much must not hide who says nothing.
            if Instant::now() >= look {
                self.find_silent()?;
                look = Instant::now() + LOOK;
            }
            let Ok((number, event)) = event else { continue };
            let agent = || self.name_of(number);
            let message = match event {
                AgentEvent::Gone(said) => return Err(AgentError::Lost { agent: agent(), said }),
                AgentEvent::Message(AgentMessage::Alive) => continue,
                AgentEvent::Message(AgentMessage::Failed { said }) => {
                    return Err(AgentError::Failed { agent: agent(), said });
                }
                AgentEvent::Message(message) => message,
            };
            let place = whom.iter().position(|&asked| asked == number);
            let place = place.filter(|&place| answers[place].is_none());
            let unexpected = |message: &AgentMessage| {
                let said: String = format!("{message:?}").chars().take(80).collect();
                AgentError::Unexpected { agent: agent(), said }
            };
            match place {
                None => return Err(unexpected(&message)),
                Some(place) => {
                    answers[place] = Some(pick(message).map_err(|message| unexpected(&message))?);
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn find_silent(&self) -> Result<(), AgentError> {
        let silence = self.patience.silence_max;
        let silent = self.links.iter().position(|link| link.silence() > silence);
        match silent {
            None => Ok(()),
            Some(number) => Err(AgentError::Silent { agent: self.name_of(number), silence }),
        }
    }
}
