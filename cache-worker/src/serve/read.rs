//! Answers `Read`: bytes of one block of one version.
//!
//! Asks no coherence question: a version never changes, and the reader has named it.

use std::sync::Arc;

use verbs3_protocol::{Read, is_strong_etag};
use verbs3_rdma::transport::Reply;

use super::{Reading, Refused};
use crate::fill::Target;
use crate::worker::Worker;

impl Worker {
    pub(super) async fn serve_read(&self, read: Read, landing_bytes: u64, reply: Reply) {
        self.metrics.reads.inc();
        match self.read(read, landing_bytes) {
            Ok(reading) => self.send_rest(reading, reply).await,
            Err(refused) => self.refuse(reply, refused).await,
        }
    }

    fn read(&self, read: Read, landing_bytes: u64) -> Result<Reading<'_>, Refused> {
        self.check_geometry(read.geometry)?;
        let source = self.source(&read.object.volume)?;
        let block_len = self.geometry.block_len(read.version.bytes, read.block);
        let range = read.start..read.end;
        if range.is_empty() || range.end > block_len {
            return Err(Refused::malformed(format!("bytes {range:?} of a block of {block_len} bytes")));
        }
        if u64::from(range.end - range.start) > landing_bytes {
            return Err(Refused::malformed(format!("bytes {range:?} for a landing of {landing_bytes} bytes")));
        }
        if !is_strong_etag(&read.version.etag) {
            return Err(Refused::malformed(format!("etag {:?} names no version", read.version.etag)));
        }
        if read.version.version_id.as_deref() == Some("null") {
            return Err(Refused::malformed("version id null names no version"));
        }
        let digest = self.digests.version(&read.object, &read.version);
        let target = Arc::new(Target { source, object: read.object, version: read.version, digest });
        Ok(Reading::start(self, target, read.block, range, read.ahead_bytes)?)
    }
}
