//! Answers `ReadMessage`: sends bytes of one block of one version.
//!
//! Needs no coherence check: a version never changes, and the reader has named it.

use verbs3_protocol::{ReadMessage, ReadSource};
use verbs3_rdma::transport::ReplySender;

use crate::metrics::CountedRequest;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

impl CacheWorker {
    pub(super) async fn serve_read(
        &self,
        read: ReadMessage,
        account: TenantAccount,
        landing_bytes: u64,
        reply: ReplySender,
    ) {
        let replica = match read.from {
            ReadSource::Owner => {
                self.metrics.requests[CountedRequest::Read].inc();
                false
            }
            // By this worker's own map it may be the owner. Then it serves the read like any other.
            ReadSource::Replica => {
                self.metrics.requests[CountedRequest::ReadReplica].inc();
                !self.pages.former.is_mine(read.object.block_slot(read.block))
            }
            ReadSource::Held => {
                self.metrics.requests[CountedRequest::ReadHeld].inc();
                return match self.pages.check_held(&read, landing_bytes) {
                    Ok(()) => self.pages.send_cached_pages(read, reply).await,
                    Err(refused) => self.refuse_request(reply, refused).await,
                };
            }
        };
        match self.pages.begin_read(read, account, landing_bytes, replica) {
            Ok(reading) => self.send_rest(reading, reply).await,
            Err(refused) => self.refuse_request(reply, refused).await,
        }
    }
}
