//! CPU time that processes have used, from `/proc/PID/schedstat` of every thread: nanoseconds, not clock ticks.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// User and system time of all threads of `pids` so far. Threads that ended are not in it, so measure while all live.
pub fn used(pids: &[u32]) -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for pid in pids {
        let folder = format!("/proc/{pid}/task");
        for thread in fs::read_dir(&folder).with_context(|| format!("process {pid} is gone"))? {
            // A thread may end between the listing and the read.
            let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            nanoseconds += text.split_whitespace().next().and_then(|first| first.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Resident bytes of a process.
pub fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} is gone"))?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .context("no VmRSS in /proc/PID/status")?;
    Ok(kib * 1024)
}
