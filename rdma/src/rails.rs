//! Owns the choice of rails: it maps the names in a configuration to the addresses that select
//! them.
//!
//! The caller's probe says to which device an address belongs (rdma_cm knows). Opens no device.

mod interfaces;
mod rail_rules;
mod subnet;

use std::net::IpAddr;

pub use interfaces::{NetworkInterface, list_all_interfaces, list_interfaces};
pub use rail_rules::{ChosenRail, RailRules};
pub use subnet::{RailSubnet, SubnetNotationError};

/// Returns the subnet of an address of this host; `None` where no network device has it.
pub fn subnet_of(address: IpAddr) -> Option<RailSubnet> {
    let interfaces = list_interfaces().ok()?;
    let found = interfaces.iter().find(|interface| interface.address == address)?;
    Some(RailSubnet::new(address, found.prefix))
}

/// A port of an RDMA device, found by one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailPort {
    pub device: String,
    pub port: u8,
}

/// Reason why a rail of the configuration is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RailError {
    #[error(
        "rail {rail} is no RDMA device or network device of this host that is up and has an IP \
        address; `verbs3 doctor` lists what there is"
    )]
    Absent { rail: String },
    #[error(
        "rail {rail} is a network device without RDMA; `verbs3 doctor` lists those that have it"
    )]
    NoRdma { rail: String },
    #[error("rails {first} and {second} are the same port of one NIC; list it once")]
    Twice { first: String, second: String },
}

/// Returns addresses that belong to a port, IPv4 first: RoCE v2 over IPv4 works where IPv6 is half
/// set up.
fn usable_ports(
    interfaces: &[NetworkInterface],
    probe: impl Fn(IpAddr) -> Option<RailPort>,
) -> Vec<(&NetworkInterface, RailPort)> {
    // Loopback belongs to any device, as rdma_cm likes. A link-local address means nothing to
    // another host.
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let mut known: Vec<(&NetworkInterface, RailPort)> = interfaces
        .iter()
        .filter(|interface| usable(&interface.address))
        .filter_map(|interface| Some((interface, probe(interface.address)?)))
        .collect();
    known.sort_by_key(|(interface, _)| interface.address.is_ipv6());
    known
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_host_has_a_loopback_interface() {
        let found = list_interfaces().unwrap();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let own = found.iter().find(|interface| interface.address == loopback);
        assert_eq!(own.map(|interface| interface.prefix), Some(8), "{found:?}");
    }
}
