//! The counters of one rail, resolved once for each connection.

use std::sync::atomic::{AtomicI64, Ordering};

use prometheus::{IntCounter, IntGauge};

use super::sys::{Op, Work};
use crate::metrics::{GaugeGuard, metrics};

pub(super) struct RailMetrics {
    rail: String,
    send_queue_used: IntGauge,
    /// What this queue pair has put into `send_queue_used`.
    used: AtomicI64,
    writes: IntCounter,
    sends: IntCounter,
    written_bytes: IntCounter,
    pub(super) copied_bytes: IntCounter,
    pub(super) completions: IntCounter,
    _queue_pair: GaugeGuard,
}

impl RailMetrics {
    pub(super) fn of(rail: &str) -> Self {
        let all = metrics();
        Self {
            rail: rail.to_owned(),
            send_queue_used: all.send_queue_used.with_label_values(&[rail]),
            used: AtomicI64::new(0),
            writes: all.work_requests.with_label_values(&[rail, "write"]),
            sends: all.work_requests.with_label_values(&[rail, "send"]),
            written_bytes: all.written_bytes.with_label_values(&[rail]),
            copied_bytes: all.copied_bytes.with_label_values(&[rail]),
            completions: all.completions.with_label_values(&[rail]),
            _queue_pair: GaugeGuard::add(&all.queue_pairs.with_label_values(&[rail]), 1),
        }
    }

    pub(super) fn posted(&self, works: &[Work]) {
        let (mut writes, mut bytes) = (0, 0);
        for work in works.iter().filter(|work| work.op != Op::Send) {
            writes += 1;
            bytes += work.sges[..usize::from(work.sges_used)].iter().map(|sge| u64::from(sge.bytes)).sum::<u64>();
        }
        self.writes.inc_by(writes);
        self.sends.inc_by(works.len() as u64 - writes);
        self.written_bytes.inc_by(bytes);
    }

    /// So many requests are posted and not known to be complete.
    pub(super) fn outstanding(&self, requests: u64) {
        let now = i64::try_from(requests).unwrap_or(i64::MAX);
        let before = self.used.swap(now, Ordering::Relaxed);
        self.send_queue_used.add(now - before);
    }

    pub(super) fn failed(&self, kind: &str) {
        metrics().verbs_errors.with_label_values(&[&self.rail, kind]).inc();
    }
}

impl Drop for RailMetrics {
    fn drop(&mut self) {
        self.outstanding(0);
    }
}
