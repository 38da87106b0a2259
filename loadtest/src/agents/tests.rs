//! A conductor with made-up agents, and an agent with a made-up conductor. No store is asked.
#![allow(clippy::unwrap_used)]

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::protocol::{AgentMessage, ConductorMessage, read_message, write_message};
use super::*;
use crate::bench_limits::BenchEffort;
use crate::bench_record::AgentHost;
use crate::bench_round::BenchRoundOutcome;
use crate::request_plan::ExchangeKind;
use crate::scenario::{BenchScenario, LoadShare};
use crate::tally::{BenchRoundTally, ExchangeKindTally, LatencyTally};

const PATIENT: AgentPatience = AgentPatience { silence_max: Duration::from_secs(60) };

fn text(rounds: u32) -> String {
    format!(
        "name = \"x\"\n[objects]\ncount = 12\nbytes = \"1KiB\"\n[access]\npattern = \"uniform\"\n\
         [load]\nconnections = 2\n[rounds]\ncount = {rounds}\ntime = \"1s\"\nwarm_up = \"0s\"\n"
    )
}

fn plan() -> AgentPlan {
    AgentPlan {
        protocol: AGENT_PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: text(2),
        changes: crate::comparison::ScenarioOverrides::default(),
        target: "http://127.0.0.1:1/b".to_owned(),
        credentials: None,
        share: LoadShare::default(),
    }
}

fn host() -> AgentHost {
    AgentHost {
        kernel: "6".into(),
        cpus: 4,
        label: "target".into(),
        address: "127.0.0.1:1".into(),
        signed: false,
    }
}

/// A round of `count` requests of 1 MiB that took `millis` each, in `seconds`.
fn outcome(count: u64, millis: u64, seconds: u64) -> BenchRoundOutcome {
    let mut latency = LatencyTally::default();
    (0..count).for_each(|_| latency.record_time(Duration::from_millis(millis)));
    let of_kind = ExchangeKindTally { bytes: count << 20, first_byte: latency.clone(), latency };
    let mut tally = BenchRoundTally::default();
    tally.kinds.insert(ExchangeKind::Get, of_kind);
    let effort = BenchEffort { cpus: 4.0, host_idle: 0.5, ..BenchEffort::default() };
    BenchRoundOutcome { tally, took: Duration::from_secs(seconds), server_cpu: None, effort }
}

/// Starts an agent that answers by `answer`; `None` ends it.
fn made_up_agent(
    name: &str,
    answer: impl Fn(&ConductorMessage) -> Option<Vec<AgentMessage>> + Send + 'static,
) -> AgentLink {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let (mut input, mut output) = (BufReader::new(theirs.try_clone().unwrap()), theirs);
        while let Ok(Some(message)) = read_message::<ConductorMessage>(&mut input) {
            let Some(answers) = answer(&message) else { return };
            for answer in answers {
                write_message(&mut output, &answer).unwrap();
            }
        }
    });
    AgentLink::new(name, ours.try_clone().unwrap(), ours)
}

/// What a well agent answers that finds `outcome` in each round.
fn answer_well(message: &ConductorMessage, outcome: &BenchRoundOutcome) -> Vec<AgentMessage> {
    match message {
        ConductorMessage::Plan(_) => vec![AgentMessage::Alive, AgentMessage::Ready(host())],
        ConductorMessage::Ping(number) => vec![AgentMessage::Pong(*number)],
        ConductorMessage::Prepare | ConductorMessage::Prime => vec![AgentMessage::Done],
        ConductorMessage::Arm(_) => vec![AgentMessage::Armed],
        ConductorMessage::Start { .. } => {
            vec![AgentMessage::Alive, AgentMessage::Outcome(Box::new(outcome.clone()))]
        }
    }
}

fn well_agent(name: &str, outcome: BenchRoundOutcome) -> AgentLink {
    made_up_agent(name, move |message| Some(answer_well(message, &outcome)))
}

fn run(links: Vec<AgentLink>, patience: AgentPatience) -> Result<AgentRounds, AgentError> {
    let scenario = BenchScenario::parse(&text(2)).unwrap();
    AgentConductor::start_agents(links, &plan(), true, patience)?.run_rounds(&scenario, true)
}

#[test]
fn rates_are_summed_and_percentiles_are_of_all_requests() {
    // 99 quick requests here, 100 slow ones there: the mean of both p50 would be 55 ms.
    let links = vec![well_agent("a", outcome(99, 10, 1)), well_agent("b", outcome(100, 100, 2))];
    let rounds = run(links, PATIENT).unwrap();
    assert_eq!(rounds.figures.len(), 2);
    let scenario = BenchScenario::parse(&text(2)).unwrap();
    let record = merge_rounds(scenario, &["a".into(), "b".into()], rounds);
    let side = &record.sides[0];
    let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-6, "{value}");
    near(side.rounds[0].requests_per_second, 99.0 + 50.0);
    near(side.all.mib_per_second, 99.0 + 50.0);
    assert_eq!((side.all.requests, side.rounds[1].requests), (398, 199));
    let latency = side.all.latency.unwrap();
    assert!((99_900..=100_100).contains(&latency.p50), "{latency:?}");
    assert_eq!(record.agents.len(), 2);
    near(record.agents[0].all.requests_per_second, 99.0);
    let shown = crate::report::render_text(&record);
    assert!(shown.contains("2 hosts, each with these connections"), "{shown}");
}

#[test]
fn a_lost_agent_fails_the_run_by_its_name_in_every_phase() {
    let phases: [fn(&ConductorMessage) -> bool; 4] = [
        |message| matches!(message, ConductorMessage::Plan(_)),
        |message| matches!(message, ConductorMessage::Ping(_)),
        |message| matches!(message, ConductorMessage::Arm(Some(1))),
        |message| matches!(message, ConductorMessage::Start { .. }),
    ];
    for (at, dies) in phases.into_iter().enumerate() {
        let lost = made_up_agent("gpu-07", move |message| {
            (!dies(message)).then(|| answer_well(message, &outcome(1, 1, 1)))
        });
        let error = run(vec![well_agent("gpu-06", outcome(1, 1, 1)), lost], PATIENT).err().unwrap();
        assert!(error.to_string().contains("agent gpu-07 is lost"), "{at}: {error}");
    }
}

#[test]
fn a_silent_agent_is_lost_though_its_pipe_is_open() {
    let silent = made_up_agent("gpu-07", |message| {
        let round = matches!(message, ConductorMessage::Start { .. });
        Some(if round { vec![] } else { answer_well(message, &outcome(1, 1, 1)) })
    });
    let patience = AgentPatience { silence_max: Duration::from_millis(300) };
    let error = run(vec![silent], patience).err().unwrap();
    assert!(matches!(error, AgentError::Silent { ref agent, .. } if agent == "gpu-07"), "{error}");
}

/// Starts an agent that is ready, and then says that it is alive and nothing else, `count` times.
fn chatty_agent(name: &str, count: u32) -> AgentLink {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let mut input = BufReader::new(theirs.try_clone().unwrap());
        read_message::<ConductorMessage>(&mut input).unwrap();
        write_message(&mut theirs, &AgentMessage::Ready(host())).unwrap();
        for _ in 0..count {
            std::thread::sleep(Duration::from_millis(20));
            if write_message(&mut theirs, &AgentMessage::Alive).is_err() {
                return;
            }
        }
    });
    AgentLink::new(name, ours.try_clone().unwrap(), ours)
}

#[test]
fn an_agent_that_says_much_hides_no_silent_one() {
    let silent = made_up_agent("gpu-07", |_| Some(vec![]));
    let patience = AgentPatience { silence_max: Duration::from_secs(1) };
    // It ends after 20 s, and is lost then.
    let error = run(vec![silent, chatty_agent("gpu-06", 1000)], patience).err().unwrap();
    assert!(matches!(error, AgentError::Silent { ref agent, .. } if agent == "gpu-07"), "{error}");
}

/// What a terminal would obey, and what turns the direction of writing.
const HOSTILE: &str = "a\u{1b}[2J\u{202e}\u{2028}b";

fn assert_is_plain(shown: &str) {
    assert!(shown.contains("a?[2J??b"), "{shown:?}");
    let odd = |char: char| "\u{1b}\u{202e}\u{2028}".contains(char);
    assert!(!shown.contains(odd), "{shown:?}");
}

#[test]
fn what_agents_say_is_shown_as_plain_text() {
    let failing =
        made_up_agent("gpu-07", |_| Some(vec![AgentMessage::Failed { said: HOSTILE.to_owned() }]));
    assert_is_plain(&run(vec![failing], PATIENT).err().unwrap().to_string());

    let mut found = outcome(1, 1, 1);
    found.tally.errors.insert(HOSTILE.to_owned(), 1);
    found.tally.cache.insert(HOSTILE.to_owned(), 1);
    found.tally.examples = vec![HOSTILE.to_owned(); 1000];
    found.tally.errors.extend((0..1000).map(|name| (format!("x{name}"), 1)));
    let hostile = made_up_agent("gpu-07", move |message| {
        Some(match message {
            ConductorMessage::Plan(_) => vec![AgentMessage::Ready(AgentHost {
                kernel: HOSTILE.into(),
                label: HOSTILE.into(),
                address: HOSTILE.into(),
                ..host()
            })],
            other => answer_well(other, &found),
        })
    });
    let rounds = run(vec![hostile], PATIENT).unwrap();
    let errors = &rounds.by_agent[0].tally.errors;
    assert!(errors.len() < 50 && errors.values().sum::<u64>() == 2002, "{errors:?}");
    let scenario = BenchScenario::parse(&text(2)).unwrap();
    let record = merge_rounds(scenario, &["gpu-07".into()], rounds);
    assert_is_plain(&crate::report::render_text(&record));
    for text in [&record.agents[0].kernel, &record.agents[0].address, &record.sides[0].label] {
        assert_is_plain(text);
    }
    assert_is_plain(&crate::report::render_html(&record));
}

#[test]
fn absurd_figures_of_an_agent_end_no_conductor() {
    let mut absurd = outcome(1, 1, u64::MAX);
    absurd.server_cpu = Some(Duration::from_secs(u64::MAX));
    absurd.tally.wrong = u64::MAX;
    absurd.tally.errors.insert("timeout".into(), u64::MAX);
    absurd.tally.errors.insert("wrong bytes".into(), u64::MAX);
    absurd.tally.kinds.get_mut(&ExchangeKind::Get).unwrap().bytes = u64::MAX;
    let links = vec![well_agent("a", absurd.clone()), well_agent("b", absurd)];
    let rounds = run(links, PATIENT).unwrap();
    assert_eq!(rounds.by_agent[0].took, Duration::MAX);
    let scenario = BenchScenario::parse(&text(2)).unwrap();
    let record = merge_rounds(scenario, &["a".into(), "b".into()], rounds);
    assert_eq!((record.error_count(), record.sides[0].all.bytes), (u64::MAX, u64::MAX));
    assert!(crate::report::render_text(&record).contains("timeout"));
}

#[test]
fn what_an_agent_says_wrongly_is_refused_by_its_name() {
    for (said, answer) in [
        ("failed: no disk", AgentMessage::Failed { said: "no disk".into() }),
        ("what was not due", AgentMessage::Pong(77)),
    ] {
        let wrong = made_up_agent("gpu-07", move |message| match message {
            ConductorMessage::Arm(_) => Some(vec![answer.clone()]),
            _ => Some(answer_well(message, &outcome(1, 1, 1))),
        });
        let error = run(vec![well_agent("a", outcome(1, 1, 1)), wrong], PATIENT).err().unwrap();
        let shown = error.to_string();
        assert!(shown.contains("gpu-07") && shown.contains(said), "{shown}");
    }
}

#[test]
fn each_agent_gets_a_share_of_its_own_unless_all_read_the_same() {
    for shares in [true, false] {
        let (sender, plans) = std::sync::mpsc::channel();
        let agent = |name: &str| {
            let sender = sender.clone();
            made_up_agent(name, move |message| {
                if let ConductorMessage::Plan(plan) = message {
                    sender.send(plan.share).unwrap();
                }
                Some(answer_well(message, &outcome(1, 1, 1)))
            })
        };
        let links = vec![agent("a"), agent("b")];
        drop(AgentConductor::start_agents(links, &plan(), shares, PATIENT).unwrap());
        let mut got: Vec<LoadShare> = plans.try_iter().collect();
        got.sort_by_key(|share| share.number);
        let own = [LoadShare { number: 0, count: 2 }, LoadShare { number: 1, count: 2 }];
        let expected = if shares { own } else { [LoadShare::default(); 2] };
        assert_eq!(got, expected);
    }
}

/// Gives an agent these messages and then its end; what it answers.
fn asked_agent(messages: &[ConductorMessage]) -> (bool, Vec<AgentMessage>) {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    messages.iter().for_each(|message| write_message(&mut input, message).unwrap());
    let ended = run_agent(&mut input.as_slice(), &mut output);
    let mut output = output.as_slice();
    let mut answers = Vec::new();
    while let Some(answer) = read_message(&mut output).unwrap() {
        answers.push(answer);
    }
    (ended.is_ok(), answers)
}

#[test]
fn an_agent_of_another_release_and_a_wrong_plan_are_told() {
    let with = |change: fn(&mut AgentPlan)| {
        let mut plan = plan();
        change(&mut plan);
        asked_agent(&[ConductorMessage::Plan(Box::new(plan)), ConductorMessage::Ping(7)])
    };
    let (fine, answers) = with(|_| {});
    assert!(
        fine && matches!(answers[..], [AgentMessage::Ready(_), AgentMessage::Pong(7)]),
        "{answers:?}"
    );
    for (change, told) in [
        ((|plan| plan.version = "9.9.9".into()) as fn(&mut AgentPlan), "install the same release"),
        (|plan| plan.protocol += 1, "install the same release"),
        (|plan| plan.scenario = "speed = 1".into(), "speed"),
        (|plan| plan.target = "https://x/y".into(), "is not measured"),
    ] {
        let (fine, answers) = with(change);
        let [AgentMessage::Failed { said }] = &answers[..] else { panic!("{answers:?}") };
        assert!(!fine && said.contains(told), "{said}");
    }
}

#[test]
fn writes_need_keys_for_every_agent() {
    let mut plan = plan();
    plan.scenario = text(1).replace("uniform", "write");
    plan.share = LoadShare { number: 1, count: 5 };
    let (_, answers) = asked_agent(&[ConductorMessage::Plan(Box::new(plan))]);
    let [AgentMessage::Failed { said }] = &answers[..] else { panic!("{answers:?}") };
    assert!(said.contains("times the agents"), "{said}");
}
