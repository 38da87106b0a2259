//! Owns the verdict on devices that make no reliable connections: EFA and usNIC. They are no rails,
//! and tcp serves their hosts. That is no fault, so nothing else is asked of them.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::HostDescription;

pub(super) fn check_datagram_devices(host: &HostDescription) -> Vec<HostFinding> {
    let devices = host.devices.iter().filter(|device| device.datagram_only);
    devices
        .map(|device| {
            let driver = device.driver.as_deref().unwrap_or("unknown");
            let seen = format!(
                "no reliable connections (driver {driver}), which verbs3 needs: it is no rail, and \
                tcp is used in its place"
            );
            HostFinding::new_ok(HostCheckKind::Transport, &device.name, seen).with_advice(
                "where the network bounds each connection, raise gateway.peers.connections_max \
                (docs/fabric/clouds.md)",
            )
        })
        .collect()
}

/// Returns the host as the other checks see it.
pub(super) fn without_datagram_devices(host: &HostDescription) -> HostDescription {
    let mut host = host.clone();
    host.devices.retain(|device| !device.datagram_only);
    host
}
