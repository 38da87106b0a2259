//! The messages between a conductor and its agents. Owns their shape and its version.

use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use crate::bench_record::AgentHost;
use crate::bench_round::BenchRoundOutcome;
use crate::comparison::ScenarioOverrides;
use crate::credentials::BenchCredentials;
use crate::printable_text::printable_text;
use crate::scenario::LoadShare;

/// Rises with every change of a message: both sides are the same release.
pub const AGENT_PROTOCOL: u32 = 1;
/// Longest message in bytes. A round's outcome with every bucket of every kind is some 4 MiB.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// What an agent is to do. It holds a secret key: it goes by a pipe, and into no command line.
#[derive(Clone, Serialize, Deserialize)]
pub struct AgentPlan {
    pub protocol: u32,
    pub version: String,
    /// The scenario's file, and what the command line changes in it.
    pub scenario: String,
    pub changes: ScenarioOverrides,
    /// As `verbs3 bench s3 --target` takes it. The agent resolves it.
    pub target: String,
    pub credentials: Option<BenchCredentials>,
    pub share: LoadShare,
}

/// From the conductor.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConductorMessage {
    Plan(Box<AgentPlan>),
    Ping(u32),
    /// Put objects in that are not there.
    Prepare,
    /// Read every object once.
    Prime,
    /// Make the connections of a round; `None`: of the warm-up.
    Arm(Option<u32>),
    /// Begin the armed round after so many microseconds.
    Start {
        wait_us: u64,
    },
}

/// From an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentMessage {
    Ready(AgentHost),
    Pong(u32),
    /// Objects are put in, or read.
    Done,
    Armed,
    Outcome(Box<BenchRoundOutcome>),
    /// Every few seconds, whatever it does.
    Alive,
    /// It ends after this.
    Failed {
        said: String,
    },
}

impl AgentMessage {
    /// Makes all its text fit for a terminal: another host wrote it.
    pub fn make_printable(&mut self) {
        match self {
            Self::Ready(host) => {
                for text in [&mut host.kernel, &mut host.label, &mut host.address] {
                    *text = printable_text(text);
                }
            }
            Self::Outcome(outcome) => outcome.tally.make_printable(),
            Self::Failed { said } => *said = printable_text(said),
            Self::Pong(_) | Self::Done | Self::Armed | Self::Alive => {}
        }
    }
}

/// Why a line is no message.
#[derive(Debug, thiserror::Error)]
pub enum AgentLineError {
    #[error("can't be read")]
    Read(#[from] std::io::Error),
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("no message")]
    Malformed(#[from] serde_json::Error),
}

/// Reads the next message; `None` at the end.
pub fn read_message<T: for<'de> Deserialize<'de>>(
    input: &mut impl BufRead,
) -> Result<Option<T>, AgentLineError> {
    let mut line = Vec::new();
    let read = input.take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
    if read as u64 > LINE_BYTES_MAX {
        return Err(AgentLineError::TooLong);
    }
    // A piece of a line is what an end in the middle of a message leaves.
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// Writes one message and flushes it.
pub fn write_message(output: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}
