//! Owns the faults that tests inject in the copying in-process transport: by seed and by hand,
//! never by time.
//!
//! Owns the decisions (hold, drop, refuse, reorder) and the held deliveries. Does not know what a
//! delivery does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, ReentrantMutex};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;

/// The faults of one or several in-process connections. Clones share their state.
#[derive(Clone)]
pub struct InProcessFaults {
    state: Arc<FaultState>,
}

impl InProcessFaults {
    /// Makes no fault, but parts of different calls overtake each other as `seed` says.
    pub fn from_seed(seed: u64) -> Self {
        Self::from_parts(seed, true)
    }

    /// Makes no fault at all.
    pub fn without_faults() -> Self {
        Self::from_parts(0, false)
    }

    fn from_parts(seed: u64, reorder: bool) -> Self {
        Self {
            state: Arc::new(FaultState {
                rng: Mutex::new(StdRng::seed_from_u64(seed)),
                reorder,
                events: AtomicU64::new(0),
                drop_at: AtomicU64::new(u64::MAX),
                refuse: AtomicU32::new(0),
                late_replies: AtomicBool::new(false),
                held: Mutex::new(DeliveryQueue::default()),
                changed: Notify::new(),
                order: ReentrantMutex::new(()),
            }),
        }
    }

    /// Breaks the connection in the middle of its `nth` delivery (from 1, over all connections with
    /// these faults).
    pub fn drop_at_event(self, nth: u64) -> Self {
        self.state.drop_at.store(nth, Ordering::Relaxed);
        self
    }

    /// Holds everything that the serving side sends until [`FaultHandle::release_all`].
    pub fn hold_deliveries(self) -> Self {
        self.state.held.lock().holding = true;
        self
    }

    /// Lets a handler whose call is cancelled go on and reply, into memory that the requester has
    /// given up.
    pub fn late_replies(self) -> Self {
        self.state.late_replies.store(true, Ordering::Relaxed);
        self
    }

    /// Refuses the next `times` connects of the transport.
    pub fn refuse_connects(self, times: u32) -> Self {
        self.state.refuse.store(times, Ordering::Relaxed);
        self
    }

    /// Returns a handle that drives the faults while calls are in flight.
    pub fn fault_handle(&self) -> FaultHandle {
        FaultHandle { state: self.state.clone() }
    }

    pub(super) fn fault_state(&self) -> &Arc<FaultState> {
        &self.state
    }
}

/// A test's handle on the faults.
#[derive(Clone)]
pub struct FaultHandle {
    state: Arc<FaultState>,
}

impl FaultHandle {
    /// Holds deliveries from now on (again).
    pub fn hold_deliveries(&self) {
        self.state.held.lock().holding = true;
    }

    /// Delivers everything held, calls in seeded order, and holds nothing from now on.
    pub fn release_all(&self) {
        self.state.held.lock().holding = false;
        while self.release_one() {}
    }

    /// Delivers one held delivery of a call that the seed picks. Returns `false` when nothing is
    /// held.
    pub fn release_one(&self) -> bool {
        let _order = self.state.order.lock();
        let next = self.state.take_one();
        match next {
            Some(run) => {
                run();
                true
            }
            None => false,
        }
    }

    /// Returns the count of deliveries that are held now.
    pub fn held_count(&self) -> usize {
        self.state.held.lock().queue.len()
    }

    /// Waits until `deliveries` are held.
    pub async fn wait_held(&self, deliveries: usize) {
        loop {
            let changed = self.state.changed.notified();
            if self.held_count() >= deliveries {
                return;
            }
            changed.await;
        }
    }

    /// Breaks the connection in the middle of the delivery that is `nth` from now (1 is the next).
    pub fn drop_at_event(&self, nth: u64) {
        let now = self.state.events.load(Ordering::Relaxed);
        self.state.drop_at.store(now + nth, Ordering::Relaxed);
    }

    /// Refuses the next `times` connects of the transport.
    pub fn refuse_connects(&self, times: u32) {
        self.state.refuse.store(times, Ordering::Relaxed);
    }
}

type DeliveryClosure = Box<dyn FnOnce() + Send>;

pub(super) struct FaultState {
    rng: Mutex<StdRng>,
    reorder: bool,
    events: AtomicU64,
    drop_at: AtomicU64,
    refuse: AtomicU32,
    late_replies: AtomicBool,
    held: Mutex<DeliveryQueue>,
    changed: Notify,
    /// Held while a delivery runs, so that what was released first also arrives first.
    order: ReentrantMutex<()>,
}

#[derive(Default)]
struct DeliveryQueue {
    holding: bool,
    queue: VecDeque<(u64, DeliveryClosure)>,
}

impl FaultState {
    /// Runs `run` now, or holds it. Deliveries of one call never overtake each other.
    pub(super) fn run_or_hold(&self, call: u64, run: impl FnOnce() + Send + 'static) {
        let _order = self.order.lock();
        let mut held = self.held.lock();
        if held.holding || held.queue.iter().any(|(other, _)| *other == call) {
            held.queue.push_back((call, Box::new(run)));
            drop(held);
            self.changed.notify_waiters();
            return;
        }
        drop(held);
        run();
    }

    /// Counts a delivery. Returns `true` when the connection must break in the middle of it.
    pub(super) fn breaks_now(&self) -> bool {
        let nth = self.events.fetch_add(1, Ordering::Relaxed) + 1;
        nth == self.drop_at.load(Ordering::Relaxed)
    }

    pub(super) fn refuses_connect(&self) -> bool {
        self.refuse
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    pub(super) fn late_replies(&self) -> bool {
        self.late_replies.load(Ordering::Relaxed)
    }

    /// Lets other calls go first, as often as the seed says.
    pub(super) async fn reorder_calls(&self) {
        if !self.reorder {
            return;
        }
        let turns = self.rng.lock().random_range(0..8u32);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    fn take_one(&self) -> Option<DeliveryClosure> {
        let mut held = self.held.lock();
        if held.queue.is_empty() {
            return None;
        }
        let nth = self.rng.lock().random_range(0..held.queue.len());
        let call = held.queue[nth].0;
        let first = held.queue.iter().position(|(other, _)| *other == call)?;
        held.queue.remove(first).map(|(_, run)| run)
    }
}
