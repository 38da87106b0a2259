//! One process of verbs3 in a cluster's folder: NAME.log is what it wrote, NAME.ready where it is
//! reached, once it serves. And what `verbs3 COMMAND` says of a cluster that has a coordinator. Who
//! starts processes is not its affair.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::failure;
use crate::metrics::eventually;
use crate::trust::OPERATOR;

/// How long a process may take to answer after its start. Generous: the machine may be busy with
/// other tests.
pub(crate) const START_WITHIN: Duration = Duration::from_secs(180);

/// The binary of this build: tests run from `target/PROFILE/deps`.
pub fn built_binary() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let path = test
        .parent()
        .and_then(Path::parent)
        .context("tests run from target/PROFILE/deps")?
        .join("verbs3");
    ensure!(
        path.exists(),
        "{} is missing; build it first: cargo build -p verbs3-cli",
        path.display()
    );
    Ok(path)
}

/// Waits until every thread stands still: the signal is one thread's to take, and on a busy machine
/// the others run on until that one has its turn.
pub(crate) fn wait_stopped(pid: u32) -> anyhow::Result<()> {
    let began = Instant::now();
    let stands_still =
        |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']));
    loop {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(Result::ok);
        let stats =
            threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
        if stats.into_iter().all(|stat| stands_still(&stat)) {
            return Ok(());
        }
        ensure!(began.elapsed() < START_WITHIN, "process {pid} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An address that a process wrote down once it served.
pub(crate) fn ready(folder: &Path, name: &str, which: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join(format!("{name}.ready"))).ok()?;
    let addresses: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(addresses[which].as_str()?.to_owned())
}

/// Waits until the process called `name` has said where it is reached.
pub(crate) async fn serves(folder: &Path, name: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    while ready(folder, name, "admin").is_none() {
        ensure!(
            began.elapsed() < START_WITHIN,
            "{name} does not serve; its log:\n{}",
            log(folder, name)
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// What the process called `name` has logged so far.
pub(crate) fn log(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default()
}

/// Ends them at once; tells what they logged last, if the test fails.
pub(crate) fn kill_all<'a>(
    folder: &Path,
    processes: impl Iterator<Item = (&'a str, &'a mut Child)>,
) {
    let fails = failure::await_logs();
    for (name, child) in processes {
        let _ = child.kill();
        let _ = child.wait();
        if fails {
            tell_end_of_log(folder, name);
        }
    }
    if fails {
        failure::tell_reason_again();
    }
}

/// For whoever looks for the reason of a failure.
fn tell_end_of_log(folder: &Path, name: &str) {
    let log = log(folder, name);
    let tail: Vec<&str> = log.lines().rev().take(20).collect();
    eprintln!("--- last lines of {name}:");
    tail.iter().rev().for_each(|line| eprintln!("{line}"));
}

/// Runs `verbs3 WORDS --config …` of the first coordinator, or of the operator if there is one, and
/// gives its status and what it printed.
pub(crate) async fn command(
    folder: &Path,
    words: &[&str],
) -> anyhow::Result<(Option<i32>, String)> {
    let operator = folder.join(format!("{OPERATOR}.toml"));
    let name = if operator.exists() { OPERATOR } else { "coordinator-0" };
    command_as(folder, name, words).await
}

/// The same with the configuration of the process `name`.
pub(crate) async fn command_as(
    folder: &Path,
    name: &str,
    words: &[&str],
) -> anyhow::Result<(Option<i32>, String)> {
    let output = self::words(folder, name, words)?.output().await?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

/// `verbs3 WORDS --config …` of the process `name`.
pub(crate) fn words(
    folder: &Path,
    name: &str,
    words: &[&str],
) -> anyhow::Result<tokio::process::Command> {
    let mut command = tokio::process::Command::new(built_binary()?);
    let config = folder.join(format!("{name}.toml"));
    command.args(words).arg("--config").arg(config).stdin(std::process::Stdio::null());
    Ok(command)
}

/// A log line's time.
pub(crate) fn time(text: &str) -> anyhow::Result<SystemTime> {
    Ok(SystemTime::try_from(DateTime::from_str(text, DateTimeFormat::DateTime)?)?)
}

/// What the process whose admin address this is answers to `/readyz`, head and all.
async fn readiness(admin: &str) -> anyhow::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(admin).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Waits until the process called `name` calls itself ready: a gateway follows a map by then.
pub(crate) async fn is_ready(folder: &Path, name: &str) -> anyhow::Result<()> {
    let admin = ready(folder, name, "admin").with_context(|| format!("{name} does not serve"))?;
    eventually(START_WITHIN, async || match readiness(&admin).await {
        Ok(answer) if answer.starts_with("HTTP/1.1 200") => Ok(()),
        Ok(answer) => Err(format!("{name} is not ready:\n{answer}")),
        Err(error) => Err(format!("{name} does not answer: {error:#}")),
    })
    .await
}

/// The date of an answer of the process whose admin address this is, since 1970, to the second.
pub(crate) async fn date(admin: &str) -> anyhow::Result<Duration> {
    let answer = readiness(admin).await?;
    let date = answer.lines().find_map(|line| line.strip_prefix("date: "));
    let date = date.with_context(|| format!("an answer of {admin} has no date:\n{answer}"))?;
    Ok(Duration::from_secs(
        DateTime::from_str(date.trim(), DateTimeFormat::HttpDate)?.secs().try_into()?,
    ))
}

/// Waits until `verbs3 status` shows `wanted`, all of it; what it shows.
pub(crate) async fn status_shows(folder: &Path, wanted: &[&str]) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let (_, shown) = command(folder, &["status"]).await?;
        if wanted.iter().all(|wanted| shown.contains(wanted)) {
            return Ok(shown);
        }
        ensure!(began.elapsed() < START_WITHIN, "status does not show {wanted:?}, but\n{shown}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
