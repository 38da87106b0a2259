//! Owns the cost of moving bytes to this process: CPU time, and the work of its NICs.

use std::ops::Sub;

use verbs3_rdma::metrics::{VerbsWork, read_verbs_work};

/// The cost since the start of the process, or between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferCost {
    /// User and system time of all threads.
    pub cpu_micros: u64,
    /// Work requests posted to send queues.
    pub work_requests: u64,
    pub completions: u64,
    /// Payload bytes copied into messages, where a WRITE would have moved them.
    pub copied_bytes: u64,
}

impl TransferCost {
    /// Reads CPU time from `getrusage`, and the rest from this process's metrics. Every value
    /// counts from the start of the process.
    pub fn read_counters() -> Self {
        let VerbsWork { work_requests, completions, copied_bytes } = read_verbs_work();
        Self { cpu_micros: cpu_micros(), work_requests, completions, copied_bytes }
    }
}

impl Sub for TransferCost {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            cpu_micros: self.cpu_micros.saturating_sub(earlier.cpu_micros),
            work_requests: self.work_requests.saturating_sub(earlier.work_requests),
            completions: self.completions.saturating_sub(earlier.completions),
            copied_bytes: self.copied_bytes.saturating_sub(earlier.copied_bytes),
        }
    }
}

fn cpu_micros() -> u64 {
    // SAFETY: the structure is plain data, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    let answered = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    if answered != 0 {
        return 0;
    }
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    micros(usage.ru_utime) + micros(usage.ru_stime)
}
