//! Owns the counters of one rail, resolved once for each connection.

use std::sync::atomic::{AtomicI64, Ordering};

use prometheus::IntGauge;

use super::sys::{WorkOperation, WorkRequest};
use crate::metrics::{GaugeGuard, PostedOperation, VerbsRailMetrics, rail_metrics};

/// The metrics of a rail, with the shares of one of its queue pairs.
pub(super) struct RailMetrics {
    pub(super) rail: VerbsRailMetrics,
    send_queue_used: RailGaugeShare,
    credits_free: RailGaugeShare,
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
        let rail = rail_metrics(rail);
        Self {
            send_queue_used: RailGaugeShare::new(rail.send_queue_used.clone()),
            credits_free: RailGaugeShare::new(rail.chunk_credits.clone()),
            _queue_pair: GaugeGuard::add_to(&rail.queue_pairs, 1),
            _places: GaugeGuard::add_to(&rail.send_queue_places, u64::from(send_queue)),
            rail,
        }
    }

    pub(super) fn count_posted(&self, works: &[WorkRequest]) {
        let (mut writes, mut sends, mut bytes) = (0, 0, 0);
        for work in works {
            match work.op {
                WorkOperation::Send => sends += 1,
                WorkOperation::Write { .. } | WorkOperation::WriteWithImmediate { .. } => {
                    writes += 1;
                    let pieces = &work.sges[..usize::from(work.sges_used)];
                    bytes += pieces.iter().map(|sge| u64::from(sge.bytes)).sum::<u64>();
                }
                WorkOperation::Read { .. }
                | WorkOperation::Bind { .. }
                | WorkOperation::Invalidate { .. } => {}
            }
        }
        let posted = &self.rail.work_requests;
        posted[PostedOperation::Write].inc_by(writes);
        posted[PostedOperation::Send].inc_by(sends);
        posted[PostedOperation::Window].inc_by(works.len() as u64 - writes - sends);
        self.rail.written_bytes.inc_by(bytes);
    }

    /// Shows how many requests are posted and not known to be complete, and how many chunks may
    /// still be sent.
    pub(super) fn show_outstanding(&self, requests: u64, credits_free: u32) {
        self.send_queue_used.set_value(requests);
        self.credits_free.set_value(u64::from(credits_free));
    }
}
