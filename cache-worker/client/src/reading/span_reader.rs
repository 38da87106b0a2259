//! Owns the making of reads of spans: by which map, and in whose memory.

use std::sync::Arc;

use verbs3_rdma::arena::Arena;

use crate::asking::worker_asker::WorkerAsker;
use crate::asking::worker_map::{HotBlockDraw, TierWorkerMap};
use crate::metrics::SpreadTarget;
use crate::reading::lease_table::TierLeaseTable;
use crate::reading::span_read::SpanRead;
use crate::reading::span_request::SpanRequest;

/// Prepares reads of spans, and owns the memory that they land in.
pub(crate) struct SpanReader {
    pub(crate) asker: Arc<WorkerAsker>,
    pub(crate) leases: Arc<TierLeaseTable>,
    pub(crate) arena: Arena,
}

impl SpanReader {
    /// Prepares the read of one span. Nothing is asked before the first poll or
    /// [`SpanRead::start`].
    pub(crate) fn read_span(self: &Arc<Self>, request: SpanRequest) -> SpanRead {
        let map = self.asker.placement.load_map();
        let drawn = map.draw_worker(&request.object, request.span.block);
        self.read_span_at(request, &map, drawn)
    }

    /// Prepares the read of one span by `map`, which also gave `drawn`.
    pub(crate) fn read_span_at(
        self: &Arc<Self>,
        request: SpanRequest,
        map: &TierWorkerMap,
        drawn: Option<HotBlockDraw>,
    ) -> SpanRead {
        let mut candidates = map.block_candidates(request.object.block_hash(request.span.block));
        match drawn {
            Some(HotBlockDraw::Replica(replica)) => {
                self.asker.metrics.spread[SpreadTarget::Replica].inc();
                candidates.replica = Some(replica);
            }
            Some(HotBlockDraw::Owner) => self.asker.metrics.spread[SpreadTarget::Owner].inc(),
            None => {}
        }
        SpanRead::new(self.clone(), request, candidates)
    }
}
