//! `verbs3 doctor --acceptance`: what docs/hardware.md asks of two hosts with NICs, collected into
//! one file. Owns the order of steps, and the choice of the other side. Each step has a verdict: what
//! can't be run says why.

mod by_hand;
mod fabric;
mod memory;
mod output_file;
mod perftest;
mod rails;
mod report;
mod step;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use verbs3_config::RootSettings;
use verbs3_doctor::{FindingSeverity, HostDescription, HostFinding};

use super::remote_report::{RemoteRail, fetch_report};
use super::{DoctorReport, explain_error, json, peer};
use crate::arguments::acceptance::AcceptanceArguments;
use crate::command::bench::fabric::FABRIC_PORT;
use crate::process::MISCONFIGURED;
use crate::ssh::SshHost;
use output_file::AcceptanceFile;
use perftest::{PerftestFigures, PerftestPeer};
use rails::AcceptanceRails;
use step::{AcceptanceStep, FigureLimit, StepFigure, StepReason, StepTitle, StepVerdict};

/// How long the other host may take to say what rails it has.
const PEER_DEADLINE: Duration = Duration::from_secs(30);
/// Part of the host's memory, or of the limit, that a run may touch.
const MEMORY_PART_MAX: f64 = 0.9;

/// What a run is about.
struct AcceptanceRun<'a> {
    arguments: &'a AcceptanceArguments,
    host: &'a HostDescription,
    /// Host and port where `verbs3 bench fabric --serve` is; `None`: this host alone.
    peer: Option<(String, u16)>,
}

/// Everything that a run found.
struct AcceptanceRecord {
    host: String,
    peer: Option<String>,
    began_unix: u64,
    /// What moves bytes between hosts here: tcp, and verbs where there is a rail.
    transports: Vec<&'static str>,
    steps: Vec<AcceptanceStep>,
}

impl AcceptanceRun<'_> {
    /// Returns the address of the other side, as `bench fabric` takes it.
    fn fabric_host(&self) -> Option<String> {
        self.peer.as_ref().map(|(host, port)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        })
    }

    /// Returns the most bytes that may be touched; `None`: unknown.
    fn memory_room(&self) -> Option<u64> {
        let memory = &self.host.memory;
        let total = Some(memory.total_bytes).filter(|bytes| *bytes > 0);
        let limit = memory.limit.as_ref().map(|(bytes, _)| *bytes);
        let least = total.into_iter().chain(limit).min()?;
        // Whole MiB, which can be read.
        Some(((least as f64 * MEMORY_PART_MAX) as u64) >> 20 << 20)
    }
}

impl AcceptanceRecord {
    fn worst_verdict(&self) -> StepVerdict {
        self.steps.iter().map(AcceptanceStep::verdict).max().unwrap_or(StepVerdict::NotRun)
    }

    /// 0: nothing is below or failed. 1: something is.
    fn exit_status(&self) -> u8 {
        u8::from(self.worst_verdict() >= StepVerdict::Below)
    }
}

/// Runs every step, prints the summary, and writes the file. Status 1: a step was below or failed.
/// Status 2: the arguments can't be used.
pub(super) fn run_acceptance(arguments: &AcceptanceArguments, report: &DoctorReport) -> ExitCode {
    let prepared = prepare_run(arguments, report);
    let (run, rails) = match prepared {
        Ok(prepared) => prepared,
        Err(complaint) => {
            eprintln!("{complaint}");
            return ExitCode::from(MISCONFIGURED);
        }
    };
    // Made before the first step: minutes later it would be too late to learn that it can't be.
    let file = match AcceptanceFile::create(arguments.out.clone()) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(MISCONFIGURED);
        }
    };
    let record = run_steps(&run, &rails, report);
    let written = file.write_document(&report::record_json(&record));
    // Whoever closed the pipe has read enough; the file has it all.
    let _ = std::io::stdout().write_all(report::render_summary(&record).as_bytes());
    match written {
        Ok(path) => {
            let _ = writeln!(std::io::stdout(), "written to {}", path.display());
            ExitCode::from(record.exit_status())
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(MISCONFIGURED)
        }
    }
}

fn prepare_run<'a>(
    arguments: &'a AcceptanceArguments,
    report: &'a DoctorReport,
) -> Result<(AcceptanceRun<'a>, AcceptanceRails), String> {
    let named = arguments.acceptance.as_ref().and_then(Option::as_deref);
    let peer = named.map(|text| {
        let mut config = RootSettings::default();
        config.worker.listen.set_port(FABRIC_PORT);
        peer::parse_target(text, &config).map_err(|complaint| format!("--acceptance {complaint}"))
    });
    let rails = AcceptanceRails::find_rails(&report.host, &report.findings, &arguments.rails)?;
    Ok((AcceptanceRun { arguments, host: &report.host, peer: peer.transpose()? }, rails))
}

fn run_steps(
    run: &AcceptanceRun<'_>,
    rails: &AcceptanceRails,
    report: &DoctorReport,
) -> AcceptanceRecord {
    let began_unix = unix_seconds();
    let mut steps = vec![judge_findings(report)];
    steps.extend(memory::measure_memory(run, rails));
    let (of_perftest, figures) = run_perftest(run, rails);
    steps.extend(of_perftest);
    steps.extend(fabric::measure_fabric(run, rails, &figures));
    steps.extend(by_hand::list_manual_steps());
    AcceptanceRecord {
        host: read_host_name(),
        peer: run.fabric_host(),
        began_unix,
        transports: if rails.rails.is_empty() { vec!["tcp only"] } else { vec!["verbs", "tcp"] },
        steps,
    }
}

fn judge_findings(report: &DoctorReport) -> AcceptanceStep {
    let count = |severity| {
        let of: Vec<&HostFinding> =
            report.findings.iter().filter(|finding| finding.severity == severity).collect();
        of.len() as f64
    };
    let failures = StepFigure::recorded("failures", count(FindingSeverity::Fail), "findings")
        .with_limit(FigureLimit::AtMost(0.0), "docs/hardware.md, step 3");
    let warnings = StepFigure::recorded("warnings", count(FindingSeverity::Warn), "findings");
    let title = StepTitle::new("doctor", "host", "verbs3 doctor --json");
    let document = serde_json::from_str(&json::render_json(report)).ok();
    AcceptanceStep { record: document, ..title.measured(vec![failures, warnings]) }
}

/// Runs perftest over each rail, with the other host's rail of the same number.
fn run_perftest(
    run: &AcceptanceRun<'_>,
    rails: &AcceptanceRails,
) -> (Vec<AcceptanceStep>, BTreeMap<String, PerftestFigures>) {
    if rails.rails.is_empty() {
        return (perftest::skip_perftest("host", &rails.none), BTreeMap::new());
    }
    let peers = match find_peers(run, rails) {
        Ok(peers) => peers,
        Err(because) => return (perftest::skip_perftest("all rails", &because), BTreeMap::new()),
    };
    let (mut steps, mut figures) = (Vec::new(), BTreeMap::new());
    for (at, rail) in rails.rails.iter().enumerate() {
        let Some(peer) = peers.get(at) else {
            let reason = format!("the other host has {} rails", peers.len());
            let because = StepReason::new(reason, "verbs3 doctor there");
            steps.extend(perftest::skip_perftest(&rail.label(), &because));
            continue;
        };
        // Whole seconds, and at least two: perftest leaves out the start and the end of a run.
        let seconds = (run.arguments.seconds.ceil() as u64).max(2);
        let (of_rail, found) = perftest::measure_rail(rail, peer, seconds);
        steps.extend(of_rail);
        figures.insert(rail.label(), found);
    }
    (steps, figures)
}

/// Returns the other side of each rail: this host itself, or what the other one says over ssh.
fn find_peers(
    run: &AcceptanceRun<'_>,
    rails: &AcceptanceRails,
) -> Result<Vec<PerftestPeer>, StepReason> {
    let Some((name, _)) = &run.peer else {
        let own = rails.rails.iter().map(|rail| PerftestPeer {
            host: None,
            device: rail.identity.device.clone(),
            address: rail.identity.address,
        });
        return Ok(own.collect());
    };
    let remedy = "a key for ssh; or by hand: docs/fabric/measuring.md";
    let because = |seen: String| StepReason::new(seen, remedy);
    let host = SshHost::parse(name).map_err(because)?;
    let found = fetch_report(&host, &run.arguments.remote_program, PEER_DEADLINE)
        .map_err(|error| because(explain_error(&error)))?;
    let peer = |rail: RemoteRail| PerftestPeer {
        host: Some(host.clone()),
        device: rail.device,
        address: rail.address,
    };
    Ok(found.list_rails().into_iter().map(peer).collect())
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn read_host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
