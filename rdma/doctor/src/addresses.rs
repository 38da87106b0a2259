//! This process's IP addresses by network device. procfs lists IPv4 addresses without their devices.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use verbs3_rdma::rails::list_all_interfaces;

/// Addresses by network device.
pub type DeviceAddresses = BTreeMap<String, Vec<IpAddr>>;

/// Lists the addresses of every network device of this process's network namespace.
pub fn list_addresses() -> io::Result<DeviceAddresses> {
    let mut found = DeviceAddresses::new();
    for interface in list_all_interfaces()? {
        found.entry(interface.name).or_default().push(interface.address);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_loopback_device_has_its_address() {
        let found = list_addresses().unwrap();
        assert!(found["lo"].contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{found:?}");
    }
}
