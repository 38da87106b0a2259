//! The pages of this worker, in memory and on disk: found, filled, sent, and looked after. A read's
//! pages, hits too, are looked up in `fill/page_claim`, in one step with the claim of what is
//! missing.
//!
//! Needs no coherence: a page belongs to a version, which never changes, and who asks has named it.

mod block_tending;
mod disk_settling;
mod neighbour_reads;
mod page_warming;
mod span_reader;

use std::sync::Arc;

use verbs3_protocol::{
    BlockIndex, ContentVersion, ObjectKey, ReadMessage, WarmTier, is_strong_etag,
};

pub(crate) use span_reader::{BlockSpanReader, BlockSpanWant, SpanReplyChunk};

use crate::block_heat::BlockHeatTable;
use crate::clock::WorkerClock;
use crate::digest::{KeyedDigester, PageKey, VersionDigest};
use crate::fill::{FillTarget, PageFiller};
use crate::former_owners::FormerOwners;
use crate::metrics::WorkerMetrics;
use crate::question_checks::QuestionChecks;
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::warmup_limiter::WarmupLimiter;

/// What serves pages.
pub(crate) struct PageServer {
    pub(crate) checks: Arc<QuestionChecks>,
    pub(crate) digests: KeyedDigester,
    pub(crate) filler: Arc<PageFiller>,
    pub(crate) former: Arc<FormerOwners>,
    pub(crate) heat: Arc<BlockHeatTable>,
    pub(crate) warming: WarmupLimiter,
    pub(crate) clock: Arc<dyn WorkerClock>,
    pub(crate) metrics: WorkerMetrics,
}

impl PageServer {
    pub(crate) fn begin_read(
        &self,
        read: ReadMessage,
        account: TenantAccount,
        landing_bytes: u64,
        replica: bool,
    ) -> Result<BlockSpanReader<'_>, ServeRefusal> {
        self.checks.check_geometry(read.geometry)?;
        let block_len = self.checks.geometry.block_len(read.version.bytes, read.block);
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
        let ReadMessage { block, ahead_bytes, request_range, .. } = read;
        let want = BlockSpanWant { block, range, ahead_bytes, request_range };
        Ok(BlockSpanReader::start_read(self, target, want)?)
    }

    /// Builds the fill target, if the request names an object version that this worker can fill.
    pub(crate) fn fill_target(
        &self,
        object: ObjectKey,
        version: ContentVersion,
        account: TenantAccount,
    ) -> Result<Arc<FillTarget>, ServeRefusal> {
        let source = self.checks.volume_source(&object.volume)?;
        check_version(&version)?;
        let digest = self.digests.digest_version(&object, &version);
        Ok(Arc::new(FillTarget { source, object, version, digest, account }))
    }

    /// Returns whether the page is here: on disk, or also in memory if `tier` is memory.
    pub(crate) fn is_page_here(
        &self,
        digest: VersionDigest,
        block: BlockIndex,
        page: u16,
        tier: WarmTier,
    ) -> bool {
        let key: PageKey = digest.page_key(block, page);
        tier == WarmTier::Memory && self.filler.memory_tier().holds_page(key)
            || self.filler.is_on_disk(key)
    }
}

/// Checks that a request names one immutable state of an object.
fn check_version(version: &ContentVersion) -> Result<(), ServeRefusal> {
    if is_strong_etag(&version.etag) && version.version_id.as_deref() != Some("null") {
        return Ok(());
    }
    Err(ServeRefusal::Unversioned(version.clone()))
}
