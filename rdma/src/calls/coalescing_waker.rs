//! Owns the polling of one task made of several futures that wake each other.
//!
//! A future that is woken while its task runs goes back to the scheduler. The scheduler also wakes
//! another thread to help. The halves of a connection do that all the time: one answers what the
//! other reads. Here they are polled again at once instead.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
const NUDGED: u8 = 2;

/// Polls in a row before other tasks have their turn.
const POLLS_MAX: usize = 4;

#[derive(Default)]
struct CoalescingWaker {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for CoalescingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A poll in progress sees the nudge afterwards. Without one, the task must be woken.
        if self.state.swap(NUDGED, Ordering::AcqRel) == IDLE {
            self.task.wake();
        }
    }
}

/// Runs `whole`. A wake during its own poll does not go through the scheduler.
pub(super) async fn coalesce_wakes<F: Future>(whole: F) -> F::Output {
    let mut whole = pin!(whole);
    let nudge = Arc::new(CoalescingWaker::default());
    let waker = Waker::from(nudge.clone());
    poll_fn(|cx| {
        nudge.task.register(cx.waker());
        for _ in 0..POLLS_MAX {
            nudge.state.store(POLLING, Ordering::Release);
            if let Poll::Ready(output) = whole.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            let rested =
                nudge.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if rested.is_ok() {
                return Poll::Pending;
            }
        }
        // Nudged again: let other tasks run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::{ArcWake, waker};
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Notify;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl ArcWake for Count {
        fn wake_by_ref(count: &Arc<Self>) {
            count.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll_once<F: Future>(future: std::pin::Pin<&mut F>, count: &Arc<Count>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&waker(count.clone())))
    }

    #[test]
    fn halves_that_wake_each_other_do_not_wake_the_task() {
        let (count, ping, pong) = (Arc::new(Count::default()), Notify::new(), Notify::new());
        let first = async {
            ping.notify_one();
            pong.notified().await;
        };
        let second = async {
            ping.notified().await;
            pong.notify_one();
        };
        // `second` is polled behind `first`, which it wakes.
        let mut whole = pin!(coalesce_wakes(async { tokio::join!(biased; first, second) }));
        assert!(poll_once(whole.as_mut(), &count).is_ready());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_wake_from_outside_reaches_the_task_each_time() {
        let (count, told) = (Arc::new(Count::default()), Notify::new());
        let mut whole = pin!(coalesce_wakes(async {
            told.notified().await;
            told.notified().await;
        }));
        for times in 1..=2 {
            assert!(poll_once(whole.as_mut(), &count).is_pending());
            told.notify_one();
            assert_eq!(count.0.load(Ordering::SeqCst), times);
        }
        assert!(poll_once(whole.as_mut(), &count).is_ready());
    }

    #[test]
    fn who_nudges_without_end_lets_others_run() {
        let count = Arc::new(Count::default());
        let mut whole = pin!(coalesce_wakes(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        })));
        assert!(poll_once(whole.as_mut(), &count).is_pending());
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "its turn comes again");
    }
}
