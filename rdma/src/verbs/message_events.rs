//! Owns whether the connections of a rail may sleep for messages alone (solicited events).
//!
//! Not every driver is known to keep its word there, so such a sleep is short, and a rail on which
//! messages came without their event goes back to events of all completions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Longest sleep for messages alone. A connection on which nothing has happened for longer sleeps for
/// all completions. Also bounds how late an error is seen on a device that tells nothing of errors in
/// this way.
pub(super) const MESSAGE_SLEEP_MAX: Duration = Duration::from_millis(100);

/// Messages without their event, one after the other, after which the device is not trusted. One can
/// be a message that came just when the sleep ended.
const MISSES_MAX: u32 = 3;

/// The experience of one rail.
pub(super) struct MessageEvents(AtomicU32);

impl MessageEvents {
    pub(super) fn new(wanted: bool) -> Self {
        Self(AtomicU32::new(if wanted { 0 } else { MISSES_MAX }))
    }

    /// Returns true while connections may sleep so.
    pub(super) fn may_be_used(&self) -> bool {
        self.0.load(Ordering::Relaxed) < MISSES_MAX
    }

    /// Notes that the device told of a message.
    pub(super) fn record_event(&self) {
        let misses = self.0.load(Ordering::Relaxed);
        if misses > 0 && misses < MISSES_MAX {
            // A miss that is noted at the same time may be lost. Others will follow it.
            let _ = self.0.compare_exchange(misses, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Notes that a message was found of which the device did not tell. Returns true if it is no
    /// longer trusted from now on.
    pub(super) fn record_miss(&self) -> bool {
        let note = |misses| (misses < MISSES_MAX).then_some(misses + 1);
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, note);
        before == Ok(MISSES_MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_misses_messages_is_told_of_once() {
        let events = MessageEvents::new(true);
        assert!(!events.record_miss() && !events.record_miss());
        events.record_event();
        assert!(!events.record_miss() && !events.record_miss() && events.may_be_used());
        assert!(events.record_miss() && !events.may_be_used());
        events.record_event();
        assert!(!events.record_miss() && !events.may_be_used());
        assert!(!MessageEvents::new(false).may_be_used());
    }
}
