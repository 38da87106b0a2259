//! Answers a draining worker: copies a block from it before anybody reads the block here. Pages
//! that it lacks are not filled.

use verbs3_protocol::{TakeOver, TakeOverReply};

use crate::metrics::CountedRequest;
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

impl CacheWorker {
    pub(super) async fn answer_take_over(
        &self,
        asked: TakeOver,
    ) -> Result<TakeOverReply, ServeRefusal> {
        self.metrics.requests[CountedRequest::TakeOver].inc();
        let TakeOver { object, version, epoch, geometry, block, heat_bytes } = asked;
        self.checks.check_geometry(geometry)?;
        let own = self.home.standing.current_epoch();
        if own != epoch {
            // Only under the same map does this worker know the block's former owner.
            return Err(ServeRefusal::OtherMap { asked: epoch, own });
        }
        let target = self.pages.fill_target(object, version, TenantAccount::NOBODY)?;
        if self.checks.geometry.block_len(target.version.bytes, block) == 0 {
            let object_bytes = target.version.bytes;
            return Err(ServeRefusal::BlockPastEnd { block: block.0, object_bytes });
        }
        // If this worker drains next, it hands the block over in turn.
        let heat_bytes = u32::try_from(heat_bytes).unwrap_or(u32::MAX);
        self.pages.heat.record_inherited(&target, block, heat_bytes, self.clock.now().as_secs());
        let bytes = self.pages.filler.take_over_block(target, block).await;
        Ok(TakeOverReply { bytes })
    }
}
