//! Which blobs are being read, so that a reader of an overwritten object reads the old bytes to
//! their end. Removes nothing itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use super::BlobId;

/// Readers per blob. A reader holds [`look_up`](Pins::look_up)'s guard from before it reads the
/// index until its pin is in place; the reclaimer waits for such readers once
/// ([`wait_for_lookups`](Pins::wait_for_lookups)) after it has seen a blob become garbage, so no
/// reader can be about to open what it removes.
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

    /// Blocks until every look-up that is under way now has its pin.
    pub fn wait_for_lookups(&self) {
        drop(self.gate.write());
    }

    /// Keeps these blobs from being removed until the guard is dropped. Pins of one blob are
    /// counted.
    pub fn pin_blobs(self: &Arc<Self>, blobs: Vec<BlobId>) -> PinGuard {
        let mut held = self.held.lock();
        for blob in &blobs {
            *held.entry(*blob).or_default() += 1;
        }
        self.readers.fetch_add(1, Ordering::Relaxed);
        drop(held);
        PinGuard { pins: self.clone(), blobs }
    }

    /// Whether at least one reader holds this blob.
    pub fn is_pinned(&self, blob: BlobId) -> bool {
        self.held.lock().contains_key(&blob)
    }

    /// Bodies and copies under way.
    pub fn reader_count(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }
}

/// Keeps blobs from being removed until it is dropped.
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
