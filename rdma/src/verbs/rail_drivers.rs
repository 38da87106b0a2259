//! Owns the threads that drive the connections of each rail, where the configuration names CPUs for
//! them: which rail gets which, so that each is driven near its NIC and by nobody's side.
//!
//! `pinned_runtime` makes the threads.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::pinned_runtime::{PinnedRuntime, RailDriver};
use super::rail::RailIdentity;
use super::rail_presence::RailPlace;
use crate::cpu_affinity::CpuSet;

/// The drivers of a process's rails. Dropping them does not wait for their threads.
pub struct RailDrivers {
    runtimes: Vec<PinnedRuntime>,
    /// Index of each rail's runtime.
    of_rail: Vec<usize>,
}

impl RailDrivers {
    /// Starts a thread on each of `cpus` and shares them out among `rails`. A rail that is away now
    /// may get any. Without CPUs there are no threads, and connections run where they are made.
    pub fn start(cpus: &[usize], rails: &[RailPlace]) -> io::Result<Self> {
        let (mut runtimes, mut of_rail) = (Vec::new(), Vec::new());
        if cpus.is_empty() {
            return Ok(Self { runtimes, of_rail });
        }
        let near: Vec<_> = rails.iter().map(near_cpus).collect();
        let mut made = BTreeMap::new();
        for (rail, cpus) in rails.iter().zip(share_out(cpus, &near)) {
            let driver = match made.get(&cpus) {
                Some(&driver) => driver,
                None => {
                    runtimes.push(PinnedRuntime::new(&cpus)?);
                    *made.entry(cpus.clone()).or_insert(runtimes.len() - 1)
                }
            };
            tracing::info!(rail = rail.rail_name(), ?cpus, "threads of a rail's connections");
            of_rail.push(driver);
        }
        Ok(Self { runtimes, of_rail })
    }

    /// Returns the driver of the rail with this index; `None` without threads of their own.
    pub fn driver_of(&self, rail: usize) -> Option<RailDriver> {
        self.of_rail.get(rail).map(|&driver| self.runtimes[driver].rail_driver())
    }
}

/// Returns the CPUs near a rail's NIC; none where it is away, or the kernel does not tell.
fn near_cpus(rail: &RailPlace) -> CpuSet {
    let found = rail.find_address().and_then(RailIdentity::find_by_address);
    let device = found.ok().flatten().map(|rail| rail.device);
    let folder = |device| Path::new("/sys/class/infiniband").join(device);
    device.map(|device| CpuSet::near_device(&folder(device))).unwrap_or_default()
}

/// Shares `cpus` out among rails, of each of which the near CPUs are given. Rails with the same near
/// ones divide them, and a rail without any gets what is near to none, if there is some. Where there
/// are fewer than rails, several have the same one.
fn share_out(cpus: &[usize], near: &[CpuSet]) -> Vec<Vec<usize>> {
    let named: CpuSet = cpus.iter().copied().collect();
    let usable: Vec<_> = near.iter().map(|near| named.common_cpus(near)).collect();
    let all = named.common_cpus(&named);
    // Two threads that poll on one CPU would take turns of milliseconds.
    let near_none: Vec<_> =
        all.iter().copied().filter(|cpu| !usable.iter().any(|cpus| cpus.contains(cpu))).collect();
    let some_near = usable.iter().find(|cpus| !cpus.is_empty()).cloned().unwrap_or(all);
    let for_others = if near_none.is_empty() { some_near } else { near_none };
    let mut rails_at: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (rail, cpus) in usable.into_iter().enumerate() {
        let cpus = if cpus.is_empty() { for_others.clone() } else { cpus };
        rails_at.entry(cpus).or_default().push(rail);
    }
    let mut shares = vec![Vec::new(); near.len()];
    for (cpus, rails) in rails_at {
        for (turn, &rail) in rails.iter().enumerate() {
            let mine = cpus.iter().skip(turn % cpus.len()).step_by(rails.len());
            shares[rail] = mine.copied().collect();
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(cpus: &[usize], near: &[&str]) -> Vec<Vec<usize>> {
        share_out(cpus, &near.iter().map(|list| CpuSet::parse(list)).collect::<Vec<_>>())
    }

    #[test]
    fn each_rail_is_driven_near_its_nic() {
        assert_eq!(shares(&[2, 3, 10, 11], &["0-7", "8-15"]), [vec![2, 3], vec![10, 11]]);
        assert_eq!(
            shares(&[2, 10, 3, 11], &["8-15", "0-7", "8-15"]),
            [vec![10], vec![2, 3], vec![11]]
        );
    }

    #[test]
    fn more_rails_than_cpus_share_them() {
        assert_eq!(shares(&[4], &["0-7", "0-7"]), [vec![4], vec![4]]);
        assert_eq!(shares(&[4, 5], &["0-7"; 3]), [vec![4], vec![5], vec![4]]);
    }

    #[test]
    fn a_rail_without_a_near_cpu_gets_any() {
        assert_eq!(shares(&[1, 2], &["8-15", ""]), [vec![1], vec![2]]);
        assert_eq!(shares(&[9, 1], &["8-15", ""]), [vec![9], vec![1]]);
        assert_eq!(shares(&[9], &["8-15", ""]), [vec![9], vec![9]]);
    }
}
