//! Answers a worker that leaves: takes a block over from it before anybody reads it here. What it
//! does not have is not filled.

use verbs3_protocol::{RefusalKind, TakeOver, WorkerReply as Message};

use super::ServeRefusal;
use crate::worker::CacheWorker;

impl CacheWorker {
    pub(super) async fn answer_take_over(&self, asked: TakeOver) -> Result<Message, ServeRefusal> {
        self.metrics.take_overs.inc();
        let TakeOver { object, version, epoch, geometry, block, heat_bytes } = asked;
        self.check_geometry(geometry)?;
        let own = self.standing.current_epoch();
        if own != epoch {
            // Only by the same map is it known here whose the block was.
            let reason = format!("asked by epoch {:016x}, has {:016x}", epoch.0, own.0);
            return Err(ServeRefusal::new(RefusalKind::WrongEpoch(own), reason));
        }
        let target = self.fill_target(object, version)?;
        if self.geometry.block_len(target.version.bytes, block) == 0 {
            return Err(ServeRefusal::new_malformed(format!(
                "block {} of {} bytes",
                block.0, target.version.bytes
            )));
        }
        // It will be this worker's to hand over, should it leave next.
        let heat_bytes = u32::try_from(heat_bytes).unwrap_or(u32::MAX);
        self.heat.record_inherited(&target, block, heat_bytes, self.clock.now().as_secs());
        let bytes = self.filler.take_over_block(target, block).await;
        Ok(Message::TakenOver { bytes })
    }
}
