//! Owns what a worker keeps for one requester that looks at its memory: the table of pins, their
//! quota, and their end.
//!
//! A release or the end of the lifeline ends a pin. Nothing else does: not the end of the stream,
//! not a breach of the protocol, not a shutdown. A requester may still be writing the bytes to a
//! client, and would then send bytes of the next loan.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::OwnedSemaphorePermit;

use super::PinQuota;
use crate::metrics::{GaugeGuard, transport_metrics};

pub(super) struct ShmPinRegistry {
    quota: PinQuota,
    table: Mutex<ShmPinTable>,
}

#[derive(Default)]
struct ShmPinTable {
    next: u32,
    bytes: u64,
    held: HashMap<u32, ShmPinnedPart>,
    /// The requester has unmapped the arena, or nobody watches whether it has.
    over: bool,
}

struct ShmPinnedPart {
    bytes: u64,
    _data: Vec<Bytes>,
    _count: GaugeGuard,
    _gauge: GaugeGuard,
}

impl ShmPinRegistry {
    pub(super) fn new(quota: PinQuota) -> Arc<Self> {
        Arc::new(Self { quota, table: Mutex::new(ShmPinTable::default()) })
    }

    pub(super) fn pin_quota(&self) -> PinQuota {
        self.quota
    }

    /// Keeps `data`, of `bytes`, until the returned number is released. Gives the data back when
    /// the quota is used up.
    pub(super) fn pin_data(&self, data: Vec<Bytes>, bytes: u64) -> Result<u32, Vec<Bytes>> {
        let mut table = self.table.lock();
        let within = table.held.len() < self.quota.pins_max as usize
            && table.bytes.checked_add(bytes).is_some_and(|sum| sum <= self.quota.bytes_max);
        if table.over || !within {
            return Err(data);
        }
        // Numbers are not used again soon. So a second release of the same pin is noticed, and ends
        // no other pin.
        while table.held.contains_key(&table.next) {
            table.next = table.next.wrapping_add(1);
        }
        let number = table.next;
        table.next = number.wrapping_add(1);
        table.bytes += bytes;
        let all = transport_metrics();
        let pin = ShmPinnedPart {
            bytes,
            _data: data,
            _count: GaugeGuard::add_to(&all.shm_pins, 1),
            _gauge: GaugeGuard::add_to(&all.shm_pinned_bytes, bytes),
        };
        table.held.insert(number, pin);
        Ok(number)
    }

    /// Ends a pin. Returns `false` if there is no such pin. After the end there is none, and
    /// earlier releases of the requester may be read after it.
    pub(super) fn release_pin(&self, number: u64) -> bool {
        let mut table = self.table.lock();
        let pin = u32::try_from(number).ok().and_then(|number| table.held.remove(&number));
        let Some(pin) = pin else {
            return table.over;
        };
        table.bytes -= pin.bytes;
        drop(table);
        true
    }

    /// Ends every pin, and refuses new ones.
    fn end_pins(&self) -> HashMap<u32, ShmPinnedPart> {
        let mut table = self.table.lock();
        table.over = true;
        table.bytes = 0;
        std::mem::take(&mut table.held)
    }
}

/// Waits for the requester to unmap the arena, then ends its pins. Until then it counts as a
/// connection, so that a requester can't collect quotas by leaving connections behind.
///
/// It outlives the connection and its server's shutdown. A runtime that ends drops it.
pub(super) async fn watch_lifeline(
    lifeline: pipe::Sender,
    pins: Arc<ShmPinRegistry>,
    place: Arc<OwnedSemaphorePermit>,
) {
    let watch = LifelineWatch { pins, seen: false };
    watch.until_unmapped(lifeline).await;
    drop(place);
}

struct LifelineWatch {
    pins: Arc<ShmPinRegistry>,
    seen: bool,
}

impl LifelineWatch {
    async fn until_unmapped(mut self, lifeline: pipe::Sender) {
        // An error on a pipe's writing end means that nobody can read any more. Nothing is ever
        // written.
        match lifeline.ready(Interest::ERROR).await {
            Ok(_) => self.seen = true,
            // The runtime is going away.
            Err(error) => tracing::debug!(%error, "a requester's memory is no longer watched"),
        }
    }
}

impl Drop for LifelineWatch {
    fn drop(&mut self) {
        let pins = self.pins.end_pins();
        if !self.seen {
            // The requester may still be reading, and nobody would notice its end, so the memory is
            // never used again. The process is ending, or it would still watch.
            std::mem::forget(pins);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A killed gateway's last releases were read after its end was seen, and warned of as a breach
    /// of the protocol.
    #[test]
    fn a_release_of_no_pin_is_an_offence_but_not_after_the_end() {
        let pins = ShmPinRegistry::new(PinQuota { pins_max: 4096, bytes_max: 256 << 20 });
        let pin = u64::from(pins.pin_data(vec![Bytes::from_static(b"bytes")], 5).unwrap());
        assert!(pins.release_pin(pin) && !pins.release_pin(pin));
        let pin = u64::from(pins.pin_data(vec![Bytes::from_static(b"bytes")], 5).unwrap());
        drop(pins.end_pins());
        assert!(pins.release_pin(pin));
    }
}
