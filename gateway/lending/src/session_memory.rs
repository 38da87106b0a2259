//! Owns a client's memory as the gateway holds it: mapped, and as a place that bodies may be received
//! into. It is counted until it is unmapped.

use std::sync::Arc;

use verbs3_lending_protocol::{LentMapping, OutsideMemory};
use verbs3_rdma::foreign_memory::{BodyPlace, ForeignMemory};

/// The memory of one client.
pub(crate) struct SessionMemory {
    pub(crate) mapping: Arc<LentMapping>,
    foreign: Arc<ForeignMemory>,
}

impl SessionMemory {
    /// Takes mapped memory over. `place` is given back when it is unmapped.
    pub(crate) fn new<P: Send + Sync + 'static>(
        mapping: LentMapping,
        place: P,
    ) -> Result<Self, OutsideMemory> {
        let bytes = mapping.mapped_bytes();
        let base = mapping.locate_range(0, bytes)?;
        let mapping = Arc::new(mapping);
        let keeper = (mapping.clone(), place);
        // SAFETY: `keeper` keeps the mapping, which can be read and written, and whose pages stay: the
        // file is sealed. The gateway reaches it by copies and atomics otherwise. It has no place of
        // a body lie over the rings.
        let foreign = unsafe { ForeignMemory::new(base, bytes as usize, keeper) };
        Ok(Self { mapping, foreign })
    }

    /// Makes a place for a body. `None`: its bytes are to be copied.
    pub(crate) fn make_place(&self, offset: u64, bytes: u64) -> Option<Arc<BodyPlace>> {
        BodyPlace::new(self.foreign.clone(), offset, bytes)
    }
}
