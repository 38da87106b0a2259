//! Owns what all reads of spans share: whom they ask, and the memory that they land in.

use std::sync::Arc;

use verbs3_rdma::arena::Arena;

use crate::asking::worker_asker::WorkerAsker;
use crate::reading::kept_pages::KeptPages;
use crate::reading::lease_table::TierLeaseTable;
use crate::reading::memory_wait::MemoryShortage;

/// Prepares reads of spans, and owns the memory that they land in.
pub(crate) struct SpanReader {
    pub(crate) asker: Arc<WorkerAsker>,
    pub(crate) leases: Arc<TierLeaseTable>,
    pub(crate) arena: Arena,
    pub(crate) shortage: MemoryShortage,
    pub(crate) kept_pages: Arc<KeptPages>,
}
