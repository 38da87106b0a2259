//! Judges a host: pure functions from a description to findings, one file for each group of
//! questions.
//!
//! A host without RDMA device is fine and uses tcp; what RDMA alone needs is asked only where there
//! is a device.

mod access;
mod bonding;
mod counters;
mod ipoib;
mod memory;
mod mtu;
mod network;
mod numa;
mod port;
mod software;
mod transport;

use super::finding::Finding;
use super::host::Host;

pub(super) use mtu::path_mtu;
pub use transport::usable_rails;

/// What the processes of a configuration want of the host. Empty without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Setting and bytes: `("worker.memory.capacity", 64 << 30)`.
    pub arenas: Vec<(String, u64)>,
}

impl Needs {
    /// The largest arena: worker and gateway are processes of their own, each with limits of its
    /// own.
    fn largest(&self) -> Option<(&str, u64)> {
        self.arenas
            .iter()
            .max_by_key(|(_, bytes)| *bytes)
            .map(|(setting, bytes)| (setting.as_str(), *bytes))
    }
}

/// Every finding, in the order in which one would look: what there is, why it can't be used, how
/// well it works.
pub fn examine(host: &Host, needs: &Needs) -> Vec<Finding> {
    let mut findings = vec![transport::check(host, needs)];
    let mut ask = |found: Vec<Finding>| findings.extend(found);
    ask(software::modules(host));
    if !host.devices.is_empty() {
        ask(software::libraries(host));
        ask(access::check(host));
        for rail in host.rails() {
            ask(port::state(host, rail));
            ask(port::rate(rail));
            ask(network::gids(rail));
            ask(network::address(host, rail));
            ask(mtu::check(host, rail));
            ask(port::pkeys(rail));
            ask(counters::check(rail));
        }
        ask(memory::memlock(host, needs));
        ask(numa::check(host));
        ask(bonding::check(host));
    }
    ask(ipoib::check(host));
    ask(memory::huge_pages(host));
    ask(memory::limit(host, needs));
    findings
}

/// `64 GiB`, `1.5 GiB`, `8 MiB`
pub(super) fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    let tenths = (bytes * 10) >> shift;
    if tenths.is_multiple_of(10) {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// `1 rail`, `2 rails`
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
