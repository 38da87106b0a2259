//! Owns what GIDs tell of network devices: addresses that the kernel shows nowhere else.

use std::net::IpAddr;

use super::device::DeviceDescription;
use super::network::NetworkDevice;

/// Adds the addresses that RoCE's GIDs reveal: they are those of their network devices.
pub(super) fn add_gid_addresses(netdevs: &mut [NetworkDevice], devices: &[DeviceDescription]) {
    let gids = devices.iter().flat_map(|device| &device.ports).flat_map(|port| &port.gids);
    for gid in gids {
        let address = gid.gid.to_ipv4_mapped().map_or(IpAddr::V6(gid.gid), IpAddr::V4);
        let Some(netdev) =
            netdevs.iter_mut().find(|netdev| Some(&netdev.name) == gid.netdev.as_ref())
        else {
            continue;
        };
        if !netdev.addresses.contains(&address) {
            netdev.addresses.push(address);
        }
    }
}
