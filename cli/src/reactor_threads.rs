//! Threads with a runtime of one thread each, for connections: what a connection waits for wakes
//! the thread that serves it, and no other.
//!
//! Threads of one runtime share the wait for sockets, and while the one whose turn it is copies,
//! nobody waits: a worker would write to one gateway at a time. Owns the threads. What is served on
//! them is the caller's business.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use verbs3_config::ProcessSettings;

/// Longest wait for the threads' end: the process ends without a task that keeps its thread busy.
const END_MAX: Duration = Duration::from_secs(15);

/// End them after everything that runs there, and what may be begun there.
pub struct ReactorThreads {
    handles: Vec<Handle>,
    /// Its other side is dropped by each thread at its end. Locked, since a receiver is not shared
    /// between threads.
    ended: Mutex<mpsc::Receiver<()>>,
    over: CancellationToken,
}

impl ReactorThreads {
    /// Starts as many threads as `process.threads` says.
    pub fn for_process(process: &ProcessSettings) -> anyhow::Result<Self> {
        Self::start(usize::from(process.threads))
            .context("can't start threads; raise the process's thread limit")
    }

    /// Starts `count` threads; 0 means one per CPU that the process may use.
    pub fn start(count: usize) -> io::Result<Self> {
        let count = match count {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let over = CancellationToken::new();
        // Threads that were started end when another one can't be.
        let ending = over.clone().drop_guard();
        let (running, ended) = mpsc::channel();
        let mut handles = Vec::new();
        for number in 0..count {
            let (over, running) = (over.clone(), running.clone());
            let (started, hear) = mpsc::channel();
            // The runtime is made there: one that is dropped by an asynchronous caller panics.
            let serve = move || {
                let runtime = match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(Err(error))),
                };
                let _ = started.send(Ok(runtime.handle().clone()));
                runtime.block_on(over.cancelled());
                // Blocking calls on a disk or a resolver that hangs must not keep the process.
                runtime.shutdown_background();
                drop(running);
            };
            std::thread::Builder::new().name(format!("verbs3-data-{number}")).spawn(serve)?;
            handles.push(hear.recv().map_err(io::Error::other)??);
        }
        Ok(Self { handles, ended: Mutex::new(ended), over: ending.disarm() })
    }

    /// One handle for each thread, in the order of the threads.
    pub fn runtime_handles(&self) -> Vec<Handle> {
        self.handles.clone()
    }

    /// Drops what still runs there, and waits for the threads, but not for long.
    pub fn shutdown(self) {
        self.over.cancel();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(END_MAX) == Err(RecvTimeoutError::Timeout) {
            let waited_s = END_MAX.as_secs();
            tracing::warn!(waited_s, "a data thread does not end: the process ends without it");
        }
    }
}

impl Drop for ReactorThreads {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tasks_run_on_their_thread_and_end_with_it() {
        let reactors = ReactorThreads::start(2).unwrap();
        let (told, hear) = std::sync::mpsc::channel();
        let task = reactors.runtime_handles()[1].spawn(async move {
            told.send(std::thread::current().name().map(str::to_owned)).unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(hear.recv().unwrap().as_deref(), Some("verbs3-data-1"));
        reactors.shutdown();
        assert!(task.is_finished());
    }

    #[tokio::test]
    async fn threads_end_though_their_owner_forgot_to_end_them() {
        let reactors = ReactorThreads::start(1).unwrap();
        let task = reactors.runtime_handles()[0].spawn(std::future::pending::<()>());
        drop(reactors);
        assert!(task.await.unwrap_err().is_cancelled());
    }
}
