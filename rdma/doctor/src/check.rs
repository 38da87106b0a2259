//! Owns the judgement of a host: pure functions from a description to findings, one file for each
//! group of checks.
//!
//! A host without RDMA device is fine and uses tcp. Checks for RDMA alone run only where there is a
//! device.

mod access;
mod bonding;
mod counters;
mod datagram;
mod device_limit;
mod interrupts;
mod ipoib;
mod memory;
mod mtu;
mod network;
mod numa;
mod pci;
mod port;
mod rail_choice;
mod software;
mod transport;
mod usable_rails;

use verbs3_rdma::settings::{VerbsMode, VerbsSettings};

use super::finding::HostFinding;
use super::host::HostDescription;

pub(super) use mtu::path_mtu;
pub use rail_choice::without_left_out_ports;
pub use usable_rails::usable_rails;

/// Requirements of a configuration's processes on the host. Empty without a configuration.
#[derive(Debug, Clone, Default)]
pub struct HostRequirements {
    /// Setting and bytes: `("worker.memory.capacity", 64 << 30)`.
    pub arenas: Vec<(String, u64)>,
    /// `[verbs]`.
    pub verbs: VerbsSettings,
}

impl HostRequirements {
    /// Returns the largest arena. Worker and gateway are separate processes, each with its own
    /// limits.
    fn largest_arena(&self) -> Option<(&str, u64)> {
        self.arenas
            .iter()
            .max_by_key(|(_, bytes)| *bytes)
            .map(|(setting, bytes)| (setting.as_str(), *bytes))
    }
}

/// Returns every finding, in the order in which a person would look: what exists, why it can't be
/// used, how well it works.
pub fn examine_host(host: &HostDescription, needs: &HostRequirements) -> Vec<HostFinding> {
    let is_off = needs.verbs.mode == VerbsMode::Off;
    let mut choice = rail_choice::check_named_rails(host, &needs.verbs);
    let left = &rail_choice::without_left_out_ports(host, &needs.verbs);
    choice.extend(rail_choice::check_any_left(host, left, &needs.verbs));
    let host = left;
    let datagram = datagram::check_datagram_devices(host);
    let host = &datagram::without_datagram_devices(host);
    let mut findings = vec![match is_off {
        true => transport::describe_tcp(),
        false => transport::check_transport(host, needs, !datagram.is_empty()),
    }];
    let mut ask = |found: Vec<HostFinding>| findings.extend(found);
    ask(datagram);
    if !is_off {
        ask(choice);
        ask(software::check_modules(host));
    }
    if !host.devices.is_empty() && !is_off {
        ask(software::check_libraries(host));
        ask(access::check_access(host));
        for rail in host.all_rails() {
            ask(port::check_port_state(host, rail));
            ask(port::check_data_rate(rail));
            ask(network::check_gids(rail));
            ask(network::check_address(host, rail));
            ask(mtu::check_mtu(host, rail));
            ask(port::check_pkeys(rail));
            ask(counters::check_counters(rail));
        }
        ask(memory::check_memlock(host, needs));
        ask(device_limit::check_device_limits(host, needs));
        ask(pci::check_links(host));
        ask(pci::check_iommu(host));
        ask(numa::check_numa(host));
        ask(interrupts::check_interrupts(host));
        ask(interrupts::check_poll_cpus(host, needs));
        ask(bonding::check_bonds(host));
    }
    ask(ipoib::check_ipoib_devices(host));
    if !is_off {
        ask(memory::huge_pages(host));
    }
    ask(memory::check_memory_limit(host, needs));
    findings
}

/// Formats bytes: `64 GiB`, `1.5 GiB`, `8 MiB`.
pub(super) fn format_bytes(bytes: u64) -> String {
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

/// Formats a count: `1 rail`, `2 rails`.
pub(super) fn format_count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
