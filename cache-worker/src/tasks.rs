//! Owns the tasks of a worker. They run on the worker's own runtime, whatever thread starts them. A
//! call may arrive on a thread that serves one connection only; shared work must not block that
//! connection.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call_trace;
use crate::clock::WorkerClock;
use crate::metrics::WorkerMetrics;

/// What every stage of a worker runs on.
#[derive(Clone)]
pub(crate) struct WorkerRuntime {
    pub(crate) clock: Arc<dyn WorkerClock>,
    pub(crate) tasks: WorkerTaskSet,
    pub(crate) stop: CancellationToken,
    pub(crate) metrics: WorkerMetrics,
}

#[derive(Clone)]
pub(crate) struct WorkerTaskSet {
    tracker: TaskTracker,
    runtime: Handle,
}

impl WorkerTaskSet {
    /// Must be called within a runtime, which then runs all the tasks.
    pub(crate) fn on_current_runtime() -> Self {
        Self { tracker: TaskTracker::new(), runtime: Handle::current() }
    }

    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn_on(call_trace::carry_context(task), &self.runtime)
    }

    /// Waits until all tasks have ended. A task that is spawned later still runs.
    pub(crate) async fn join_all(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tasks_of_a_connection_thread_run_where_the_worker_started() {
        let runtime = |name: &str| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name(name)
                .enable_all()
                .build()
                .unwrap()
        };
        let (own, of_connections) = (runtime("own"), runtime("connections"));
        let tasks = own.block_on(async { WorkerTaskSet::on_current_runtime() });
        let name = || std::thread::current().name().map(str::to_owned);
        let ran_on =
            of_connections.block_on(async { tasks.spawn(async move { name() }).await }).unwrap();
        assert_eq!(ran_on.as_deref(), Some("own"));
        own.block_on(tasks.join_all());
    }
}
