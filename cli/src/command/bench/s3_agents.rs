//! `verbs3 bench s3 --agents`: the same scenario from many hosts at once. Owns the processes: one
//! `ssh` for each host, which ends with this one. `verbs3_loadtest::agents` conducts and merges.

use std::process::{Child, ChildStderr, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::Context;
use verbs3_loadtest::agents::{
    AGENT_PROTOCOL, AgentConductor, AgentLink, AgentPatience, AgentPlan, merge_rounds, run_agent,
};
use verbs3_loadtest::bench_record::BenchRecord;
use verbs3_loadtest::printable_text::relay_lines;
use verbs3_loadtest::scenario::{BenchScenario, LoadShare};

use super::s3_arguments::{PrepareArgument, S3Arguments};
use crate::ssh::{SshHost, read_host_list, ssh_command};

/// Longest wait for the last complaints of all `ssh` that have ended. A process that one left behind
/// may hold its pipe for ever.
const COMPLAINT_WAIT_MAX: Duration = Duration::from_millis(500);

/// A load, and the hosts that it comes from.
pub struct AgentBenchJob {
    hosts: Vec<SshHost>,
    scenario: BenchScenario,
    plan: AgentPlan,
    program: String,
    patience: AgentPatience,
    /// Each agent has a share of the objects of its own.
    shares: bool,
    prepares: bool,
    measures: bool,
}

/// Agents' processes. They are ended when this is dropped.
#[derive(Default)]
struct AgentProcesses {
    children: Vec<Child>,
    /// Each ends when all complaints of its process are shown.
    complaints: Vec<Receiver<()>>,
}

impl Drop for AgentProcesses {
    fn drop(&mut self) {
        // An agent ends with its input, which is closed by now; its ssh may wait for more.
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let end = Instant::now() + COMPLAINT_WAIT_MAX;
        for shown in &self.complaints {
            let _ = shown.recv_timeout(end.saturating_duration_since(Instant::now()));
        }
    }
}

/// Shows what the `ssh` of a host complains of, by a thread of its own. The other host says most of
/// it.
fn show_complaints(host: &SshHost, said: ChildStderr) -> anyhow::Result<Receiver<()>> {
    let (over, shown) = mpsc::channel();
    let name = host.as_str().to_owned();
    let show = move || {
        relay_lines(&name, said, std::io::stderr());
        drop(over);
    };
    std::thread::Builder::new().name("complaints".to_owned()).spawn(show)?;
    Ok(shown)
}

/// Obeys a conductor over standard input and output. Status 1: it failed, and the conductor was told.
pub fn serve_conductor() -> ExitCode {
    match run_agent(std::io::stdin().lock(), std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        // The conductor names this host and says it; here it would be said twice.
        Err(_) => ExitCode::FAILURE,
    }
}

impl AgentBenchJob {
    /// Checks what can be checked before a host is asked. `text` is the scenario's file.
    pub fn from_arguments(
        arguments: &S3Arguments,
        hosts: &str,
        mut scenario: BenchScenario,
        text: String,
    ) -> anyhow::Result<Self> {
        let hosts = read_host_list(hosts).context("--agents")?;
        let shares = !arguments.same_objects;
        anyhow::ensure!(
            shares || !scenario.writes_objects(),
            "--same-objects: agents that write need keys of their own"
        );
        if shares {
            scenario.share = LoadShare { number: 0, count: hosts.len() as u64 };
        }
        // A contradiction of all agents together is found here, before a host is asked.
        arguments.scenario_changes().apply_overrides(&mut scenario)?;
        let plan = AgentPlan {
            protocol: AGENT_PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: text,
            changes: arguments.scenario_changes(),
            target: arguments.target.clone().unwrap_or_default(),
            credentials: arguments.own_credentials(),
            share: LoadShare::default(),
        };
        Ok(Self {
            hosts,
            scenario,
            plan,
            program: arguments.remote_program.clone(),
            patience: AgentPatience { silence_max: arguments.agent_silence },
            shares,
            prepares: arguments.prepare != PrepareArgument::None,
            measures: !arguments.prepare_only,
        })
    }

    /// Runs the scenario from all hosts. `None`: objects were put in, and nothing was measured.
    pub fn measure(self) -> anyhow::Result<Option<BenchRecord>> {
        let mut processes = AgentProcesses::default();
        let mut links = Vec::new();
        for host in &self.hosts {
            links.push(self.start_agent(host, &mut processes)?);
        }
        let conductor =
            AgentConductor::start_agents(links, &self.plan, self.shares, self.patience)?;
        if !self.measures {
            conductor.put_objects_in()?;
            return Ok(None);
        }
        let rounds = conductor.run_rounds(&self.scenario, self.prepares)?;
        let names: Vec<String> = self.hosts.iter().map(|host| host.as_str().to_owned()).collect();
        Ok(Some(merge_rounds(self.scenario, &names, rounds)))
    }

    fn start_agent(
        &self,
        host: &SshHost,
        processes: &mut AgentProcesses,
    ) -> anyhow::Result<AgentLink> {
        let words = [self.program.as_str(), "bench", "s3", "--agent"].map(str::to_owned);
        let mut command = ssh_command(host, &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("can't start ssh")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let complaints = child.stderr.take();
        processes.children.push(child);
        let (writer, reader) = pipes.context("ssh has no pipes")?;
        let complaints = complaints.context("ssh has no pipe for what it complains of")?;
        processes.complaints.push(show_complaints(host, complaints)?);
        Ok(AgentLink::new(host.as_str(), writer, reader))
    }
}
