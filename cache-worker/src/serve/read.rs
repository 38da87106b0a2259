//! Answers `ReadMessage`: sends bytes of one block of one version.
//!
//! Needs no coherence check: a version never changes, and the reader has named it.

use std::sync::Arc;

use verbs3_protocol::{ContentVersion, ObjectKey, ReadMessage, ReadSource, is_strong_etag};
use verbs3_rdma::transport::ReplySender;

use super::{BlockSpanReader, ServeRefusal};
use crate::fill::FillTarget;
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
                !self.former.is_mine(read.object.block_slot(read.block))
            }
            ReadSource::Held => return self.serve_held(read, landing_bytes, reply).await,
        };
        match self.begin_read(read, account, landing_bytes, replica) {
            Ok(reading) => self.send_rest(reading, reply).await,
            Err(refused) => self.refuse_request(reply, refused).await,
        }
    }

    fn begin_read(
        &self,
        read: ReadMessage,
        account: TenantAccount,
        landing_bytes: u64,
        replica: bool,
    ) -> Result<BlockSpanReader<'_>, ServeRefusal> {
        self.check_geometry(read.geometry)?;
        let block_len = self.geometry.block_len(read.version.bytes, read.block);
        let range = read.start..read.end;
        if range.is_empty() || range.end > block_len {
            return Err(ServeRefusal::OutsideBlock { range, block_bytes: block_len });
        }
        if u64::from(range.end - range.start) > landing_bytes {
            return Err(ServeRefusal::ShortLanding { range, landing_bytes });
        }
        let target = self.fill_target(read.object, read.version, account)?;
        if replica {
            return Ok(BlockSpanReader::start_replica(self, target, read.block, range)?);
        }
        Ok(BlockSpanReader::start_read(self, target, read.block, range, read.ahead_bytes)?)
    }

    /// Builds the fill target, if the request names an object version that this worker can fill.
    pub(super) fn fill_target(
        &self,
        object: ObjectKey,
        version: ContentVersion,
        account: TenantAccount,
    ) -> Result<Arc<FillTarget>, ServeRefusal> {
        let source = self.volume_source(&object.volume)?;
        check_version(&version)?;
        let digest = self.digests.digest_version(&object, &version);
        Ok(Arc::new(FillTarget { source, object, version, digest, account }))
    }
}

/// Checks that a request names one immutable state of an object.
pub(super) fn check_version(version: &ContentVersion) -> Result<(), ServeRefusal> {
    if is_strong_etag(&version.etag) && version.version_id.as_deref() != Some("null") {
        return Ok(());
    }
    Err(ServeRefusal::Unversioned(version.clone()))
}
