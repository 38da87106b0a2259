//! Owns how the read of a span begins: by which map, and with whom of those that have its block.

use std::sync::Arc;

use crate::asking::worker_map::{HotBlockDraw, TierWorkerMap};
use crate::metrics::SpreadTarget;
use crate::reading::span_read::SpanRead;
use crate::reading::span_reader::SpanReader;
use crate::reading::span_request::SpanRequest;

impl SpanReader {
    /// Prepares the read of one span. Pages that are kept answer it, and nobody is asked. Nothing
    /// is asked before the first poll or [`SpanRead::start`].
    pub(crate) fn read_span(self: &Arc<Self>, request: SpanRequest) -> SpanRead {
        let map = self.asker.placement.load_map();
        let drawn = map.draw_worker(&request.object, request.span.block);
        self.read_span_at(request, &map, drawn)
    }

    /// The same by `map`, which also gave `drawn`.
    pub(crate) fn read_span_at(
        self: &Arc<Self>,
        request: SpanRequest,
        map: &TierWorkerMap,
        drawn: Option<HotBlockDraw>,
    ) -> SpanRead {
        if let Some(data) = self.kept_pages.find_span(&request) {
            return SpanRead::of_kept_pages(self.clone(), request, data);
        }
        let gathering = self.kept_pages.begin_gathering(&request);
        self.ask_span_at(request, map, drawn).gather_bytes(gathering)
    }

    /// Prepares the read of one span by the workers alone, whatever is kept. Nothing of it is kept.
    pub(crate) fn ask_span(self: &Arc<Self>, request: SpanRequest) -> SpanRead {
        let map = self.asker.placement.load_map();
        let drawn = map.draw_worker(&request.object, request.span.block);
        self.ask_span_at(request, &map, drawn)
    }

    fn ask_span_at(
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
