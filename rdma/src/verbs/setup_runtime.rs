//! Owns the threads on which connections are made and ended. A few resolve routes, and make and move
//! queue pairs. Each end has a thread of its own. A NIC's firmware takes a millisecond for some of
//! that, and an address service longer. Threads that serve data don't wait for it.

use std::future::Future;
use std::io;
use std::sync::LazyLock;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::cpu_affinity::unpin_thread;

/// Threads of a process for what begins. The kernel makes queue pairs of one device one by one, so more
/// would help hosts with many NICs alone.
const THREADS: usize = 4;

/// Made with the first connection, and kept: what is made here refers to it. `None` where the
/// process may have no more threads.
static SETUP: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    let made = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("verbs3-setup")
        // The first connection may be made by a thread that is pinned.
        .on_thread_start(unpin_thread)
        .enable_all()
        .build();
    made.inspect_err(|error| {
        tracing::warn!(%error, "no threads to make connections on; those that serve data do it");
    })
    .ok()
});

/// Runs `work` on a thread that serves no data, as one of `tasks`. Dropping the future ends the work
/// at its next await, and drops there what it has made.
pub(super) async fn run_aside<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl Future<Output = T> + Send + 'static,
) -> io::Result<T> {
    let Some(setup) = &*SETUP else { return Ok(work.await) };
    let task = AbortOnDropHandle::new(tasks.spawn_on(work, setup.handle()));
    task.await.map_err(io::Error::other)
}

/// Runs `work`, which blocks, as one of `tasks`, on a thread that nobody else waits for: what ends
/// never queues behind what begins, nor behind what ends on another device. Goes on where the future
/// is dropped.
pub(super) async fn run_blocking_aside<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let Some(setup) = &*SETUP else { return Ok(work()) };
    tasks.spawn_blocking_on(work, setup.handle()).await.map_err(io::Error::other)
}

/// Has `work` run as `run_blocking_aside` would, and waits for nothing.
pub(super) fn spawn_blocking_aside(tasks: &TaskTracker, work: impl FnOnce() + Send + 'static) {
    match &*SETUP {
        Some(setup) => drop(tasks.spawn_blocking_on(work, setup.handle())),
        None => work(),
    }
}

/// Steps that wait at once, each on a thread. Those beyond wait for them, and may be given up.
const WAITS_MAX: usize = 64;
static WAITS: Semaphore = Semaphore::const_new(WAITS_MAX);

/// Runs a step of `run_aside` that may wait for long, for an address service. Another thread takes
/// over what else begins meanwhile.
pub(super) async fn wait_within<T>(step: impl FnOnce() -> T) -> T {
    // Nobody closes it.
    let _turn = WAITS.acquire().await;
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(step),
        // There are no such threads.
        _ => step(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn work_that_blocks_holds_up_nobody() {
        let (tasks, (go, wait)) = (TaskTracker::new(), mpsc::channel());
        let work = run_aside(&tasks, async move {
            let here = std::thread::current().name().map(str::to_owned);
            wait.recv().unwrap();
            here
        });
        // On this thread the work would wait for ever.
        let (here, ()) = tokio::join!(work, async move { go.send(()).unwrap() });
        assert_eq!(here.unwrap().unwrap(), "verbs3-setup");
    }

    #[tokio::test]
    async fn what_ends_waits_for_nobody_who_begins() {
        let (tasks, mut blocked) = (TaskTracker::new(), Vec::new());
        for _ in 0..2 * THREADS {
            let (go, wait) = mpsc::channel::<()>();
            let tasks = tasks.clone();
            let stuck = async move { run_aside(&tasks, async move { wait.recv() }).await };
            blocked.push((go, tokio::spawn(stuck)));
        }
        tokio::task::yield_now().await;
        assert_eq!(run_blocking_aside(&tasks, || 7).await.unwrap(), 7);
        for (go, stuck) in blocked {
            go.send(()).unwrap();
            stuck.await.unwrap().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn who_waits_long_holds_up_nobody_who_begins() {
        let (tasks, mut blocked) = (TaskTracker::new(), Vec::new());
        for _ in 0..2 * THREADS {
            let (go, wait) = mpsc::channel::<()>();
            let tasks = tasks.clone();
            let stuck = async move { wait_within(move || wait.recv()).await };
            blocked.push((go, tokio::spawn(async move { run_aside(&tasks, stuck).await })));
        }
        tokio::task::yield_now().await;
        assert_eq!(run_aside(&tasks, async { 7 }).await.unwrap(), 7);
        assert_eq!(wait_within(|| 8).await, 8, "on a thread that serves data, too");
        for (go, stuck) in blocked {
            go.send(()).unwrap();
            stuck.await.unwrap().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn work_ends_with_who_waits_for_it() {
        let (tasks, (held, ended)) = (TaskTracker::new(), tokio::sync::oneshot::channel::<()>());
        let work = run_aside(&tasks, async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        let hurried = tokio::time::timeout(std::time::Duration::from_millis(20), work);
        assert!(hurried.await.is_err() && ended.await.is_err(), "its work was dropped");
        tasks.close();
        tasks.wait().await;
    }
}
