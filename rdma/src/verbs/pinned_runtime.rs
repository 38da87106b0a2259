//! Owns threads on chosen CPUs, for connections that poll. The options decide what runs there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime with one thread on each of some CPUs. Dropping it does not wait for its threads.
pub struct PinnedRuntime {
    runtime: Option<Runtime>,
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
        let threads = cpus.len().max(1);
        let pin = move || {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if let Some(&cpu) = cpus.get(turn % threads)
                && let Err(error) = pin_to(cpu)
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
        Ok(Self { runtime: Some(runtime) })
    }

    /// Returns the handle that spawns tasks on the pinned threads. The handle outlives the runtime;
    /// tasks spawned after it never run.
    pub fn runtime_handle(&self) -> Handle {
        self.runtime.as_ref().map(|runtime| runtime.handle().clone()).expect("taken by drop alone")
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

fn pin_to(cpu: usize) -> io::Result<()> {
    // SAFETY: a set of CPUs is plain data, for which zeroes are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, which `new` has checked.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set lives through the call; 0 is this thread.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_thread_runs_where_it_is_told() {
        // SAFETY: takes nothing.
        let here = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
        let pinned = PinnedRuntime::new(&[here]).unwrap();
        let (told, hear) = std::sync::mpsc::channel();
        pinned.runtime_handle().spawn(async move {
            // SAFETY: takes nothing.
            told.send(unsafe { libc::sched_getcpu() }).unwrap();
        });
        assert_eq!(usize::try_from(hear.recv().unwrap()).unwrap(), here);
    }

    #[test]
    fn a_cpu_beyond_all_is_refused() {
        assert!(PinnedRuntime::new(&[1 << 20]).err().unwrap().to_string().contains("no CPU"));
    }
}
