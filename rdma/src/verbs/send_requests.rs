//! Owns the requests of one send queue: their ids, which of them are complete, and which are
//! signalled.

use super::sys::{GatherElement, SGES_MAX, WorkOperation, WorkRequest};

/// Count of SENDs after which one is signalled, so that their slots come back in time.
const SIGNAL_EVERY: u32 = 8;

/// A request without data.
pub(super) const NO_SGES: [GatherElement; SGES_MAX] =
    [GatherElement { address: 0, bytes: 0, lkey: 0 }; SGES_MAX];

/// The requests that are made, posted, and not known to be complete.
pub(super) struct SendRequests {
    /// Depth of the send queue.
    depth: u64,
    /// Id of the last request made; below it, of the last one known to be complete.
    made: u64,
    complete: u64,
    /// Id of the last request that the peer's NIC acknowledges.
    acknowledged_last: u64,
    /// Id of the last nudge, a request that does nothing.
    nudged: u64,
    sends_unsignalled: u32,
    /// Requests to post next.
    works: Vec<WorkRequest>,
}

impl SendRequests {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            depth: u64::from(depth),
            made: 0,
            complete: 0,
            acknowledged_last: 0,
            nudged: 0,
            sends_unsignalled: 0,
            works: Vec::new(),
        }
    }

    /// Begins a list. The one before was posted.
    pub(super) fn begin_list(&mut self) {
        self.works.clear();
    }

    /// Adds a request to the list. Returns its id.
    pub(super) fn add_request(
        &mut self,
        op: WorkOperation,
        sges: [GatherElement; SGES_MAX],
        sges_used: u8,
        inline: bool,
    ) -> u64 {
        self.made += 1;
        if matches!(op, WorkOperation::Write { .. } | WorkOperation::Send) {
            self.acknowledged_last = self.made;
        }
        let (id, signalled) = (self.made, false);
        self.works.push(WorkRequest { id, op, sges, sges_used, signalled, inline });
        self.made
    }

    /// Adds a request that does nothing, unless one is in flight already.
    pub(super) fn add_nudge(&mut self) {
        if self.nudged <= self.complete {
            // A WRITE of no bytes: the NIC checks no key and takes no receive buffer.
            let nothing = WorkOperation::Write { address: 0, key: 0 };
            self.nudged = self.add_request(nothing, NO_SGES, 0, false);
        }
    }

    /// Counts a SEND, and signals one from time to time.
    pub(super) fn count_send(&mut self) {
        self.sends_unsignalled += 1;
        if self.sends_unsignalled >= SIGNAL_EVERY {
            self.signal_last();
        }
    }

    /// Signals whatever is posted last, and returns the list. So nothing is held longer than
    /// needed, and a full queue moves on. Without the signal on SENDs that hold only their slot, a
    /// requester that pushed 3 MiB waited for ever.
    pub(super) fn signal_last(&mut self) -> &[WorkRequest] {
        if let Some(last) = self.works.last_mut() {
            last.signalled = true;
            self.sends_unsignalled = 0;
        }
        &self.works
    }

    /// Records that all requests up to `id` are complete.
    pub(super) fn record_completion(&mut self, id: u64) {
        self.complete = self.complete.max(id);
    }

    /// Returns true while the peer's NIC has something to acknowledge.
    pub(super) fn awaits_acks(&self) -> bool {
        self.complete < self.acknowledged_last
    }

    /// Returns the count of requests that are not known to be complete.
    pub(super) fn outstanding_requests(&self) -> u64 {
        self.made - self.complete
    }

    /// Returns the count of free places in the queue.
    pub(super) fn queue_free(&self) -> u64 {
        self.depth.saturating_sub(self.outstanding_requests())
    }
}
