//! Owns the pins of blobs that are being read. With them, a reader of an overwritten object reads
//! the old bytes to their end. Removes nothing itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use super::BlobId;

/// Counts of readers per blob. A reader takes [`look_up`](Self::look_up)'s guard before it reads
/// the index, and holds it until its pin is in place. The reclaimer sees a blob become garbage. It
/// then waits for such readers once ([`wait_for_lookups`](Self::wait_for_lookups)). So no reader
/// can be about to open what the reclaimer removes.
#[derive(Debug, Default)]
pub struct BlobPins {
    gate: RwLock<()>,
    held: Mutex<HashMap<BlobId, usize>>,
    readers: AtomicUsize,
}

impl BlobPins {
    /// Guards a look-up in the index. Hold the guard until the pin is in place.
    pub fn look_up(&self) -> parking_lot::RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Blocks until every look-up in progress has its pin.
    pub fn wait_for_lookups(&self) {
        drop(self.gate.write());
    }

    /// Keeps `blobs` from being removed until the guard is dropped. Pins of one blob are counted.
    pub fn pin_blobs(self: &Arc<Self>, blobs: Vec<BlobId>) -> PinGuard {
        let mut held = self.held.lock();
        for blob in &blobs {
            *held.entry(*blob).or_default() += 1;
        }
        self.readers.fetch_add(1, Ordering::Relaxed);
        drop(held);
        PinGuard { pins: self.clone(), blobs }
    }

    /// Returns true if at least one reader holds this blob.
    pub fn is_pinned(&self, blob: BlobId) -> bool {
        self.held.lock().contains_key(&blob)
    }

    /// Returns the count of bodies and copies in progress.
    pub fn reader_count(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }
}

/// A guard that keeps blobs from being removed until it is dropped.
#[derive(Debug)]
pub struct PinGuard {
    pins: Arc<BlobPins>,
    blobs: Vec<BlobId>,
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        let mut held = self.pins.held.lock();
        for blob in &self.blobs {
            if let Some(count) = held.get_mut(blob) {
                *count -= 1;
                if *count == 0 {
                    held.remove(blob);
                }
            }
        }
        self.pins.readers.fetch_sub(1, Ordering::Relaxed);
    }
}
