//! Offers pages to the disk: after a fill, after a hit, and where somebody wants them there. What
//! memory evicts goes nowhere.

use verbs3_protocol::BlockIndex;

use super::{FillTarget, PageFiller};
use crate::disk::DiskOffer;
use crate::memory::{CachedPage, SaveEvidence};

impl PageFiller {
    /// Offers a page to the disk. Never waits.
    pub(super) fn offer_to_disk(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        page: u16,
        kept: &CachedPage,
        unsaved: SaveEvidence,
    ) {
        let Some(disk) = &self.disk else { return };
        let offer = DiskOffer {
            version: target.digest,
            block,
            page,
            object: self.digests.any_version(&target.object),
            volume: self.digests.digest_volume(&target.object.volume),
            account: target.account,
            cell: &kept.cell,
            length: kept.bytes,
            checksum: kept.checksum,
            uses: unsaved.uses,
            returned: unsaved.returned,
        };
        if disk.offer_page(&offer) {
            self.memory.mark_saved(target.digest.page_key(block, page));
        }
    }

    /// Offers a page in memory to the disk as one that will be read again, whether or not it has
    /// proved worth it.
    pub(crate) fn send_to_disk(&self, target: &FillTarget, block: BlockIndex, page: u16) {
        let key = target.digest.page_key(block, page);
        if self.is_on_disk(key) {
            return;
        }
        let now_s = self.clock.now().as_secs();
        if let Some((kept, _)) = self.memory.use_page(key, now_s, target.account) {
            self.offer_to_disk(
                target,
                block,
                page,
                &kept,
                SaveEvidence { uses: 0, returned: true },
            );
        }
    }
}
