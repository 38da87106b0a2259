//! Owns threads on chosen CPUs, for connections that poll. The options decide what runs there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::cpu_affinity::{pin_thread, remember_all_cpus};

/// A runtime with one thread on each of some CPUs. Dropping it does not wait for its threads.
pub struct PinnedRuntime {
    runtime: Option<Runtime>,
    cpus: Arc<[usize]>,
}

/// What drives the connections of a rail: a handle on a [`PinnedRuntime`], which outlives it. Tasks
/// spawned after it never run.
#[derive(Debug, Clone)]
pub struct RailDriver {
    pub(super) runtime: Handle,
    /// Where its threads run.
    pub(super) cpus: Arc<[usize]>,
}

impl PinnedRuntime {
    /// Starts one thread for each of `cpus`, which must not be empty.
    pub fn new(cpus: &[usize]) -> io::Result<Self> {
        if let Some(cpu) = cpus.iter().find(|&&cpu| cpu >= libc::CPU_SETSIZE as usize) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("there is no CPU {cpu}"),
            ));
        }
        let (cpus, next): (Arc<[usize]>, _) = (cpus.into(), AtomicUsize::new(0));
        let pinned_to = cpus.clone();
        let threads = cpus.len().max(1);
        remember_all_cpus();
        let pin = move || {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if let Some(&cpu) = pinned_to.get(turn % threads)
                && let Err(error) = pin_thread(&[cpu])
            {
                tracing::warn!(cpu, %error, "can't pin a polling thread; it runs on any CPU");
            }
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(4)
            .thread_name("verbs3-poll")
            .on_thread_start(pin)
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime), cpus })
    }

    /// Returns the handle by which connections run on the pinned threads.
    pub fn rail_driver(&self) -> RailDriver {
        let runtime = self.runtime.as_ref().expect("taken by drop alone");
        RailDriver { runtime: runtime.handle().clone(), cpus: self.cpus.clone() }
    }
}

impl Drop for PinnedRuntime {
    fn drop(&mut self) {
        // Waiting for threads would panic within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cpu_affinity::{thread_cpus, unpin_thread};

    #[test]
    fn a_thread_runs_where_it_is_told() {
        // SAFETY: takes nothing.
        let here = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
        let pinned = PinnedRuntime::new(&[here]).unwrap();
        let (told, hear) = std::sync::mpsc::channel();
        pinned.rail_driver().runtime.spawn(async move {
            // SAFETY: takes nothing.
            told.send(unsafe { libc::sched_getcpu() }).unwrap();
        });
        assert_eq!(usize::try_from(hear.recv().unwrap()).unwrap(), here);
    }

    #[test]
    fn a_thread_made_by_a_pinned_one_can_be_let_go() {
        // SAFETY: the set is a valid one.
        let count = || unsafe { libc::CPU_COUNT(&thread_cpus()) };
        let all = count();
        // SAFETY: takes nothing.
        let here = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
        let pinned = PinnedRuntime::new(&[here]).unwrap();
        let (told, hear) = std::sync::mpsc::channel();
        pinned.rail_driver().runtime.spawn(async move {
            let made = std::thread::spawn(move || {
                let inherited = count();
                unpin_thread();
                told.send((inherited, count())).unwrap();
            });
            made.join().unwrap();
        });
        assert_eq!(hear.recv().unwrap(), (1, all));
    }

    #[test]
    fn a_cpu_beyond_all_is_refused() {
        assert!(PinnedRuntime::new(&[1 << 20]).err().unwrap().to_string().contains("no CPU"));
    }
}
