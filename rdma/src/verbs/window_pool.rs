//! Owns the unused memory windows of a rail, and the memory that waits for windows to close.
//!
//! A landing is opened for the one queue pair that it is lent over. It is closed before its memory
//! is loaned again. The requests go through `ChunkSender`, in order with the frames that tell the
//! keys.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;

use super::foreign_regions::LandingRegions;
use super::sys::{MemoryWindow, ProtectionDomain, WorkOperation};
use crate::calls::MemorySegment;
use crate::memory_span::MemoryHold;
use crate::metrics::{GaugeGuard, WindowState, rail_metrics};

/// The memory windows of one rail.
pub(super) struct MemoryWindowPool {
    domain: Arc<ProtectionDomain>,
    spare: Mutex<Vec<PooledWindow>>,
    made: IntGauge,
    bound: IntGauge,
}

/// One window, counted.
pub(super) struct PooledWindow {
    window: MemoryWindow,
    _made: GaugeGuard,
}

impl MemoryWindowPool {
    /// Makes the pool with one window, since a device that reports windows may have none left.
    pub(super) fn new(rail: &str, domain: &Arc<ProtectionDomain>) -> io::Result<Self> {
        if !domain.query_capabilities()?.windows {
            return Err(io::Error::other("its device has no memory windows of type 2"));
        }
        let gauges = rail_metrics(rail).windows;
        let windows = Self {
            domain: domain.clone(),
            spare: Mutex::default(),
            made: gauges[WindowState::Made].clone(),
            bound: gauges[WindowState::Bound].clone(),
        };
        let first = windows.make_window()?;
        windows.spare.lock().push(first);
        Ok(windows)
    }

    fn make_window(&self) -> io::Result<PooledWindow> {
        let window = MemoryWindow::new(self.domain.clone())?;
        Ok(PooledWindow { window, _made: GaugeGuard::add_to(&self.made, 1) })
    }

    /// Binds windows over `places` of `regions`. Returns them, the requests that bind them, and the
    /// segments to tell the peer. Returns `None` where the device has no more windows, or where a
    /// place is not registered.
    pub(super) fn bind_windows(
        self: &Arc<Self>,
        regions: &LandingRegions<'_>,
        places: &[(usize, usize)],
    ) -> Option<(BoundWindows, Vec<WorkOperation>, Vec<MemorySegment>)> {
        let covering = |&(address, bytes): &(usize, usize)| regions.region_of(address, bytes);
        if places.iter().any(|place| covering(place).is_none()) {
            return None;
        }
        let mut windows = {
            let mut spare = self.spare.lock();
            let kept = spare.len().saturating_sub(places.len());
            spare.split_off(kept)
        };
        while windows.len() < places.len() {
            match self.make_window() {
                Ok(window) => windows.push(window),
                Err(error) => {
                    tracing::debug!(%error, "a reply travels in the stream");
                    self.spare.lock().append(&mut windows);
                    return None;
                }
            }
        }
        let (mut ops, mut segments) =
            (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
        for (open, place) in windows.iter_mut().zip(places) {
            let (&(address, bytes), Some(region)) = (place, covering(place)) else {
                continue;
            };
            ops.push(open.window.bind_operation(region, address as u64, bytes as u32));
            segments.push(MemorySegment {
                address: address as u64,
                bytes: bytes as u32,
                key: open.window.remote_key(),
            });
        }
        let count = GaugeGuard::add_to(&self.bound, windows.len() as u64);
        Some((BoundWindows { windows, _count: count }, ops, segments))
    }

    /// Takes back windows for use again. They must not be bound.
    pub(super) fn put_back(&self, mut bound: BoundWindows) {
        self.spare.lock().append(&mut bound.windows);
    }
}

/// The windows of one landing, bound or about to be. Dropping them closes them at once. That is
/// slow where the queue pair is alive, and necessary where it is not.
pub(super) struct BoundWindows {
    windows: Vec<PooledWindow>,
    _count: GaugeGuard,
}

impl BoundWindows {
    pub(super) fn invalidate_operations(&self) -> Vec<WorkOperation> {
        self.windows.iter().map(|open| open.window.invalidate_operation()).collect()
    }
}

/// Memory that goes back when the windows over it are closed.
pub(super) struct ClosingWindows {
    pub(super) bound: BoundWindows,
    pub(super) held: Vec<MemoryHold>,
}
