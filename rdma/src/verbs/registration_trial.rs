//! Owns the measurement of registration: how long devices take to register an arena, with one thread
//! or several. Also asks a device whether it has memory windows.
//!
//! A trial has protection domains of its own and gives everything back at its end. It disturbs no
//! rail that is in use, but its memory counts against the same bound on locked memory.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rail_regions::{RailRegions, THREADS_MAX};
use super::sys::{CmId, EventChannel, ProtectionDomain, RegionAccess, RegionTerms};
use crate::arena::Arena;

/// How a trial registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationOrder {
    /// One rail after the other, each in one thread.
    Serial,
    /// All rails at once, each in as many threads as a process takes for one.
    Parallel,
}

/// What one rail took.
#[derive(Debug)]
pub struct RailRegistration {
    /// The address that named it.
    pub address: IpAddr,
    /// Device and port, and the time; or why it could not be registered.
    pub outcome: io::Result<(String, Duration)>,
}

/// Registers all of `arena` with the device of each rail, and gives it back. This is slow.
pub fn time_registration(
    rails: &[IpAddr],
    arena: &Arena,
    order: RegistrationOrder,
) -> Vec<RailRegistration> {
    let trial = |&address: &IpAddr| RailRegistration {
        address,
        outcome: register_rail(address, arena, order),
    };
    match order {
        RegistrationOrder::Serial => rails.iter().map(trial).collect(),
        RegistrationOrder::Parallel => std::thread::scope(|threads| {
            let trials: Vec<_> =
                rails.iter().map(|rail| threads.spawn(move || trial(rail))).collect();
            let ended = trials.into_iter().zip(rails).map(|(trial, &address)| {
                let panicked = |_| RailRegistration {
                    address,
                    outcome: Err(io::Error::other("its thread panicked")),
                };
                trial.join().unwrap_or_else(panicked)
            });
            ended.collect()
        }),
    }
}

/// Returns whether the device of the rail at `address` has the memory windows that
/// `verbs.windows = "auto"` uses.
pub fn has_memory_windows(address: IpAddr) -> io::Result<bool> {
    Ok(open_domain(address)?.query_capabilities()?.windows)
}

fn open_domain(address: IpAddr) -> io::Result<Arc<ProtectionDomain>> {
    let anchor = CmId::new(&EventChannel::new()?)?;
    anchor.bind(SocketAddr::new(address, 0))?;
    Ok(Arc::new(ProtectionDomain::new(anchor)?))
}

fn register_rail(
    address: IpAddr,
    arena: &Arena,
    order: RegistrationOrder,
) -> io::Result<(String, Duration)> {
    let domain = open_domain(address)?;
    let (device, port) = domain.device_port();
    let label = format!("{device}:{port}");
    let terms = RegionTerms { access: RegionAccess::RemoteWrite, relaxed: true };
    let threads = match order {
        RegistrationOrder::Serial => 1,
        RegistrationOrder::Parallel => THREADS_MAX,
    };
    let (_, bytes) = arena.mapped_range();
    // As many regions as threads, or a small arena would be one region and one thread.
    let region_bytes = (bytes.div_ceil(threads)) as u64;
    let regions = RailRegions::with_bound(domain, arena.clone(), terms, region_bytes);
    let began = Instant::now();
    regions.register_on_threads(&label, threads)?;
    Ok((label, began.elapsed()))
}
