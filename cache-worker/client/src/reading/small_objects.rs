//! Owns the memory in which small objects are held beside a lease on their attributes: how much
//! there may be, and which go first.
//!
//! Decides nothing about coherence. Bytes belong to a version and never change. They are reached
//! through the entry of a lease alone (`lease_table`), and are of no use where that is not valid.
//!
//! Memory counts as long as any answer still has it: also after its object was dropped. So slow
//! clients can't hold more than the bound. Where nothing can be freed, an object is not held.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use verbs3_protocol::TenantTag;

use crate::metrics::TierMetrics;

/// Memory that an object takes besides its bytes: its place, its queue's, the allocator's.
const OVERHEAD_BYTES: u64 = 128;
/// Objects that are looked at for one that was not read since the last look. After so many, one
/// that was read goes.
const LOOKS_MAX: usize = 32;
/// Length of a queue from which places of dropped objects are looked for.
const SWEEP_MIN: usize = 64;

/// Bounds on the small objects that are held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SmallObjectBounds {
    /// Longest object. 0: none is held.
    pub(crate) object_bytes_max: u64,
    /// Memory of all together.
    pub(crate) memory_bytes_max: u64,
}

/// The memory of all small objects.
pub(crate) struct SmallObjectMemory {
    bounds: SmallObjectBounds,
    used: Arc<MemoryUse>,
    /// By the tenant that brought them: the hash of its name.
    queues: Mutex<HashMap<u64, TenantQueue>>,
    evictions: IntCounter,
}

/// Memory in use, of all tenants or of one.
struct MemoryUse {
    bytes: AtomicU64,
    gauges: Option<MemoryGauges>,
}

struct MemoryGauges {
    bytes: IntGauge,
    objects: IntGauge,
}

/// The objects of one tenant, the one that came first in front.
struct TenantQueue {
    used: Arc<MemoryUse>,
    weight: u64,
    places: VecDeque<Weak<SmallObjectPlace>>,
    sweep_at: usize,
}

/// The bytes of one object, until they are evicted.
pub(crate) struct SmallObjectPlace {
    bytes: ArcSwapOption<Bytes>,
    /// Read since eviction last looked at it.
    is_used: AtomicBool,
}

/// The memory behind an object's bytes. It gives back what it took when the last answer with them
/// is sent.
struct HeldMemory {
    data: Box<[u8]>,
    uses: [Arc<MemoryUse>; 2],
}

impl SmallObjectMemory {
    pub(crate) fn new(bounds: SmallObjectBounds, metrics: &TierMetrics) -> Self {
        let gauges = MemoryGauges {
            bytes: metrics.small_object_bytes.clone(),
            objects: metrics.small_objects.clone(),
        };
        Self {
            bounds,
            used: Arc::new(MemoryUse { bytes: AtomicU64::new(0), gauges: Some(gauges) }),
            queues: Mutex::default(),
            evictions: metrics.small_object_evictions.clone(),
        }
    }

    /// Returns the longest object that may be held.
    pub(crate) fn object_bytes_max(&self) -> u64 {
        self.bounds.object_bytes_max
    }

    /// Returns whether an object of this length may be held.
    pub(crate) fn may_hold(&self, object_bytes: u64) -> bool {
        let SmallObjectBounds { object_bytes_max, memory_bytes_max } = self.bounds;
        (1..=object_bytes_max).contains(&object_bytes)
            && object_bytes + OVERHEAD_BYTES <= memory_bytes_max
    }

    /// Copies a whole object, which `tenant` has read. `None`: it is too long, or there is no
    /// memory.
    pub(crate) fn hold_object(
        &self,
        tenant: Option<TenantTag>,
        data: &[Bytes],
    ) -> Option<Arc<SmallObjectPlace>> {
        let length: usize = data.iter().map(Bytes::len).sum();
        if !self.may_hold(length as u64) {
            return None;
        }
        let whose = tenant.map_or(0, |tag| tag.name.stable_hash());
        self.make_room(whose, length as u64)?;
        let mut queues = self.queues.lock();
        let queue = queues.entry(whose).or_insert_with(|| {
            let used = Arc::new(MemoryUse { bytes: AtomicU64::new(0), gauges: None });
            TenantQueue { used, weight: 1, places: VecDeque::new(), sweep_at: SWEEP_MIN }
        });
        queue.weight = tenant.map_or(1, |tag| u64::from(tag.weight)).max(1);
        queue.used.add_object(length as u64);
        let uses = [self.used.clone(), queue.used.clone()];
        let held = HeldMemory { data: data.concat().into_boxed_slice(), uses };
        let place = Arc::new(SmallObjectPlace {
            bytes: ArcSwapOption::from_pointee(Bytes::from_owner(held)),
            is_used: AtomicBool::new(false),
        });
        queue.add_place(&place);
        Some(place)
    }

    /// Takes memory for an object of tenant `whose`, and evicts others for it. `None`: those that
    /// are evicted are still being sent.
    fn make_room(&self, whose: u64, length: u64) -> Option<()> {
        let mut freed = 0;
        while !self.used.try_add_object(length, self.bounds.memory_bytes_max) {
            if freed >= length + OVERHEAD_BYTES {
                return None;
            }
            freed += evict_object(&mut self.queues.lock(), whose, length)?;
            self.evictions.inc();
        }
        Some(())
    }
}

/// Evicts an object of the tenant that would hold most for its weight if tenant `whose` held
/// `length` bytes more. Returns what that may free.
fn evict_object(queues: &mut HashMap<u64, TenantQueue>, whose: u64, length: u64) -> Option<u64> {
    loop {
        queues.retain(|_, queue| !queue.places.is_empty() || !queue.used.is_empty());
        let (_, queue) = queues
            .iter_mut()
            .filter(|(_, queue)| !queue.places.is_empty())
            .max_by_key(|&(&tenant, ref queue)| {
                let more = if tenant == whose { length } else { 0 };
                (queue.used.bytes.load(Ordering::Relaxed) + more) / queue.weight
            })?;
        if let Some(bytes) = queue.evict_object() {
            return Some(bytes);
        }
    }
}

impl TenantQueue {
    fn add_place(&mut self, place: &Arc<SmallObjectPlace>) {
        if self.places.len() >= self.sweep_at {
            self.places.retain(|place| place.strong_count() > 0);
            self.sweep_at = (2 * self.places.len()).max(SWEEP_MIN);
        }
        self.places.push_back(Arc::downgrade(place));
    }

    /// Evicts the first object that was not read since the last look. `None`: all are dropped.
    fn evict_object(&mut self) -> Option<u64> {
        let mut looks = 0;
        while let Some(next) = self.places.pop_front() {
            let Some(place) = next.upgrade() else { continue };
            looks += 1;
            if looks < LOOKS_MAX && place.is_used.swap(false, Ordering::Relaxed) {
                self.places.push_back(next);
                continue;
            }
            if let Some(bytes) = place.bytes.swap(None) {
                return Some(bytes.len() as u64 + OVERHEAD_BYTES);
            }
        }
        None
    }
}

impl SmallObjectPlace {
    /// Returns the object's bytes. `None`: they were evicted.
    pub(crate) fn read_bytes(&self) -> Option<Bytes> {
        let bytes = self.bytes.load();
        let bytes = Bytes::clone(bytes.as_ref()?);
        // Most reads find it set, and write nothing that others have in their caches.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        Some(bytes)
    }

    /// Returns whether it has exactly these bytes.
    pub(crate) fn equals_data(&self, data: &[Bytes]) -> bool {
        let held = self.bytes.load();
        let Some(mut rest) = held.as_deref().map(|held| &held[..]) else { return false };
        for data in data {
            match rest.split_at_checked(data.len()) {
                Some((held, after)) if held == &data[..] => rest = after,
                _ => return false,
            }
        }
        rest.is_empty()
    }
}

impl MemoryUse {
    fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }

    fn try_add_object(&self, length: u64, bytes_max: u64) -> bool {
        let more = |bytes: u64| {
            bytes.checked_add(length + OVERHEAD_BYTES).filter(|&bytes| bytes <= bytes_max)
        };
        let is_added = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if let Some(gauges) = self.gauges.as_ref().filter(|_| is_added) {
            gauges.bytes.add((length + OVERHEAD_BYTES) as i64);
            gauges.objects.inc();
        }
        is_added
    }

    fn add_object(&self, length: u64) {
        let _ = self.try_add_object(length, u64::MAX);
    }

    fn remove_object(&self, length: u64) {
        self.bytes.fetch_sub(length + OVERHEAD_BYTES, Ordering::Relaxed);
        if let Some(gauges) = &self.gauges {
            gauges.bytes.sub((length + OVERHEAD_BYTES) as i64);
            gauges.objects.dec();
        }
    }
}

impl AsRef<[u8]> for HeldMemory {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.uses.iter().for_each(|used| used.remove_object(self.data.len() as u64));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use prometheus::Registry;

    use super::*;

    const KIB: usize = 1024;

    fn memory(objects: u64) -> (SmallObjectMemory, TierMetrics) {
        let metrics = TierMetrics::new(&Registry::new()).unwrap();
        let memory_bytes_max = objects * (KIB as u64 + OVERHEAD_BYTES);
        let bounds = SmallObjectBounds { object_bytes_max: KIB as u64, memory_bytes_max };
        (SmallObjectMemory::new(bounds, &metrics), metrics)
    }

    fn tenant(name: &str, weight: u32) -> Option<TenantTag> {
        Some(TenantTag::new(name, weight).unwrap())
    }

    fn object(seed: u8) -> Vec<Bytes> {
        vec![Bytes::from(vec![seed; 1000]), Bytes::from(vec![!seed; 24])]
    }

    fn is_held(place: &Arc<SmallObjectPlace>) -> bool {
        place.bytes.load().is_some()
    }

    #[test]
    fn bytes_come_back_as_they_went_in() {
        let (memory, metrics) = memory(2);
        let place = memory.hold_object(None, &object(7)).unwrap();
        assert_eq!(place.read_bytes().unwrap(), object(7).concat());
        assert!(place.equals_data(&object(7)) && place.equals_data(&[object(7).concat().into()]));
        let longer = [object(7), vec![Bytes::from_static(b"x")]].concat();
        let others = [object(8), object(7)[..1].to_vec(), longer, vec![]];
        assert!(others.iter().all(|other| !place.equals_data(other)));
        assert_eq!(metrics.small_objects.get(), 1);
        drop(place);
        assert_eq!((metrics.small_objects.get(), metrics.small_object_bytes.get()), (0, 0));
    }

    #[test]
    fn neither_empty_nor_longer_objects_are_held() {
        let (small, _) = memory(9);
        assert!(small.hold_object(None, &[]).is_none());
        assert!(small.hold_object(None, &[Bytes::from(vec![0; KIB + 1])]).is_none());
        let (none, _) = memory(0);
        assert!(none.hold_object(None, &object(1)).is_none());
    }

    #[test]
    fn one_that_was_not_read_goes_first() {
        let (memory, metrics) = memory(3);
        let held: Vec<_> = (0..3).map(|n| memory.hold_object(None, &object(n)).unwrap()).collect();
        held[0].read_bytes();
        held[2].read_bytes();
        let next = memory.hold_object(None, &object(9)).unwrap();
        let left: Vec<bool> = held.iter().chain([&next]).map(is_held).collect();
        assert_eq!(left, [true, false, true, true]);
        assert_eq!(metrics.small_object_evictions.get(), 1);
        assert!(held[1].read_bytes().is_none() && !held[1].equals_data(&object(1)));
    }

    #[test]
    fn answers_under_way_count_against_the_memory_of_small_objects() {
        let (memory, metrics) = memory(1);
        let first = memory.hold_object(None, &object(1)).unwrap();
        let answer = first.read_bytes().unwrap();
        assert!(memory.hold_object(None, &object(2)).is_none());
        assert_eq!(answer, object(1).concat());
        assert_eq!(metrics.small_object_bytes.get(), KIB as i64 + OVERHEAD_BYTES as i64);
        drop(answer);
        assert_eq!(metrics.small_object_bytes.get(), 0);
        assert!(memory.hold_object(None, &object(2)).is_some());
    }

    #[test]
    fn tenant_that_holds_more_than_its_weight_gives() {
        let (memory, _) = memory(6);
        let (greedy, modest) = (tenant("greedy", 1), tenant("modest", 1));
        let hold = |whose, count: u8| -> Vec<_> {
            (0..count).map(|n| memory.hold_object(whose, &object(n)).unwrap()).collect()
        };
        let many = hold(greedy, 6);
        let few = hold(modest, 3);
        let more = hold(greedy, 20);
        assert!(few.iter().all(is_held), "a tenant within its share loses nothing");
        let count =
            |held: &[Arc<SmallObjectPlace>]| held.iter().filter(|held| is_held(held)).count();
        assert_eq!((count(&many), count(&more)), (0, 3));
        let heavy = hold(tenant("greedy", 5), 20);
        assert_eq!((count(&few), count(&heavy)), (1, 5), "shares go by weight");
    }

    #[test]
    fn places_of_dropped_objects_do_not_pile_up() {
        let (memory, _) = memory(10);
        for n in 0..=255 {
            for _ in 0..10 {
                memory.hold_object(None, &object(n)).unwrap();
            }
        }
        let queues = memory.queues.lock();
        assert!(queues[&0].places.len() <= 2 * SWEEP_MIN);
    }
}
