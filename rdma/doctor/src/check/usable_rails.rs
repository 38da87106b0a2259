//! Owns the question which rails of a host can carry a connection. Several checks ask it.

use crate::host::{DeviceFileAccess, HostDescription, HostRailView, PortState};

/// Returns the rails that can carry a connection: port active, device file open, known to
/// libibverbs, with an address, and of a device that makes connections.
pub fn usable_rails(host: &HostDescription) -> Vec<HostRailView<'_>> {
    let usable = |rail: &HostRailView<'_>| {
        let listed =
            !matches!(&host.listed, Some(Ok(listed)) if !listed.contains(&rail.device.name));
        let open = rail.device.access == DeviceFileAccess::Open;
        listed
            && open
            && !rail.device.datagram_only
            && rail.port.state == PortState::Active
            && !host.addresses_of(*rail).is_empty()
    };
    host.all_rails().filter(usable).collect()
}
