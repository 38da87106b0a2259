//! Owns the cost of moving bytes to this process: CPU time, and the work of its NICs.

use std::ops::Sub;

use prometheus::IntCounterVec;
use prometheus::core::Collector;

use crate::metrics::transport_metrics;

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
        let all = transport_metrics();
        Self {
            cpu_micros: cpu_micros(),
            work_requests: sum_counters(&all.work_requests),
            completions: sum_counters(&all.completions),
            copied_bytes: sum_counters(&all.copied_bytes),
        }
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

fn sum_counters(counters: &IntCounterVec) -> u64 {
    let families = counters.collect();
    let values = families
        .iter()
        .flat_map(|family| family.get_metric())
        .map(|metric| metric.get_counter().get_value());
    values.sum::<f64>() as u64
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
