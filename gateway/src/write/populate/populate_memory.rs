//! Owns the bound on the memory of pages on their way to workers. Nobody waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use prometheus::IntGauge;
use verbs3_metrics::GaugeGuard;

/// Memory for pages on their way, of a whole gateway.
pub(super) struct PopulateMemory {
    bytes_max: u64,
    taken: AtomicU64,
    gauge: IntGauge,
}

/// Memory for one page. It counts until nobody holds the page any more.
pub(super) struct PageBuffer {
    bytes: Vec<u8>,
    memory: Arc<PopulateMemory>,
    length: usize,
    _counted: GaugeGuard,
}

impl PopulateMemory {
    pub(super) fn new(bytes_max: u64, gauge: IntGauge) -> Arc<Self> {
        Arc::new(Self { bytes_max, taken: AtomicU64::new(0), gauge })
    }

    /// Takes memory for a page of `length` bytes. `None`: as much is taken as may be.
    pub(super) fn try_take(self: &Arc<Self>, length: usize) -> Option<PageBuffer> {
        let bytes = length as u64;
        let fits =
            |taken: u64| (bytes <= self.bytes_max.saturating_sub(taken)).then(|| taken + bytes);
        self.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(PageBuffer {
            bytes: Vec::with_capacity(length),
            memory: self.clone(),
            length,
            _counted: GaugeGuard::add_to(&self.gauge, bytes),
        })
    }
}

impl PageBuffer {
    pub(super) fn missing_bytes(&self) -> usize {
        self.length - self.bytes.len()
    }

    /// Copies what still fits of `chunk`, and returns how much that was.
    pub(super) fn copy_from(&mut self, chunk: &[u8]) -> usize {
        let fits = chunk.len().min(self.missing_bytes());
        self.bytes.extend_from_slice(&chunk[..fits]);
        fits
    }

    /// Returns the page. The memory is taken as long as any clone of it lives.
    pub(super) fn into_page(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PageBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.length as u64, Ordering::Relaxed);
    }
}
