//! Owns the use of memory that another process of this host has lent: which ranges of it may be
//! landed in now, and until when a peer may still write there.
//!
//! The other process may write to its memory at any time. So nothing here is believed, and nobody
//! but that process is shown what lies there: bytes are held against their checksums, counted, and
//! dropped. Does not map memory and moves no bytes.

mod stand_in;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::memory_span::{MemoryKeeper, MemorySpan};

pub use stand_in::{STAND_IN_BYTE, StandInMemory};

/// Longest memory that is unmapped where it is dropped, unless it was pinned.
const DROPPED_INLINE_BYTES_MAX: usize = 256 << 20;

/// Memory of another process, mapped here. It stays mapped while anything may be written to it.
pub struct ForeignMemory {
    /// What devices have of it. That goes before the mapping.
    devices: Mutex<Vec<DeviceHold>>,
    base: NonNull<u8>,
    bytes: usize,
    /// Places of bodies by their first byte. They don't overlap.
    places: Mutex<BTreeMap<usize, usize>>,
    mapping: Option<Box<dyn Any + Send + Sync>>,
}

/// What a device has of a memory: its registration.
pub(crate) struct DeviceHold {
    /// Names the device, among those that are there.
    pub(crate) device: usize,
    /// `None`: the device is being asked, or has refused.
    pub(crate) registration: Option<Arc<dyn Any + Send + Sync>>,
}

/// What ends with a memory, in the order in which it ends.
struct EndingMemory {
    _devices: Vec<DeviceHold>,
    _mapping: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: plain memory that stays in place until drop.
unsafe impl Send for ForeignMemory {}
// SAFETY: as for Send; only `MemorySpan`s lead to its bytes, each from one claim.
unsafe impl Sync for ForeignMemory {}

impl ForeignMemory {
    /// Takes memory over.
    ///
    /// # Safety
    /// Until `mapping` is dropped, the `bytes` from `base` are mapped to be read and written, and a
    /// touch of them is no fault. This process makes no other reference to them; copies in and out are
    /// no references.
    pub unsafe fn new(
        base: NonNull<u8>,
        bytes: usize,
        mapping: impl Send + Sync + 'static,
    ) -> Arc<Self> {
        let (devices, places) = (Mutex::default(), Mutex::default());
        Arc::new(Self { devices, base, bytes, places, mapping: Some(Box::new(mapping)) })
    }

    /// Returns where it is mapped, and its length.
    pub(crate) fn mapped_range(&self) -> (NonNull<u8>, usize) {
        (self.base, self.bytes)
    }

    /// Returns what devices have of it. Each minds its own.
    pub(crate) fn device_holds(&self) -> &Mutex<Vec<DeviceHold>> {
        &self.devices
    }
}

impl Drop for ForeignMemory {
    fn drop(&mut self) {
        let devices = std::mem::take(self.devices.get_mut());
        let is_pinned = !devices.is_empty();
        let ending = EndingMemory { _devices: devices, _mapping: self.mapping.take() };
        if is_pinned || self.bytes > DROPPED_INLINE_BYTES_MAX {
            // The last holder may be a thread that drives others, and hold a lock. Without a thread,
            // the closure is dropped here.
            let unpin = move || drop(ending);
            let _ = std::thread::Builder::new().name("verbs3-unpin".into()).spawn(unpin);
        }
    }
}

/// The range of another process's memory in which the body of one answer is to lie, from its first
/// byte on.
///
/// Each part of it is claimed once at most. What could not be claimed, or whose landing came to
/// nothing, lands elsewhere and is copied, once nobody can write there any more.
pub struct BodyPlace {
    memory: Arc<ForeignMemory>,
    start: usize,
    bytes: u64,
    claims: Mutex<BodyClaims>,
    freed: Notify,
    /// Somebody waits until nobody writes there.
    waiters: AtomicUsize,
}

#[derive(Default)]
struct BodyClaims {
    /// Claimed ranges by their first byte. They don't overlap.
    ranges: BTreeMap<u64, ClaimState>,
    /// Bytes from the first on that are in their place.
    landed: u64,
    is_closed: bool,
    /// Another body may have its place there: this one was closed before.
    has_left: bool,
}

struct ClaimState {
    end: u64,
    /// A peer may still write there, or a piece lies there.
    is_open: bool,
}

/// Where a piece of a body lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PiecePosition {
    InPlace,
    /// In other memory: it is to be copied.
    Elsewhere,
    /// In this memory, but at another place. It must not be copied, and never happens.
    Astray,
}

impl BodyPlace {
    /// Makes the place of a body. `None`: the range is empty, not in the memory, or in use as the
    /// place of another body.
    pub fn new(memory: Arc<ForeignMemory>, offset: u64, bytes: u64) -> Option<Arc<Self>> {
        let start = usize::try_from(offset).ok()?;
        let end = usize::try_from(offset.checked_add(bytes)?).ok()?;
        if bytes == 0 || end > memory.bytes {
            return None;
        }
        {
            let mut places = memory.places.lock();
            if places.range(..end).next_back().is_some_and(|(_, &other)| other > start) {
                return None;
            }
            places.insert(start, end);
        }
        let (claims, freed) = (Mutex::default(), Notify::new());
        let waiters = AtomicUsize::new(0);
        Some(Arc::new(Self { memory, start, bytes, claims, freed, waiters }))
    }

    /// Returns the memory that it is in.
    pub(crate) fn foreign_memory(&self) -> &Arc<ForeignMemory> {
        &self.memory
    }

    /// Returns the longest body that it takes.
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// Claims the place of some bytes of the body. `None`: it is outside, or was claimed before.
    pub fn claim_range(self: &Arc<Self>, at: u64, bytes: u64) -> Option<ClaimedRange> {
        let end = at.checked_add(bytes).filter(|&end| end <= self.bytes && bytes > 0)?;
        let mut claims = self.claims.lock();
        let before = claims.ranges.range(..end).next_back();
        if claims.is_closed || at < claims.landed || before.is_some_and(|(_, claim)| claim.end > at)
        {
            return None;
        }
        claims.ranges.insert(at, ClaimState { end, is_open: true });
        drop(claims);
        Some(ClaimedRange { claim: Arc::new(BodyClaim { place: self.clone(), at }), bytes })
    }

    /// Says where a piece of the body lies that begins at byte `at` of it.
    pub fn locate_piece(&self, at: u64, piece: &[u8]) -> PiecePosition {
        let base = self.memory.base.as_ptr() as usize;
        let address = piece.as_ptr() as usize;
        if piece.is_empty() || address < base || address >= base + self.memory.bytes {
            PiecePosition::Elsewhere
        } else if address as u64 == (base + self.start) as u64 + at {
            PiecePosition::InPlace
        } else {
            PiecePosition::Astray
        }
    }

    /// Notes that the body's bytes up to `end` are in their place. They are not claimed any more.
    pub fn note_landed(&self, end: u64) {
        self.claims.lock().landed = end;
    }

    /// Waits until nobody writes to a range of the body's place and no piece lies there.
    pub async fn await_free(&self, range: Range<u64>) {
        let _waiter = PlaceWaiter::add_to(&self.waiters);
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.claims.lock().is_free(&range) {
                return;
            }
            freed.await;
        }
    }

    /// Gives out no more claims. Returns whether those that were given are over: nobody but the other
    /// process writes to the place then.
    pub fn end_claims(&self) -> bool {
        let mut claims = self.claims.lock();
        claims.is_closed = true;
        claims.is_free(&(0..self.bytes))
    }

    /// Gives out no more claims, and waits until those that were given are over. Another body may
    /// have its place there then.
    pub async fn close_place(&self) {
        self.end_claims();
        self.await_free(0..self.bytes).await;
        self.leave_memory();
    }

    /// Returns whether somebody waits until nobody writes there.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    fn leave_memory(&self) {
        if !std::mem::replace(&mut self.claims.lock().has_left, true) {
            self.memory.places.lock().remove(&self.start);
        }
    }

    fn end_claim(&self, at: u64) {
        if let Some(claim) = self.claims.lock().ranges.get_mut(&at) {
            claim.is_open = false;
        }
        self.freed.notify_waiters();
    }
}

impl Drop for BodyPlace {
    /// No claim is left: each holds the place.
    fn drop(&mut self) {
        self.leave_memory();
    }
}

/// Counts one who waits, for as long as it does.
struct PlaceWaiter<'a>(&'a AtomicUsize);

impl<'a> PlaceWaiter<'a> {
    fn add_to(waiters: &'a AtomicUsize) -> Self {
        waiters.fetch_add(1, Ordering::Relaxed);
        Self(waiters)
    }
}

impl Drop for PlaceWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BodyClaims {
    fn is_free(&self, range: &Range<u64>) -> bool {
        let overlapping = self.ranges.range(..range.end).rev();
        overlapping
            .take_while(|(_, claim)| claim.end > range.start)
            .all(|(_, claim)| !claim.is_open)
    }
}

impl fmt::Debug for BodyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyPlace").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A part of a body's place that one landing may be made of.
pub struct ClaimedRange {
    claim: Arc<BodyClaim>,
    bytes: u64,
}

/// Ends when the last span, piece and hold over its memory is gone.
struct BodyClaim {
    place: Arc<BodyPlace>,
    at: u64,
}

impl MemoryKeeper for BodyClaim {}

impl Drop for BodyClaim {
    fn drop(&mut self) {
        self.place.end_claim(self.at);
    }
}

impl ClaimedRange {
    /// Returns the place that the range is part of.
    pub(crate) fn body_place(&self) -> Arc<BodyPlace> {
        self.claim.place.clone()
    }

    pub(crate) fn into_span(self) -> MemorySpan {
        let BodyClaim { place, at } = &*self.claim;
        // Both were checked against the memory's length, which is a usize.
        let (offset, bytes) = (place.start + *at as usize, self.bytes as usize);
        // SAFETY: `claim_range` and `BodyPlace::new` have seen that the range lies in the memory.
        let start = unsafe { place.memory.base.add(offset) };
        // SAFETY: the claim keeps the memory mapped, no other claim of this place has the range, and
        // no other place overlaps with this one. What the other process writes meanwhile harms its
        // own bytes: they are hashed and dropped here, and mean nothing to this process.
        unsafe { MemorySpan::new(self.claim, start, bytes) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::landing::Landing;

    const BYTES: usize = 4096;

    fn place(offset: u64, bytes: u64) -> (Arc<BodyPlace>, Arc<StandInMemory>) {
        let (mapping, memory) = StandInMemory::allocate(BYTES);
        (BodyPlace::new(memory, offset, bytes).unwrap(), mapping)
    }

    fn landed(landing: &mut Landing, at: u64, bytes: &[u8]) -> Vec<Bytes> {
        let mut fill = landing.claim_range(at, bytes.len() as u64).unwrap();
        assert_eq!(fill.copy_from(bytes), bytes.len());
        fill.into_vouched_bytes()
    }

    async fn is_free(place: &BodyPlace, range: Range<u64>) -> bool {
        tokio::time::timeout(Duration::from_millis(20), place.await_free(range)).await.is_ok()
    }

    #[test]
    fn a_place_outside_the_memory_is_none() {
        let (inside, _) = place(96, 4000);
        let memory = inside.memory.clone();
        drop(inside);
        for (offset, bytes) in [(97, 4000), (0, 4097), (u64::MAX, 1), (1, u64::MAX), (0, 0)] {
            assert!(BodyPlace::new(memory.clone(), offset, bytes).is_none());
        }
        assert!(BodyPlace::new(memory, 96, 4000).is_some());
    }

    #[test]
    fn places_of_two_bodies_do_not_overlap() {
        let (first, _) = place(1000, 1000);
        let memory = first.memory.clone();
        for (offset, bytes) in [(1000, 1000), (0, 1001), (1999, 1), (0, 4096), (1500, 10)] {
            assert!(BodyPlace::new(memory.clone(), offset, bytes).is_none(), "{offset} {bytes}");
        }
        assert!(BodyPlace::new(memory.clone(), 0, 1000).is_some());
        assert!(BodyPlace::new(memory.clone(), 2000, 1000).is_some());
        let claimed = first.claim_range(0, 10);
        drop(first);
        assert!(BodyPlace::new(memory.clone(), 1000, 1000).is_none(), "it is still claimed");
        drop(claimed);
        assert!(BodyPlace::new(memory, 1000, 1000).is_some());
    }

    #[test]
    fn a_range_is_claimed_once_and_never_again() {
        let (place, _) = place(100, 1000);
        let first = place.claim_range(100, 100);
        assert!(first.is_some());
        for (at, bytes) in
            [(100, 100), (150, 10), (0, 101), (199, 1), (0, 1000), (999, 2), (u64::MAX, 2), (0, 0)]
        {
            assert!(place.claim_range(at, bytes).is_none(), "{at} {bytes}");
        }
        drop(first);
        assert!(place.claim_range(100, 100).is_none(), "a landing that failed is not tried again");
        assert!(place.claim_range(0, 100).is_some());
        assert!(place.claim_range(200, 800).is_some());
    }

    #[test]
    fn bytes_that_have_landed_are_not_claimed() {
        let (place, _) = place(0, 1000);
        place.note_landed(300);
        assert!(place.claim_range(299, 10).is_none());
        assert!(place.claim_range(300, 10).is_some());
    }

    #[tokio::test]
    async fn a_piece_lands_where_it_belongs_and_keeps_its_range() {
        let (place, mapping) = place(100, 1000);
        let mut landing = Landing::in_foreign_memory(place.claim_range(50, 20).unwrap());
        assert_eq!(landing.total_bytes(), 20);
        let pieces = landed(&mut landing, 5, b"landed");
        assert_eq!(mapping.copy_range(154..162), b"\xA5landed\xA5");
        assert_eq!(place.locate_piece(55, &pieces[0]), PiecePosition::InPlace);
        assert_eq!(place.locate_piece(54, &pieces[0]), PiecePosition::Astray);
        assert_eq!(place.locate_piece(55, b"other"), PiecePosition::Elsewhere);
        assert!(!is_free(&place, 0..1000).await && !is_free(&place, 69..70).await);
        assert!(is_free(&place, 0..50).await && is_free(&place, 70..1000).await);
        drop(landing);
        assert!(!is_free(&place, 0..1000).await, "a piece is still there");
        drop(pieces);
        assert!(is_free(&place, 0..1000).await);
    }

    #[tokio::test]
    async fn a_place_closes_once_the_last_landing_is_gone() {
        let (place, _) = place(0, 1000);
        let landing = Landing::in_foreign_memory(place.claim_range(0, 1000).unwrap());
        let closing = tokio::spawn({
            let place = place.clone();
            async move { place.close_place().await }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!closing.is_finished() && !place.end_claims());
        drop(landing);
        closing.await.unwrap();
        assert!(place.end_claims());
        assert!(place.claim_range(0, 10).is_none());
        let next = BodyPlace::new(place.memory.clone(), 0, 1000).unwrap();
        drop(place);
        assert!(BodyPlace::new(next.memory.clone(), 0, 1000).is_none(), "it is the next one's now");
    }

    #[test]
    fn memory_stays_mapped_while_something_may_be_written() {
        let (place, mapping) = place(0, 1000);
        let landing = Landing::in_foreign_memory(place.claim_range(0, 10).unwrap());
        drop(place);
        assert_eq!(Arc::strong_count(&mapping), 2);
        drop(landing);
        assert_eq!(Arc::strong_count(&mapping), 1);
    }
}
