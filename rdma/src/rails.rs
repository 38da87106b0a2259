//! Owns the choice of rails: it maps the names in a configuration to the addresses that select
//! them.
//!
//! The caller's probe says to which device an address belongs (rdma_cm knows). Opens no device.

mod interfaces;
mod subnet;

use std::net::IpAddr;

pub use interfaces::{NetworkInterface, list_all_interfaces, list_interfaces};
pub use subnet::RailSubnet;

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

/// Returns the rail of each port for which `probe` knows an address, in the order of the
/// interfaces. There may be none.
pub fn detect_rails(
    interfaces: &[NetworkInterface],
    probe: impl Fn(IpAddr) -> Option<RailPort>,
) -> Vec<String> {
    let mut ports: Vec<RailPort> = Vec::new();
    for (_, port) in usable_ports(interfaces, probe) {
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports.into_iter().map(|RailPort { device, port }| format!("{device}:{port}")).collect()
}

/// Returns the address of each rail of `names`, in their order, or why it has none now.
pub fn resolve_rails(
    names: &[String],
    interfaces: &[NetworkInterface],
    probe: impl Fn(IpAddr) -> Option<RailPort>,
) -> Vec<Result<IpAddr, RailError>> {
    let known = usable_ports(interfaces, probe);
    let mut chosen: Vec<(&str, &RailPort)> = Vec::new();
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let rail = || name.clone();
        found.push(match known.iter().find(|(interface, port)| is_named(name, interface, port)) {
            Some((interface, port)) => match chosen.iter().find(|(_, other)| *other == port) {
                Some((first, _)) => {
                    Err(RailError::Twice { first: (*first).to_owned(), second: rail() })
                }
                None => {
                    chosen.push((name, port));
                    Ok(interface.address)
                }
            },
            None if interfaces.iter().any(|i| i.name == *name || name.parse() == Ok(i.address)) => {
                Err(RailError::NoRdma { rail: rail() })
            }
            None => Err(RailError::Absent { rail: rail() }),
        });
    }
    found
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

fn is_named(name: &str, interface: &NetworkInterface, port: &RailPort) -> bool {
    let with_port =
        name.split_once(':').and_then(|(device, port)| Some((device, port.parse::<u8>().ok()?)));
    name == interface.name
        || name == port.device
        || with_port == Some((port.device.as_str(), port.port))
        || name.parse() == Ok(interface.address)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn host() -> Vec<NetworkInterface> {
        let interface = |name: &str, address: &str| NetworkInterface {
            is_up: true,
            name: name.into(),
            address: address.parse().unwrap(),
            prefix: 24,
        };
        vec![
            interface("lo", "127.0.0.1"),
            interface("eth0", "192.168.0.7"),
            interface("ib0", "fe80::1"),
            interface("ib0", "fd00::1"),
            interface("ib0", "10.0.0.7"),
            interface("ib1", "10.1.0.7"),
            interface("ib1", "10.1.0.8"),
        ]
    }

    /// As rdma_cm: anything goes for loopback.
    fn probe(address: IpAddr) -> Option<RailPort> {
        let port = |device: &str, port| Some(RailPort { device: device.into(), port });
        match address.to_string().as_str() {
            "127.0.0.1" | "fe80::1" | "fd00::1" | "10.0.0.7" => port("mlx5_0", 1),
            "10.1.0.7" | "10.1.0.8" => port("mlx5_0", 2),
            _ => None,
        }
    }

    fn rails(names: &[&str]) -> Vec<Result<String, RailError>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let found = resolve_rails(&names, &host(), probe).into_iter();
        found.map(|found| found.map(|address| address.to_string())).collect()
    }

    fn found(names: &[&str]) -> Vec<String> {
        rails(names).into_iter().map(Result::unwrap).collect()
    }

    #[test]
    fn auto_takes_each_port_once_and_no_loopback() {
        let ports = detect_rails(&host(), probe);
        assert_eq!(ports, ["mlx5_0:1", "mlx5_0:2"]);
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        assert_eq!(found(&ports), ["10.0.0.7", "10.1.0.7"]);
        assert!(detect_rails(&host(), |_| None).is_empty());
    }

    #[test]
    fn rails_are_found_by_device_port_interface_or_address_in_order() {
        assert_eq!(found(&["mlx5_0:2", "mlx5_0:1"]), ["10.1.0.7", "10.0.0.7"]);
        assert_eq!(found(&["mlx5_0"]), ["10.0.0.7"]);
        assert_eq!(found(&["ib1", "ib0"]), ["10.1.0.7", "10.0.0.7"]);
        assert_eq!(found(&["10.1.0.8", "fd00::1"]), ["10.1.0.8", "fd00::1"]);
    }

    #[test]
    fn an_absent_or_repeated_rail_says_so_and_moves_no_other() {
        for absent in ["mlx5_9", "mlx5_0:3"] {
            let rails = rails(&[absent, "ib1"]);
            assert!(matches!(rails[0], Err(RailError::Absent { .. })));
            assert_eq!(rails[1].as_deref(), Ok("10.1.0.7"));
        }
        assert!(matches!(rails(&["192.168.0.7"])[0], Err(RailError::NoRdma { .. })));
        assert!(matches!(rails(&["eth0"])[0], Err(RailError::NoRdma { .. })));
        let twice = rails(&["ib0", "mlx5_0:1"]);
        assert_eq!(twice[0].as_deref(), Ok("10.0.0.7"));
        assert!(matches!(twice[1], Err(RailError::Twice { .. })));
    }

    #[test]
    fn this_host_has_a_loopback_interface() {
        let found = list_interfaces().unwrap();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let own = found.iter().find(|interface| interface.address == loopback);
        assert_eq!(own.map(|interface| interface.prefix), Some(8), "{found:?}");
    }
}
