//! Owns the registration of an arena with one rail's device: its cut into regions, and which of
//! them are registered.
//!
//! Devices bound the length of a region, and short ones are registered in parallel. A border lies
//! between extents, so it never splits a cell. Does not decide when to register.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::sys::{MemoryRegion, ProtectionDomain, RegionTerms};
use crate::arena::Arena;
use crate::cpu_affinity::unpin_thread;
use crate::metrics::{GaugeGuard, rail_metrics};

/// Longest region. eRDMA takes no longer one (Mooncake issue 304), and a rail that fails half-way
/// begins again behind the last one that is done.
const REGION_BYTES_MAX: u64 = 64 << 30;

/// Threads that register one rail's regions. All rails register at once, and pinning of one process
/// stops to gain beyond some 16 threads.
pub(super) const THREADS_MAX: usize = 4;

/// Longest arena that is given back where it is dropped. Unpinning of a longer one takes a while.
const DROPPED_INLINE_BYTES_MAX: usize = 256 << 20;

/// The regions of one rail. The same ones serve until the device goes, however often the rail's
/// address changes.
pub(super) struct RailRegions {
    base: usize,
    bytes: usize,
    /// Length of each region but the last.
    stride: usize,
    regions: Vec<OnceLock<MemoryRegion>>,
    terms: RegionTerms,
    domain: Arc<ProtectionDomain>,
    registered: Mutex<Option<GaugeGuard>>,
    /// Declared last: the memory goes after its registrations.
    arena: Arena,
}

impl RailRegions {
    /// Cuts `arena` into regions that the device takes. Registers nothing yet.
    pub(super) fn new(domain: Arc<ProtectionDomain>, arena: Arena, terms: RegionTerms) -> Self {
        Self::with_bound(domain, arena, terms, REGION_BYTES_MAX)
    }

    /// Cuts `arena` like `new`, into regions of `region_bytes` at most.
    pub(super) fn with_bound(
        domain: Arc<ProtectionDomain>,
        arena: Arena,
        terms: RegionTerms,
        region_bytes: u64,
    ) -> Self {
        let (base, bytes) = arena.mapped_range();
        // A device that does not say refuses a region that is too long.
        let region_bytes_max =
            domain.query_capabilities().map_or(u64::MAX, |able| able.region_bytes_max);
        let region_bytes_max = region_bytes_max.min(region_bytes);
        let stride = region_stride(bytes, arena.extent_bytes(), region_bytes_max);
        let regions = (0..bytes.div_ceil(stride)).map(|_| OnceLock::new()).collect();
        let base = base.as_ptr() as usize;
        let registered = Mutex::new(None);
        Self { base, bytes, stride, regions, terms, domain, registered, arena }
    }

    /// Registers what is not registered yet, in parallel. What succeeded stays registered after a
    /// failure, so that another attempt pins nothing twice. This is slow.
    pub(super) fn register_missing(&self, rail: &str) -> io::Result<()> {
        self.register_on_threads(rail, THREADS_MAX)
    }

    /// Registers like `register_missing`, on `threads_max` threads at most.
    pub(super) fn register_on_threads(&self, rail: &str, threads_max: usize) -> io::Result<()> {
        let missing: Vec<usize> =
            (0..self.regions.len()).filter(|&at| self.regions[at].get().is_none()).collect();
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let register = || {
            while failure.lock().is_none()
                && let Some(&at) = missing.get(next.fetch_add(1, Ordering::Relaxed))
            {
                match self.register_region(at) {
                    Ok(region) => drop(self.regions[at].set(region)),
                    Err(error) => drop(failure.lock().replace(error)),
                }
            }
        };
        std::thread::scope(|threads| {
            for _ in 1..missing.len().min(threads_max) {
                threads.spawn(register);
            }
            register();
        });
        self.show_registered(rail);
        match failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn register_region(&self, at: usize) -> io::Result<MemoryRegion> {
        let offset = at * self.stride;
        let bytes = self.stride.min(self.bytes - offset);
        let (base, _) = self.arena.mapped_range();
        // SAFETY: inside the mapping, since `offset` is below its length.
        let base = unsafe { base.add(offset) };
        // SAFETY: the arena, and with it the mapping, is held by `self` and dropped after the
        // regions.
        unsafe { MemoryRegion::register_memory(self.domain.clone(), base, bytes, self.terms) }
    }

    fn show_registered(&self, rail: &str) {
        let bytes: usize =
            self.regions.iter().filter_map(OnceLock::get).map(MemoryRegion::len_bytes).sum();
        let gauge = rail_metrics(rail).registered_bytes;
        *self.registered.lock() = Some(GaugeGuard::add_to(&gauge, bytes as u64));
    }

    /// Returns the region that covers all of `bytes` from `address`.
    pub(super) fn region_of(&self, address: usize, bytes: usize) -> Option<&MemoryRegion> {
        let offset = address.checked_sub(self.base)?;
        let region = self.regions.get(offset / self.stride)?.get()?;
        region.covers_range(address, bytes).then_some(region)
    }

    /// Returns how many regions are registered, and how many there are to be.
    #[cfg(test)]
    pub(super) fn count_registered(&self) -> (usize, usize) {
        (self.regions.iter().filter_map(OnceLock::get).count(), self.regions.len())
    }
}

impl Drop for RailRegions {
    fn drop(&mut self) {
        let regions = std::mem::take(&mut self.regions);
        if self.bytes <= DROPPED_INLINE_BYTES_MAX {
            return;
        }
        // The last connection of a rail may end on a thread that drives others.
        let arena = self.arena.clone();
        let unpin = move || {
            unpin_thread();
            drop(regions);
            drop(arena);
        };
        // Without a thread, the closure is dropped here.
        let _ = std::thread::Builder::new().name("verbs3-unpin".into()).spawn(unpin);
    }
}

/// Returns the length of all regions of `bytes` but the last: whole extents, and no longer than
/// either bound allows.
fn region_stride(bytes: usize, extent_bytes: usize, region_bytes_max: u64) -> usize {
    let bound = region_bytes_max.min(REGION_BYTES_MAX);
    let bound = usize::try_from(bound).unwrap_or(usize::MAX).min(bytes);
    // A device that takes less than an extent can't be helped: it refuses the region by name.
    (bound / extent_bytes * extent_bytes).max(extent_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_whole_extents_within_the_limit_of_the_device() {
        let extent = 2 << 20;
        assert_eq!(region_stride(8 << 20, extent, u64::MAX), 8 << 20);
        assert_eq!(region_stride(8 << 20, extent, 5 << 20), 4 << 20);
        assert_eq!(region_stride(512 << 30, extent, u64::MAX), 64 << 30);
        assert_eq!(region_stride(512 << 30, extent, 2 << 30), 2 << 30);
        assert_eq!(region_stride(8 << 20, extent, 1), extent);
    }
}
