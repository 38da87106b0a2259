//! Threads with a runtime of one thread each, for connections: what a connection waits for wakes
//! the thread that serves it, and no other.
//!
//! Threads of one runtime share the wait for sockets, and while the one whose turn it is copies,
//! nobody waits: a worker would write to one gateway at a time. Owns the threads. What is served on
//! them is the caller's business.

use std::io;
use std::thread::JoinHandle;

use anyhow::Context;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use verbs3_config::ProcessSettings;

/// End them after everything that runs there, and what may be begun there.
pub struct ReactorThreads {
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
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
        let mut reactors =
            Self { handles: Vec::new(), threads: Vec::new(), over: CancellationToken::new() };
        for number in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            reactors.handles.push(runtime.handle().clone());
            let over = reactors.over.clone();
            let serve = move || {
                runtime.block_on(over.cancelled());
                // Blocking calls on a disk or a resolver that hangs must not keep the process.
                runtime.shutdown_background();
            };
            let thread =
                std::thread::Builder::new().name(format!("verbs3-data-{number}")).spawn(serve)?;
            reactors.threads.push(thread);
        }
        Ok(reactors)
    }

    /// One handle for each thread, in the order of the threads.
    pub fn runtime_handles(&self) -> Vec<Handle> {
        self.handles.clone()
    }

    /// Drops what still runs there, and waits for the threads.
    pub fn shutdown(mut self) {
        self.over.cancel();
        for thread in self.threads.drain(..) {
            // A panic of a task is caught by its runtime; one of the thread itself has been
            // printed.
            let _ = thread.join();
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
}
