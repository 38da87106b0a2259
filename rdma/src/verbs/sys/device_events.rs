//! Owns the asynchronous events of devices, and what they say of devices, ports and queue pairs.
//!
//! A queue pair of which its device says nothing but by such an event would look idle for ever: one
//! that takes shared receive buffers, and whose peer broke a rule. Everybody in this process who
//! uses a device shares the descriptor of its events, so whoever reads an event passes it on.
//! Decides nothing.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rdma_mummy_sys as ffi;
use tokio::sync::{Notify, watch};

use super::memory::ProtectionDomain;
use super::{last_error, set_nonblocking};

/// Numbers of `enum ibv_event_type`. A number that the bindings don't know must not become a value
/// of their type.
const QUEUE_ERROR: libc::c_int = 0;
const PAIR_FATAL: libc::c_int = 1;
const PAIR_REQUEST_ERROR: libc::c_int = 2;
const PAIR_ACCESS_ERROR: libc::c_int = 3;
const DEVICE_FATAL: libc::c_int = 8;
const PORT_ACTIVE: libc::c_int = 9;
const PORT_ERROR: libc::c_int = 10;
const LID_CHANGE: libc::c_int = 11;
const SHARED_QUEUE_ERROR: libc::c_int = 14;
const GID_CHANGE: libc::c_int = 18;

/// What the events of a device said so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::verbs) struct DeviceReport {
    pub(in crate::verbs) is_fatal: bool,
    /// One bit for each port, by its number.
    ports_down: u128,
    /// Count of changes of addresses.
    pub(in crate::verbs) readdressed: u64,
}

impl DeviceReport {
    /// Makes a report of a device that works, after so many changes of addresses.
    pub(in crate::verbs) fn new(readdressed: u64) -> Self {
        Self { readdressed, ..Self::default() }
    }

    pub(in crate::verbs) fn is_port_down(&self, port: u8) -> bool {
        self.ports_down & port_bit(port) != 0
    }
}

fn port_bit(port: u8) -> u128 {
    1_u128.checked_shl(u32::from(port)).unwrap_or(0)
}

/// The health of one device, for all rails and connections of this process that use it.
pub(in crate::verbs) struct DeviceHealth {
    pairs: Mutex<HashMap<u32, WatchedPair>>,
    report: watch::Sender<DeviceReport>,
}

/// A queue pair, and what its events name beside it.
struct WatchedPair {
    health: Arc<PairHealth>,
    port: u8,
    /// The address of its completion queue.
    completions: usize,
}

/// Whether a device reported an error of one queue pair.
#[derive(Default)]
struct PairHealth {
    failed: AtomicBool,
    told: Notify,
}

impl PairHealth {
    fn mark_failed(&self) {
        self.failed.store(true, Ordering::Release);
        self.told.notify_one();
    }
}

/// The watch over one queue pair. Ends when it is dropped.
pub(in crate::verbs) struct PairWatch {
    device: Arc<DeviceHealth>,
    health: Arc<PairHealth>,
    number: u32,
}

impl PairWatch {
    /// Waits until the device reports an error that no completion may tell. One task at a time may
    /// wait.
    pub(in crate::verbs) async fn await_failure(&self) {
        while !self.health.failed.load(Ordering::Acquire) {
            self.health.told.notified().await;
        }
    }
}

impl Drop for PairWatch {
    fn drop(&mut self) {
        let mut pairs = self.device.pairs.lock();
        // A device gives a number out again once its queue pair is destroyed.
        if pairs.get(&self.number).is_some_and(|pair| Arc::ptr_eq(&pair.health, &self.health)) {
            pairs.remove(&self.number);
        }
    }
}

/// Devices by the address of their context.
static DEVICES: LazyLock<Mutex<HashMap<usize, Weak<DeviceHealth>>>> = LazyLock::new(Mutex::default);

impl DeviceHealth {
    /// Returns the health of the device of `domain`: the same for everybody who uses it.
    pub(in crate::verbs) fn of_device(domain: &ProtectionDomain) -> Arc<Self> {
        let key = domain.device_context().as_ptr().addr();
        let mut devices = DEVICES.lock();
        devices.retain(|_, device| device.strong_count() > 0);
        if let Some(known) = devices.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let (report, _) = watch::channel(DeviceReport::default());
        let health = Arc::new(Self { pairs: Mutex::default(), report });
        devices.insert(key, Arc::downgrade(&health));
        health
    }

    /// Begins to watch a queue pair of `port`, by the names that events use.
    pub(super) fn watch_pair(
        self: &Arc<Self>,
        number: u32,
        port: u8,
        completions: usize,
    ) -> PairWatch {
        let health = Arc::new(PairHealth::default());
        let pair = WatchedPair { health: health.clone(), port, completions };
        self.pairs.lock().insert(number, pair);
        let report = *self.report.borrow();
        if report.is_fatal || report.is_port_down(port) {
            health.mark_failed();
        }
        PairWatch { device: self.clone(), health, number }
    }

    /// Returns a view of what the events say, from now on.
    pub(in crate::verbs) fn subscribe(&self) -> watch::Receiver<DeviceReport> {
        self.report.subscribe()
    }

    pub(in crate::verbs) fn is_fatal(&self) -> bool {
        self.report.borrow().is_fatal
    }

    /// Records the state of a port.
    pub(in crate::verbs) fn record_port(&self, port: u8, is_down: bool) {
        self.report.send_if_modified(|report| {
            let before = *report;
            report.ports_down &= !port_bit(port);
            report.ports_down |= if is_down { port_bit(port) } else { 0 };
            *report != before
        });
        if is_down {
            self.fail_pairs(|pair| pair.port == port);
        }
    }

    fn fail_pairs(&self, concerned: impl Fn(&WatchedPair) -> bool) {
        self.pairs.lock().values().filter(|pair| concerned(pair)).for_each(|pair| {
            pair.health.mark_failed();
        });
    }

    fn record_fatal(&self) {
        self.report.send_modify(|report| report.is_fatal = true);
        self.fail_pairs(|_| true);
    }
}

/// The events of one device, as one rail hears them.
pub(in crate::verbs) struct DeviceEvents {
    /// A duplicate, so that each rail can watch its own.
    fd: OwnedFd,
    health: Arc<DeviceHealth>,
    /// Keeps the context open.
    domain: Arc<ProtectionDomain>,
}

impl DeviceEvents {
    pub(in crate::verbs) fn new(
        domain: &Arc<ProtectionDomain>,
        health: &Arc<DeviceHealth>,
    ) -> io::Result<Self> {
        // SAFETY: the context is open as long as the domain; the field never changes.
        let fd = unsafe { (*domain.device_context().as_ptr()).async_fd };
        // SAFETY: duplicates an open descriptor.
        let fd = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 {
            return Err(last_error("can't watch the device's events"));
        }
        // SAFETY: just made, and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set_nonblocking(fd.as_raw_fd())?;
        Ok(Self { fd, health: health.clone(), domain: domain.clone() })
    }

    /// Takes all events that are there, acknowledges them and passes them on. Returns at once.
    pub(in crate::verbs) fn take_events(&self) {
        let context = self.domain.device_context().as_ptr();
        loop {
            let mut event = std::mem::MaybeUninit::<ffi::ibv_async_event>::zeroed();
            // SAFETY: the context is open, its descriptor does not block, and the place is valid.
            if unsafe { ffi::ibv_get_async_event(context, event.as_mut_ptr()) } != 0 {
                return;
            }
            let place = event.as_mut_ptr();
            // SAFETY: the call succeeded, so the event is written. Its kind is read as a number.
            let kind = unsafe { (&raw const (*place).event_type).cast::<libc::c_int>().read() };
            // SAFETY: as above; any bytes are a number.
            let port = unsafe { (*place).element.port_num };
            let port = u8::try_from(port).unwrap_or(u8::MAX);
            match kind {
                PAIR_FATAL | PAIR_REQUEST_ERROR | PAIR_ACCESS_ERROR => {
                    // SAFETY: these kinds name a queue pair. Its destruction waits until the event
                    // is acknowledged, below.
                    let number = unsafe { (*(*place).element.qp).qp_num };
                    if let Some(pair) = self.health.pairs.lock().get(&number) {
                        pair.health.mark_failed();
                    }
                }
                QUEUE_ERROR => {
                    // SAFETY: this kind names a completion queue, of which the address is enough.
                    let queue = unsafe { (*place).element.cq }.addr();
                    self.health.fail_pairs(|pair| pair.completions == queue);
                }
                // All rails of the device begin anew: which of them has the queue, nobody knows.
                DEVICE_FATAL | SHARED_QUEUE_ERROR => self.health.record_fatal(),
                PORT_ERROR => self.health.record_port(port, true),
                PORT_ACTIVE => self.health.record_port(port, false),
                LID_CHANGE | GID_CHANGE => {
                    self.health.report.send_modify(|report| report.readdressed += 1);
                }
                _ => {}
            }
            // SAFETY: taken above, and acknowledged once.
            unsafe { ffi::ibv_ack_async_event(place) };
            tracing::debug!(event = kind, "a device told an event");
        }
    }
}

impl AsFd for DeviceEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
