//! Owns the credits of one connection: how many calls may be in flight at once, and who is woken
//! when a credit comes back.
//!
//! Nobody owns a place in a queue. The first waiter that is polled and finds a credit takes it. So
//! a caller that is not polled for a while (a fetch far ahead of a slow client) keeps no credit
//! from the others. It would keep one if credits were handed to waiters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::transport::CallLoad;

/// Error: the connection is over and no credit will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CreditsClosed;

pub(crate) struct CallCredits {
    max: usize,
    state: Mutex<CallCreditState>,
}

struct CallCreditState {
    free: usize,
    /// Of the calls that have a credit.
    landing_bytes: u64,
    closed: bool,
    next: u64,
    /// Wakers by age of the request.
    waiting: BTreeMap<u64, Waker>,
}

/// One credit. Dropping it gives the credit back.
pub(crate) struct CreditPermit {
    credits: Arc<CallCredits>,
    landing_bytes: u64,
}

impl CreditPermit {
    /// Counts the landing of the call that it is for.
    pub(crate) fn carry_bytes(mut self, landing_bytes: u64) -> Self {
        self.landing_bytes += landing_bytes;
        self.credits.state.lock().landing_bytes += landing_bytes;
        self
    }
}

/// A request for one credit. It costs nothing while it is not polled, and dropping it withdraws it.
pub(crate) struct CreditRequest {
    credits: Arc<CallCredits>,
    /// The request's age; set once it had to wait.
    place: Option<u64>,
}

impl CallCredits {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let state = CallCreditState {
            free: max,
            landing_bytes: 0,
            closed: false,
            next: 0,
            waiting: BTreeMap::new(),
        };
        Arc::new(Self { max, state: Mutex::new(state) })
    }

    /// Returns how many are in use, and the bytes of those calls.
    pub(crate) fn call_load(&self) -> CallLoad {
        let state = self.state.lock();
        CallLoad {
            calls: self.max - state.free,
            landing_bytes: state.landing_bytes,
            is_full: state.free == 0,
        }
    }

    /// Takes a credit. Returns `None` when all are in use, or when the connection is over.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<CreditPermit> {
        let mut state = self.state.lock();
        if state.closed || state.free == 0 {
            return None;
        }
        state.free -= 1;
        Some(CreditPermit { credits: self.clone(), landing_bytes: 0 })
    }

    pub(crate) fn request_credit(self: &Arc<Self>) -> CreditRequest {
        CreditRequest { credits: self.clone(), place: None }
    }

    /// Refuses all waiting and all later requests.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}

impl CreditRequest {
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CreditPermit, CreditsClosed>> {
        let mut state = self.credits.state.lock();
        if state.closed {
            return Poll::Ready(Err(CreditsClosed));
        }
        if state.free > 0 {
            state.free -= 1;
            if let Some(place) = self.place.take() {
                state.waiting.remove(&place);
            }
            let credits = self.credits.clone();
            return Poll::Ready(Ok(CreditPermit { credits, landing_bytes: 0 }));
        }
        let place = *self.place.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state.waiting.insert(place, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for CreditRequest {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.credits.state.lock().waiting.remove(&place);
        }
    }
}

impl Drop for CreditPermit {
    fn drop(&mut self) {
        // Wakes all waiters, the oldest first. A single woken waiter may be one that nobody polls.
        let waiting = {
            let mut state = self.credits.state.lock();
            state.free += 1;
            state.landing_bytes -= self.landing_bytes;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::task::{ArcWake, waker};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl ArcWake for Count {
        fn wake_by_ref(count: &Arc<Self>) {
            count.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(
        wish: &mut CreditRequest,
        count: &Arc<Count>,
    ) -> Poll<Result<CreditPermit, CreditsClosed>> {
        wish.poll(&mut Context::from_waker(&waker(count.clone())))
    }

    #[test]
    fn bytes_count_until_their_call_ends() {
        let credits = CallCredits::new(2);
        let small = credits.try_take().unwrap().carry_bytes(0);
        let large = credits.try_take().unwrap().carry_bytes(1 << 20);
        let both = CallLoad { calls: 2, landing_bytes: 1 << 20, is_full: true };
        assert_eq!(credits.call_load(), both);
        assert_eq!(credits.call_load().weigh_calls(), 2 + 8);
        drop(large);
        assert_eq!(credits.call_load(), CallLoad { calls: 1, ..CallLoad::default() });
        drop(small);
        assert_eq!(credits.call_load(), CallLoad::default());
    }

    #[test]
    fn a_wish_that_nobody_polls_again_keeps_no_credit_from_others() {
        let (credits, count) = (CallCredits::new(1), Arc::new(Count::default()));
        let held = credits.try_take().unwrap();
        let (mut idle, mut busy) = (credits.request_credit(), credits.request_credit());
        assert!(poll(&mut idle, &count).is_pending() && poll(&mut busy, &count).is_pending());
        drop(held);
        assert_eq!(count.0.load(Ordering::SeqCst), 2, "both are woken");
        for _ in 0..3 {
            let Poll::Ready(Ok(permit)) = poll(&mut busy, &count) else {
                panic!("starved by a wish that is not polled")
            };
            assert_eq!(credits.call_load().calls, 1);
            drop(permit);
        }
        assert!(matches!(poll(&mut idle, &count), Poll::Ready(Ok(_))));
        assert_eq!(credits.call_load().calls, 0);
    }

    #[test]
    fn a_dropped_wish_is_not_woken() {
        let (credits, count) = (CallCredits::new(1), Arc::new(Count::default()));
        let held = credits.try_take();
        let mut wish = credits.request_credit();
        assert!(poll(&mut wish, &count).is_pending());
        drop(wish);
        drop(held);
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn the_end_of_the_connection_refuses_who_waits_and_who_comes() {
        let (credits, count) = (CallCredits::new(1), Arc::new(Count::default()));
        let _held = credits.try_take();
        let mut wish = credits.request_credit();
        assert!(poll(&mut wish, &count).is_pending());
        credits.close();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(matches!(poll(&mut wish, &count), Poll::Ready(Err(CreditsClosed))));
        assert!(credits.try_take().is_none());
    }
}
