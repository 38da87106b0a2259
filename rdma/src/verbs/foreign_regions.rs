//! Owns the registrations of another process's memory: one with each device whose rails land there.
//!
//! A registration pins the memory, which takes a while. So nobody waits for it: until it is there,
//! replies travel in the stream. It ends with the memory, or with the rail's device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::rail_regions::RailRegions;
use super::sys::{MemoryRegion, ProtectionDomain, RegionTerms};
use crate::foreign_memory::{DeviceHold, ForeignMemory};
use crate::metrics::{GaugeGuard, rail_metrics};

/// One registration.
pub(super) struct ForeignRegion {
    region: MemoryRegion,
    _shown: GaugeGuard,
}

/// The memory of other processes that is registered with a device, whose end ends that.
pub(super) struct ForeignTable {
    domain: Arc<ProtectionDomain>,
    terms: RegionTerms,
    memories: Mutex<Vec<Weak<ForeignMemory>>>,
    /// The log tells of refusals once.
    has_warned: AtomicBool,
}

/// The registrations that one landing may lie in.
pub(super) struct LandingRegions<'a> {
    pub(super) arena: &'a RailRegions,
    pub(super) foreign: Option<Arc<ForeignRegion>>,
}

impl LandingRegions<'_> {
    /// Returns the region that covers all of `bytes` from `address`.
    pub(super) fn region_of(&self, address: usize, bytes: usize) -> Option<&MemoryRegion> {
        let foreign = self.foreign.as_ref().map(|foreign| &foreign.region);
        foreign
            .filter(|region| region.covers_range(address, bytes))
            .or_else(|| self.arena.region_of(address, bytes))
    }
}

/// What there is of a registration.
pub(super) enum RegionSearch {
    Found(Arc<ForeignRegion>),
    /// There is none yet; who asked is to make it, by [`ForeignTable::register_memory`].
    Wanted,
    /// There is none, and somebody sees to it, or nobody can.
    Missing,
}

impl ForeignTable {
    /// Makes the table of a device. Regions are registered by `terms`.
    pub(super) fn new(domain: Arc<ProtectionDomain>, terms: RegionTerms) -> Self {
        Self { domain, terms, memories: Mutex::default(), has_warned: AtomicBool::new(false) }
    }

    /// Looks for the registration of another process's memory with this device.
    pub(super) fn find_memory(&self, memory: &ForeignMemory) -> RegionSearch {
        let device = domain_address(&self.domain);
        let mut holds = memory.device_holds().lock();
        let Some(hold) = holds.iter().find(|hold| hold.device == device) else {
            holds.push(DeviceHold { device, registration: None });
            return RegionSearch::Wanted;
        };
        let region = hold.registration.clone().and_then(|region| region.downcast().ok());
        region.map_or(RegionSearch::Missing, RegionSearch::Found)
    }

    /// Registers another process's memory. This is slow.
    pub(super) fn register_memory(&self, memory: &Arc<ForeignMemory>) {
        let (device, port) = self.domain.device_port();
        let rail = format!("{device}:{port}");
        let (base, bytes) = memory.mapped_range();
        // Before it is registered: the device's end looks here.
        {
            let mut memories = self.memories.lock();
            memories.retain(|memory| memory.strong_count() > 0);
            memories.push(Arc::downgrade(memory));
        }
        // SAFETY: the memory drops its registrations before its mapping, and they are in no other
        // hand for longer than it is: a landing that lies in them holds it.
        let registered =
            unsafe { MemoryRegion::register_memory(self.domain.clone(), base, bytes, self.terms) };
        let region = match registered {
            Ok(region) => region,
            Err(error) => {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(rail, %error, "what lands in memory of clients is copied there");
                }
                return;
            }
        };
        let shown = GaugeGuard::add_to(&rail_metrics(&rail).registered_bytes, bytes as u64);
        let region = Arc::new(ForeignRegion { region, _shown: shown });
        let device = domain_address(&self.domain);
        let mut holds = memory.device_holds().lock();
        if let Some(hold) = holds.iter_mut().find(|hold| hold.device == device) {
            hold.registration = Some(region);
        }
    }

    /// Registers memory now, where nobody has asked for it yet.
    #[cfg(test)]
    pub(super) fn register_for_test(&self, memory: &Arc<ForeignMemory>) {
        assert!(matches!(self.find_memory(memory), RegionSearch::Wanted));
        self.register_memory(memory);
    }
}

impl Drop for ForeignTable {
    /// No connection is left that could write to the memory.
    fn drop(&mut self) {
        let device = domain_address(&self.domain);
        for memory in std::mem::take(self.memories.get_mut()) {
            if let Some(memory) = memory.upgrade() {
                let mut holds = memory.device_holds().lock();
                let ended: Vec<_> = holds.extract_if(.., |hold| hold.device == device).collect();
                // Other rails look here while they serve data.
                drop(holds);
                drop(ended);
            }
        }
    }
}

/// Names a device. It outlives its holds: its end ends them.
fn domain_address(domain: &Arc<ProtectionDomain>) -> usize {
    Arc::as_ptr(domain) as usize
}
