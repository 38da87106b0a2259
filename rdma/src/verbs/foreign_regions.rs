//! Owns the registrations of another process's memory: one with each device whose rails land there.
//!
//! A registration pins the memory, which takes a while. So nobody waits for it: until it is there,
//! replies travel in the stream. It ends with the memory, or with the rail's device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::rail::RailDevice;
use super::rail_regions::RailRegions;
use super::sys::{MemoryRegion, ProtectionDomain};
use crate::foreign_memory::ForeignMemory;
use crate::metrics::{GaugeGuard, rail_metrics};

/// The registrations of one memory.
#[derive(Default)]
pub(crate) struct ForeignRegions {
    slots: Mutex<Vec<RegionSlot>>,
}

struct RegionSlot {
    /// Address of the device's protection domain, which outlives the slot: its device forgets it.
    domain: usize,
    state: SlotState,
}

enum SlotState {
    /// Somebody registers it now.
    Pending,
    Registered(Arc<ForeignRegion>),
    /// The device has refused it, and is not asked again.
    Refused,
}

/// One registration.
pub(super) struct ForeignRegion {
    region: MemoryRegion,
    _shown: GaugeGuard,
}

impl ForeignRegions {
    /// Returns whether no device has registered it, or is about to.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.lock().is_empty()
    }
}

/// The memory that a device's rails have registered for other processes.
#[derive(Default)]
pub(super) struct ForeignTable {
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
    /// There is none yet; who asked is to make it, by [`RailDevice::register_foreign`].
    Wanted,
    /// There is none, and somebody sees to it, or nobody can.
    Missing,
}

impl RailDevice {
    /// Looks for the registration of another process's memory with this device.
    pub(super) fn find_foreign(&self, memory: &ForeignMemory) -> RegionSearch {
        let domain = domain_address(&self.domain);
        let mut slots = memory.registrations().slots.lock();
        match slots.iter().find(|slot| slot.domain == domain).map(|slot| &slot.state) {
            Some(SlotState::Registered(region)) => RegionSearch::Found(region.clone()),
            Some(SlotState::Pending | SlotState::Refused) => RegionSearch::Missing,
            None => {
                slots.push(RegionSlot { domain, state: SlotState::Pending });
                RegionSearch::Wanted
            }
        }
    }

    /// Registers another process's memory. This is slow.
    pub(super) fn register_foreign(&self, memory: &Arc<ForeignMemory>) {
        let (device, port) = self.domain.device_port();
        let rail = format!("{device}:{port}");
        let (base, bytes) = memory.mapped_range();
        // Before it is registered: the device's end looks here.
        {
            let mut memories = self.foreign.memories.lock();
            memories.retain(|memory| memory.strong_count() > 0);
            memories.push(Arc::downgrade(memory));
        }
        // SAFETY: the memory drops its registrations before its mapping, and they are in no other
        // hand for longer than it is: a landing that lies in them holds it.
        let registered = unsafe {
            MemoryRegion::register_memory(self.domain.clone(), base, bytes, self.regions.terms())
        };
        let state = match registered {
            Ok(region) => {
                let shown = GaugeGuard::add_to(&rail_metrics(&rail).registered_bytes, bytes as u64);
                SlotState::Registered(Arc::new(ForeignRegion { region, _shown: shown }))
            }
            Err(error) => {
                if !self.foreign.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(rail, %error, "what lands in memory of clients is copied there");
                }
                SlotState::Refused
            }
        };
        let domain = domain_address(&self.domain);
        let mut slots = memory.registrations().slots.lock();
        if let Some(slot) = slots.iter_mut().find(|slot| slot.domain == domain) {
            slot.state = state;
        }
    }

    /// Registers memory now, where nobody has asked for it yet.
    #[cfg(test)]
    pub(super) fn register_foreign_for_test(&self, memory: &Arc<ForeignMemory>) {
        assert!(matches!(self.find_foreign(memory), RegionSearch::Wanted));
        self.register_foreign(memory);
    }

    /// Ends the registrations that other processes' memory has with this device. No connection is
    /// left that could write there.
    pub(super) fn forget_foreign(&mut self) {
        let domain = domain_address(&self.domain);
        for memory in std::mem::take(self.foreign.memories.get_mut()) {
            if let Some(memory) = memory.upgrade() {
                let mut slots = memory.registrations().slots.lock();
                let ended: Vec<_> = slots.extract_if(.., |slot| slot.domain == domain).collect();
                // Other rails look here while they serve data.
                drop(slots);
                drop(ended);
            }
        }
    }
}

fn domain_address(domain: &Arc<ProtectionDomain>) -> usize {
    Arc::as_ptr(domain) as usize
}
