//! The steps that perftest does: what a NIC gives without verbs3. Owns its command lines and the
//! reading of what it prints. Says what is missing where perftest is not installed.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::rails::AcceptanceRail;
use super::step::{AcceptanceStep, FigureLimit, StepFigure, StepReason, StepTitle};
use crate::bounded_process::{BoundedOutput, BoundedProcessError, ProcessBounds, run_bounded};
use crate::ssh::{RemoteRunError, SshHost, run_remote};

const BANDWIDTH: &str = "ib_write_bw";
const LATENCY: &str = "ib_send_lat";
const INSTALL: &str = "apt install perftest, or dnf install perftest, on both hosts";
/// First port of the servers; perftest's own default is 18515, which somebody may use.
const PORT_FIRST: u16 = 18_615;
const MESSAGE_BYTES: u64 = 1 << 20;
const SMALL_BYTES: u64 = 64;
/// Of the wire, less 2 %; about 1 µs on InfiniBand, 1 to 2 on RoCE, and some tenths for the
/// completion (docs/fabric/measuring.md).
const WIRE_PART_MIN: f64 = 0.98;
const SEND_MICROS_MAX: f64 = 2.5;
/// Tries to reach a server that has just been started, and the pause between two.
const TRIES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// Time of a run besides that of its figure, and most bytes of what it prints.
const SLACK: Duration = Duration::from_secs(30);
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// The other side of a rail: where perftest serves.
#[derive(Debug, Clone)]
pub struct PerftestPeer {
    /// `None`: this host serves, and its NIC reaches itself.
    pub host: Option<SshHost>,
    pub device: String,
    pub address: IpAddr,
}

/// What perftest found of one rail. What verbs3 gives is held against it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PerftestFigures {
    pub gbits: Option<f64>,
    pub send_micros: Option<f64>,
}

/// Which of perftest's programs is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PerftestTool {
    Bandwidth,
    Latency,
}

/// One run of perftest: two processes that meet.
struct PerftestRun<'a> {
    tool: PerftestTool,
    rail: &'a AcceptanceRail,
    peer: &'a PerftestPeer,
    port: u16,
    seconds: u64,
}

/// Why perftest gave no figure.
#[derive(Debug, thiserror::Error)]
enum PerftestError {
    #[error(transparent)]
    Process(#[from] BoundedProcessError),
    #[error(transparent)]
    Remote(#[from] RemoteRunError),
    #[error("{program} ended with status {status}: {said}")]
    Status { program: &'static str, status: i32, said: String },
    #[error("{program} printed no figure: {said}")]
    NoFigure { program: &'static str, said: String },
}

/// Runs both of perftest's programs over `rail`.
pub fn measure_rail(
    rail: &AcceptanceRail,
    peer: &PerftestPeer,
    seconds: u64,
) -> (Vec<AcceptanceStep>, PerftestFigures) {
    let port = PORT_FIRST;
    let run = |tool, port| PerftestRun { tool, rail, peer, port, seconds };
    let (bandwidth, latency) =
        (run(PerftestTool::Bandwidth, port), run(PerftestTool::Latency, port + 1));
    let (first, gbits) = bandwidth.measure_step();
    let (second, send_micros) = latency.measure_step();
    (vec![first, second], PerftestFigures { gbits, send_micros })
}

/// Returns perftest's steps where there is no rail, or no peer, to run them on.
pub fn skip_perftest(subject: &str, because: &StepReason) -> Vec<AcceptanceStep> {
    let skip = |program| {
        let command = format!("{program} -R, on both hosts");
        StepTitle::new(program, subject, command).not_run(because.clone())
    };
    vec![skip(BANDWIDTH), skip(LATENCY)]
}

impl PerftestTool {
    fn program(self) -> &'static str {
        match self {
            Self::Bandwidth => BANDWIDTH,
            Self::Latency => LATENCY,
        }
    }

    /// The figure in what the program printed: of the last line of figures, by its column.
    fn read_figure(self, printed: &str) -> Option<f64> {
        // "#bytes #iterations BW_peak BW_average MsgRate", and
        // "#bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%".
        let (bytes, column) = match self {
            Self::Bandwidth => (MESSAGE_BYTES, 3),
            Self::Latency => (SMALL_BYTES, 4),
        };
        let lines = printed.lines().rev().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut figures = lines.filter(|words| {
            words.first().is_some_and(|first| first.parse() == Ok(bytes))
                && words.iter().all(|word| word.parse::<f64>().is_ok())
        });
        let figure: f64 = figures.next()?.get(column)?.parse().ok()?;
        (figure.is_finite() && figure > 0.0).then_some(figure)
    }
}

impl PerftestRun<'_> {
    fn words(&self, device: &str) -> Vec<String> {
        let mut words = vec![self.tool.program(), "-d", device, "-R", "-F"];
        let (port, seconds) = (self.port.to_string(), self.seconds.to_string());
        let bytes = match self.tool {
            PerftestTool::Bandwidth => MESSAGE_BYTES.to_string(),
            PerftestTool::Latency => SMALL_BYTES.to_string(),
        };
        words.extend(["-p", &port, "-s", &bytes]);
        match self.tool {
            PerftestTool::Bandwidth => words.extend(["-q", "4", "-D", &seconds, "--report_gbits"]),
            PerftestTool::Latency => words.extend(["-n", "10000"]),
        }
        words.into_iter().map(str::to_owned).collect()
    }

    fn client_words(&self) -> Vec<String> {
        let mut words = self.words(&self.rail.identity.device);
        words.push(self.peer.address.to_string());
        words
    }

    fn measure_step(&self) -> (AcceptanceStep, Option<f64>) {
        let (server, client) = (self.words(&self.peer.device), self.client_words());
        let there = self.peer.host.as_ref().map_or("here", SshHost::as_str);
        let command = format!("{there}: {}; here: {}", server.join(" "), client.join(" "));
        let title = StepTitle::new(self.tool.program(), self.rail.label(), command);
        let missing = |error: &PerftestError| {
            matches!(error, PerftestError::Process(BoundedProcessError::Missing { .. }))
                || matches!(error, PerftestError::Remote(RemoteRunError::Program { .. }))
        };
        match self.run_both() {
            Ok((figure, printed)) => {
                let step = title.measured(vec![self.judge_figure(figure)]);
                (AcceptanceStep { record: Some(json!(printed)), ..step }, Some(figure))
            }
            Err(error) if missing(&error) => {
                (title.not_run(StepReason::new(error.to_string(), INSTALL)), None)
            }
            Err(PerftestError::Remote(error @ RemoteRunError::Ssh { .. })) => {
                let remedy = "a key for ssh, or run both commands by hand";
                (title.not_run(StepReason::new(error.to_string(), remedy)), None)
            }
            Err(error) => {
                let remedy = "run both commands by hand; docs/fabric/measuring.md";
                (title.failed(StepReason::new(error.to_string(), remedy)), None)
            }
        }
    }

    fn judge_figure(&self, figure: f64) -> StepFigure {
        match (self.tool, self.rail.wire_gbits) {
            (PerftestTool::Bandwidth, Some(wire)) => {
                let source = format!(
                    "{wire:.0} Gb/s of data on this wire, less 2 %: docs/fabric/measuring.md"
                );
                StepFigure::recorded("written", figure, "Gb/s")
                    .with_limit(FigureLimit::AtLeast(wire * WIRE_PART_MIN), source)
            }
            (PerftestTool::Bandwidth, None) => StepFigure::recorded("written", figure, "Gb/s"),
            // A wire without a known rate is software.
            (PerftestTool::Latency, None) => StepFigure::recorded("one way", figure, "µs"),
            (PerftestTool::Latency, Some(_)) => StepFigure::recorded("one way", figure, "µs")
                .with_limit(FigureLimit::AtMost(SEND_MICROS_MAX), "docs/fabric/measuring.md"),
        }
    }

    /// Serves in one thread and asks in this one, which tries until the server is there.
    fn run_both(&self) -> Result<(f64, String), PerftestError> {
        let client = self.client_words();
        std::thread::scope(|threads| {
            let server = threads.spawn(|| self.run_server());
            let mut last = None;
            for _ in 0..TRIES_MAX {
                if server.is_finished() {
                    break;
                }
                std::thread::sleep(PAUSE);
                match self.run_client(&client) {
                    Ok(found) => return Ok(found),
                    Err(error @ PerftestError::Process(_)) => {
                        last = Some(error);
                        break;
                    }
                    Err(error) => last = Some(error),
                }
            }
            // The reason is the server's, where that ended by itself with one.
            let served = server.join().unwrap_or(Ok(()));
            served.and(Err(last.unwrap_or(PerftestError::NoFigure {
                program: self.tool.program(),
                said: "the serving side ended at once".to_owned(),
            })))
        })
    }

    fn bounds(&self) -> ProcessBounds {
        let deadline = Duration::from_secs(self.seconds) + SLACK;
        ProcessBounds { deadline, stdout_bytes_max: OUTPUT_BYTES_MAX }
    }

    fn run_server(&self) -> Result<(), PerftestError> {
        let words = self.words(&self.peer.device);
        let output = match &self.peer.host {
            None => run_bounded(local_command(&words), &self.bounds())?,
            Some(host) => {
                // What no client has reached ends there by itself.
                let seconds = self.bounds().deadline.as_secs().to_string();
                let bounded =
                    ["timeout".to_owned(), seconds].into_iter().chain(words).collect::<Vec<_>>();
                run_remote(host, &bounded, &self.bounds())?
            }
        };
        self.check_status(&output)
    }

    fn run_client(&self, words: &[String]) -> Result<(f64, String), PerftestError> {
        let output = run_bounded(local_command(words), &self.bounds())?;
        self.check_status(&output)?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let program = self.tool.program();
        let said = output.last_error_line().to_owned();
        let figure = self.tool.read_figure(&printed);
        figure.map(|figure| (figure, printed)).ok_or(PerftestError::NoFigure { program, said })
    }

    fn check_status(&self, output: &BoundedOutput) -> Result<(), PerftestError> {
        match output.status {
            Some(0) => Ok(()),
            status => Err(PerftestError::Status {
                program: self.tool.program(),
                status: status.unwrap_or(-1),
                said: crate::ssh::printable_text(output.last_error_line()),
            }),
        }
    }
}

fn local_command(words: &[String]) -> Command {
    let (program, rest) = words.split_first().expect("the program is the first word");
    let mut command = Command::new(program);
    command.args(rest);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_lines_of_perftest() {
        let bandwidth = "\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    232840           0.00               390.62             0.046566
---------------------------------------------------------------------------------------
";
        assert_eq!(PerftestTool::Bandwidth.read_figure(bandwidth), Some(390.62));
        let latency = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      10000          1.01           5.07         1.08     \t       1.10        \t0.05   \t\t1.28\t\t\t3.01
";
        assert_eq!(PerftestTool::Latency.read_figure(latency), Some(1.08));
        for nothing in ["", " 1048576 12 0.00 nan 0.1\n", " 64 12 0 0.00 1\n", "1048576 1 2\n"] {
            assert_eq!(PerftestTool::Bandwidth.read_figure(nothing), None, "{nothing:?}");
        }
    }
}
