//! Runs another program to its end, within bounds of time and of output. Owns its pipes and its
//! end. Does not decide what its output means.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two looks whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How long the pipes may stay open after a program's end. A child of the program may keep them,
/// such as the master of shared `ssh` connections.
const PIPES_END_MAX: Duration = Duration::from_secs(1);
/// What is kept of standard error in bytes; the rest is read and dropped.
const STDERR_BYTES_MAX: usize = 16 << 10;

/// Bounds of one run.
#[derive(Debug, Clone, Copy)]
pub struct ProcessBounds {
    pub deadline: Duration,
    /// Longer output ends the run.
    pub stdout_bytes_max: usize,
}

/// What a program has said and how it ended.
#[derive(Debug)]
pub struct BoundedOutput {
    /// `None`: a signal ended it.
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    /// The first 16 KiB.
    pub stderr: String,
}

/// Why a program was not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum BoundedProcessError {
    #[error("{program} is not installed")]
    Missing { program: String },
    #[error("{program} can't be started")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("no end within {deadline:?}")]
    Deadline { deadline: Duration },
    #[error("it printed more than {bytes} bytes")]
    TooLong { bytes: usize },
}

impl BoundedOutput {
    /// Returns the last line of standard error that says something, for a message.
    pub fn last_error_line(&self) -> &str {
        self.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("")
    }
}

/// Runs `command` to its end, or ends it at a bound. Its standard input is empty.
pub fn run_bounded(
    mut command: Command,
    bounds: &ProcessBounds,
) -> Result<BoundedOutput, BoundedProcessError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => BoundedProcessError::Missing { program: program.clone() },
        _ => BoundedProcessError::Start { program: program.clone(), source },
    })?;
    let stdout = PipeContent::collect(child.stdout.take(), bounds.stdout_bytes_max, false);
    let stderr = PipeContent::collect(child.stderr.take(), STDERR_BYTES_MAX, true);
    let status = wait_for_end(&mut child, &stdout, bounds);
    if status.is_err() {
        // It may have ended meanwhile; its status is taken either way.
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = status?;
    let stdout = stdout.take_content();
    if stdout.overflowed {
        return Err(BoundedProcessError::TooLong { bytes: bounds.stdout_bytes_max });
    }
    let stderr = String::from_utf8_lossy(&stderr.take_content().bytes).into_owned();
    Ok(BoundedOutput { status, stdout: stdout.bytes, stderr })
}

fn wait_for_end(
    child: &mut Child,
    stdout: &PipeContent,
    bounds: &ProcessBounds,
) -> Result<Option<i32>, BoundedProcessError> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.code()),
            Ok(None) => {}
            Err(source) => {
                return Err(BoundedProcessError::Start { program: "it".to_owned(), source });
            }
        }
        if stdout.has_overflowed() {
            return Err(BoundedProcessError::TooLong { bytes: bounds.stdout_bytes_max });
        }
        if began.elapsed() >= bounds.deadline {
            return Err(BoundedProcessError::Deadline { deadline: bounds.deadline });
        }
        std::thread::sleep(LOOK);
    }
}

/// What was read from one pipe so far.
#[derive(Debug, Default)]
struct PipeBytes {
    bytes: Vec<u8>,
    overflowed: bool,
    ended: bool,
}

/// A pipe that a thread reads. The thread ends with the pipe.
struct PipeContent(Arc<(Mutex<PipeBytes>, Condvar)>);

impl PipeContent {
    /// Reads `pipe` in the background. Beyond `bytes_max` it drops what comes (`drains`), or stops.
    fn collect(pipe: Option<impl Read + Send + 'static>, bytes_max: usize, drains: bool) -> Self {
        let content = Self(Arc::default());
        let shared = content.0.clone();
        let read = move || {
            if let Some(pipe) = pipe {
                read_pipe(pipe, &shared.0, bytes_max, drains);
            }
            shared.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
            shared.1.notify_all();
        };
        // Without a thread the pipe is dropped, and nothing is read.
        if std::thread::Builder::new().name("verbs3-pipe".into()).spawn(read).is_err() {
            content.0.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        }
        content
    }

    fn has_overflowed(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).overflowed
    }

    /// Waits for the pipe's end, for a moment, and takes what was read.
    fn take_content(&self) -> PipeBytes {
        let (content, changed) = &*self.0;
        let content = content.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(content, PIPES_END_MAX, |content| !content.ended);
        let (mut content, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *content)
    }
}

fn read_pipe(mut pipe: impl Read, content: &Mutex<PipeBytes>, bytes_max: usize, drains: bool) {
    let mut piece = vec![0; 16 << 10];
    while let Ok(read @ 1..) = pipe.read(&mut piece) {
        let mut content = content.lock().unwrap_or_else(PoisonError::into_inner);
        let room = bytes_max.saturating_sub(content.bytes.len());
        content.bytes.extend_from_slice(&piece[..read.min(room)]);
        if read > room && !drains {
            content.overflowed = true;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn bounds(deadline_ms: u64) -> ProcessBounds {
        ProcessBounds { deadline: Duration::from_millis(deadline_ms), stdout_bytes_max: 1000 }
    }

    #[test]
    fn output_status_and_errors_are_taken() {
        let script = "echo out; echo first >&2; echo last >&2; exit 3";
        let output = run_bounded(shell(script), &bounds(60_000)).unwrap();
        assert_eq!((output.status, output.stdout.as_slice()), (Some(3), &b"out\n"[..]));
        assert_eq!(output.last_error_line(), "last");
    }

    #[test]
    fn an_endless_program_is_ended_though_a_child_holds_its_pipes() {
        let error = run_bounded(shell("sleep 3600 & echo $!; wait"), &bounds(300)).unwrap_err();
        assert!(matches!(error, BoundedProcessError::Deadline { .. }), "{error}");
    }

    #[test]
    fn endless_output_is_ended_and_endless_errors_are_dropped() {
        let error = run_bounded(shell("yes"), &bounds(60_000)).unwrap_err();
        assert!(matches!(error, BoundedProcessError::TooLong { bytes: 1000 }), "{error}");
        let loud = "i=0; while [ $i -lt 3000 ]; do echo 0123456789 >&2; i=$((i+1)); done; echo ok";
        let output = run_bounded(shell(loud), &bounds(60_000)).unwrap();
        assert_eq!((output.stdout.as_slice(), output.stderr.len()), (&b"ok\n"[..], 16 << 10));
    }

    #[test]
    fn a_missing_program_is_said_to_be_missing() {
        let error = run_bounded(Command::new("verbs3-no-such"), &bounds(1000)).unwrap_err();
        assert_eq!(error.to_string(), "verbs3-no-such is not installed");
    }
}
