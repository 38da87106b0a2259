//! Writes pages to disk that must be there, whether or not they have proved worth it.

use verbs3_protocol::BlockIndex;

use super::{FillTarget, PageFiller};
use crate::memory::DemotionEvidence;

impl PageFiller {
    /// Offers a page in memory to the disk as one that will be read again.
    pub(crate) fn send_to_disk(&self, target: &FillTarget, block: BlockIndex, page: u16) {
        let key = target.digest.page_key(block, page);
        if self.is_on_disk(key) {
            return;
        }
        let now_s = self.clock.now().as_secs();
        if let Some((kept, _)) = self.memory.get_to_save(key, now_s, target.account) {
            self.offer_to_disk(
                target,
                block,
                page,
                &kept,
                DemotionEvidence { uses: 0, returned: true },
            );
        }
    }
}
