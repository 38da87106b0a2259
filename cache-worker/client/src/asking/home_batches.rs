//! Groups keys by their homes, into messages of bounded length.

use std::sync::Arc;

use verbs3_protocol::{ListedEntry, ObjectKey, ObjectVolume};

use crate::asking::worker::TierWorker;
use crate::asking::worker_map::TierWorkerMap;

/// Most keys in one message. Workers accept that many by default, and S3 allows as many in a batch
/// delete.
const KEYS_PER_MESSAGE_MAX: usize = 1000;
/// Most bytes in one message: half of a transport's default frame (64 KiB); the rest is for what
/// stands beside the keys. A key has up to 1 KiB, so a thousand long ones would not fit.
const BYTES_PER_MESSAGE_MAX: usize = 32 << 10;

/// A home, and the items of one message to it.
pub(crate) type HomeKeyBatch<T> = (Arc<TierWorker>, Vec<T>);

/// An item of a message that belongs to one key.
pub(crate) trait OfKey {
    fn entry_key(&self) -> &str;
    /// Returns an upper bound of the item's bytes on the wire.
    fn wire_bytes(&self) -> usize;
}

impl OfKey for String {
    fn entry_key(&self) -> &str {
        self
    }

    fn wire_bytes(&self) -> usize {
        self.len() + 4
    }
}

impl OfKey for ListedEntry {
    fn entry_key(&self) -> &str {
        &self.key
    }

    fn wire_bytes(&self) -> usize {
        let etag = self.shown.as_ref().and_then(|shown| shown.etag.as_ref()).map_or(0, String::len);
        // The 32 bytes are for lengths, options, and two numbers of ten bytes each.
        self.key.len() + etag + 32
    }
}

impl TierWorkerMap {
    /// Groups items by home. Without a map there are no groups.
    pub(crate) fn by_home<T: OfKey>(
        &self,
        volume: &ObjectVolume,
        items: Vec<T>,
    ) -> Vec<HomeKeyBatch<T>> {
        let mut groups: Vec<HomeKeyBatch<T>> = Vec::new();
        // Bytes of each group, in the order of `groups`.
        let mut sizes: Vec<usize> = Vec::new();
        let mut object = ObjectKey { volume: volume.clone(), key: String::new() };
        for item in items {
            item.entry_key().clone_into(&mut object.key);
            let Some(home) = self.home_worker(&object) else { continue };
            let bytes = item.wire_bytes();
            let room = groups.iter().zip(&sizes).position(|((worker, items), size)| {
                Arc::ptr_eq(worker, home)
                    && items.len() < KEYS_PER_MESSAGE_MAX
                    && size + bytes <= BYTES_PER_MESSAGE_MAX
            });
            match room {
                Some(at) => {
                    groups[at].1.push(item);
                    sizes[at] += bytes;
                }
                None => {
                    groups.push((home.clone(), vec![item]));
                    sizes.push(bytes);
                }
            }
        }
        groups
    }
}
