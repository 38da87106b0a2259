//! Pages that are to be on disk whether or not they have proved worth it.

use verbs3_protocol::BlockIndex;

use super::{Filler, Target};
use crate::memory::Unsaved;

impl Filler {
    /// Offers a page that is in memory to the disk as one that will be read again.
    pub(crate) fn send_to_disk(&self, target: &Target, block: BlockIndex, page: u16) {
        let key = target.digest.page(block, page);
        if self.is_on_disk(key) {
            return;
        }
        if let Some((kept, _)) = self.memory.get_to_save(key, self.clock.now().seconds()) {
            self.save(target, block, page, &kept, Unsaved { uses: 0, returned: true });
        }
    }
}
