//! Installs pages that no fill has brought: a gateway has pushed them while it wrote the object.

use verbs3_protocol::BlockIndex;

use super::{FillTarget, PageFiller};
use crate::memory::{CachedPage, SaveEvidence};

impl PageFiller {
    /// Keeps a page as a fill would: in memory, and on disk if it is worth it. A page that is here
    /// already stays: those of one version are the same.
    pub(crate) fn install_page(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        page: u16,
        kept: CachedPage,
    ) {
        let key = target.digest.page_key(block, page);
        if self.memory.holds_page(key) {
            return;
        }
        let now_s = self.clock.now().as_secs();
        let returned = self.memory.insert_page(key, kept.clone(), now_s, target.account);
        self.offer_to_disk(target, block, page, &kept, SaveEvidence { uses: 0, returned });
        self.drop_parts(target.digest, block, page);
        if block.0 == 0 {
            // The object's attributes are not known here. A request for them should not bring the
            // bytes.
            self.unasked_versions.insert(self.digests.any_version(&target.object), target.digest);
        }
    }
}
