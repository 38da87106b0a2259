//! Reads the CPU time and memory that processes have used. CPU time comes from
//! `/proc/PID/task/TID/schedstat` of every thread: nanoseconds, not clock ticks.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::Context;

/// Returns the user and system time of all threads of `pids` so far. Ended threads are missing, so
/// measure while all live.
pub fn used_cpu_time(pids: &[u32]) -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for pid in pids {
        let folder = format!("/proc/{pid}/task");
        for thread in fs::read_dir(&folder).with_context(|| format!("process {pid} is gone"))? {
            // A thread may end between the listing and the read.
            let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            nanoseconds += text
                .split_whitespace()
                .next()
                .and_then(|first| first.parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Returns a process's resident bytes. A page that several processes map counts by its share, so
/// the sum over processes is what they take together. (A gateway maps the arenas of workers beside
/// it.)
pub fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .with_context(|| format!("process {pid} is gone"))?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .context("no Pss in /proc/PID/smaps_rollup")?;
    Ok(kib * 1024)
}

/// CPU time of all threads of some processes at one moment, by thread. For a thread that ends, only
/// the time after the last snapshot is lost. It is never counted against the others.
#[derive(Debug, Clone, Default)]
pub struct CpuTimeSnapshot(HashMap<(u32, String), u64>);

impl CpuTimeSnapshot {
    /// Reads the CPU time of every thread of `pids`. Fails if one of the processes is gone.
    pub fn take_snapshot(pids: &[u32]) -> anyhow::Result<Self> {
        let mut threads = HashMap::new();
        for &pid in pids {
            let folder = format!("/proc/{pid}/task");
            for thread in fs::read_dir(&folder).with_context(|| format!("process {pid} is gone"))? {
                let path = thread?.path();
                // A thread may end between the listing and the read.
                let Ok(text) = fs::read_to_string(path.join("schedstat")) else { continue };
                let (used, _) = parse_schedstat(&text);
                threads.insert(
                    (pid, path.file_name().unwrap_or_default().to_string_lossy().into_owned()),
                    used,
                );
            }
        }
        Ok(Self(threads))
    }

    /// Returns what was used since `before`.
    pub fn elapsed_since(&self, before: &Self) -> Duration {
        let used = self
            .0
            .iter()
            .map(|(thread, now)| now.saturating_sub(before.0.get(thread).copied().unwrap_or(0)));
        Duration::from_nanos(used.sum())
    }
}

/// One thread's time on a CPU, and its time ready to run without one.
#[derive(Debug, Clone, Copy)]
pub struct ThreadCpuTime {
    pub running: Duration,
    pub waiting: Duration,
}

/// The whole host's time since its start, in clock ticks.
#[derive(Debug, Clone, Copy)]
pub struct HostCpuTicks {
    pub idle: u64,
    pub all: u64,
}

/// Returns the calling thread's time.
pub fn of_this_thread() -> ThreadCpuTime {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let (running, waiting) = parse_schedstat(&text);
    ThreadCpuTime { running: Duration::from_nanos(running), waiting: Duration::from_nanos(waiting) }
}

fn parse_schedstat(text: &str) -> (u64, u64) {
    let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
    (words.next().unwrap_or(0), words.next().unwrap_or(0))
}

/// Returns the whole host's time.
pub fn of_host() -> HostCpuTicks {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0)).collect();
    // user nice system idle iowait irq softirq steal; guest time is in user already (proc(5)).
    HostCpuTicks { idle: ticks.iter().skip(3).take(2).sum(), all: ticks.iter().take(8).sum() }
}
