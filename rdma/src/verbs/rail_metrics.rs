//! Owns the counters of one rail, resolved once for each connection.

use std::sync::atomic::{AtomicI64, Ordering};

use prometheus::{Histogram, IntCounter, IntGauge};

use super::sys::{WorkOperation, WorkRequest};
use crate::metrics::{GaugeGuard, transport_metrics};

pub(super) struct RailMetrics {
    rail: String,
    send_queue_used: RailGaugeShare,
    credits_free: RailGaugeShare,
    pub(super) call_seconds: Histogram,
    pub(super) landed_bytes: IntCounter,
    writes: IntCounter,
    sends: IntCounter,
    windows: IntCounter,
    written_bytes: IntCounter,
    pub(super) copied_bytes: IntCounter,
    pub(super) completions: IntCounter,
    _queue_pair: GaugeGuard,
    _places: GaugeGuard,
}

/// Share of one queue pair in a gauge of its rail.
struct RailGaugeShare {
    gauge: IntGauge,
    mine: AtomicI64,
}

impl RailGaugeShare {
    fn new(gauge: IntGauge) -> Self {
        Self { gauge, mine: AtomicI64::new(0) }
    }

    fn set_value(&self, now: u64) {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let before = self.mine.swap(now, Ordering::Relaxed);
        if now != before {
            self.gauge.add(now - before);
        }
    }
}

impl Drop for RailGaugeShare {
    fn drop(&mut self) {
        self.set_value(0);
    }
}

impl RailMetrics {
    /// Makes the metrics of a queue pair whose send queue has `send_queue` places.
    pub(super) fn for_queue_pair(rail: &str, send_queue: u32) -> Self {
        let all = transport_metrics();
        Self {
            rail: rail.to_owned(),
            send_queue_used: RailGaugeShare::new(all.send_queue_used.with_label_values(&[rail])),
            credits_free: RailGaugeShare::new(all.chunk_credits.with_label_values(&[rail])),
            call_seconds: all.rail_call_seconds.with_label_values(&[rail]),
            landed_bytes: all.landed_bytes.with_label_values(&[rail]),
            writes: all.work_requests.with_label_values(&[rail, "write"]),
            sends: all.work_requests.with_label_values(&[rail, "send"]),
            windows: all.work_requests.with_label_values(&[rail, "window"]),
            written_bytes: all.written_bytes.with_label_values(&[rail]),
            copied_bytes: all.copied_bytes.with_label_values(&[rail]),
            completions: all.completions.with_label_values(&[rail]),
            _queue_pair: GaugeGuard::add_to(&all.queue_pairs.with_label_values(&[rail]), 1),
            _places: GaugeGuard::add_to(
                &all.send_queue_places.with_label_values(&[rail]),
                u64::from(send_queue),
            ),
        }
    }

    pub(super) fn count_posted(&self, works: &[WorkRequest]) {
        let (mut writes, mut sends, mut bytes) = (0, 0, 0);
        for work in works {
            match work.op {
                WorkOperation::Send => sends += 1,
                WorkOperation::Write { .. } => {
                    writes += 1;
                    let pieces = &work.sges[..usize::from(work.sges_used)];
                    bytes += pieces.iter().map(|sge| u64::from(sge.bytes)).sum::<u64>();
                }
                WorkOperation::Bind { .. } | WorkOperation::Invalidate { .. } => {}
            }
        }
        self.writes.inc_by(writes);
        self.sends.inc_by(sends);
        self.windows.inc_by(works.len() as u64 - writes - sends);
        self.written_bytes.inc_by(bytes);
    }

    /// Shows how many requests are posted and not known to be complete, and how many chunks may
    /// still be sent.
    pub(super) fn show_outstanding(&self, requests: u64, credits_free: u32) {
        self.send_queue_used.set_value(requests);
        self.credits_free.set_value(u64::from(credits_free));
    }

    pub(super) fn count_error(&self, kind: &str) {
        transport_metrics().verbs_errors.with_label_values(&[&self.rail, kind]).inc();
    }
}
