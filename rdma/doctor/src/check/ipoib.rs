//! Owns the check of IPoIB, tcp's way over InfiniBand. Its modes have their own MTUs, which
//! surprise people used to Ethernet.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{HostDescription, NetworkDevice};

/// Bytes that a datagram holds beside its IPoIB header, at the 2,048 that subnet managers give
/// partitions by default.
const DATAGRAM_MTU: u32 = 2044;
/// Largest MTU of connected mode (RFC 4755).
const CONNECTED_MTU: u32 = 65_520;

pub(super) fn check_ipoib_devices(host: &HostDescription) -> Vec<HostFinding> {
    host.netdevs.iter().filter(|netdev| netdev.infiniband).map(check_ipoib_device).collect()
}

fn check_ipoib_device(netdev: &NetworkDevice) -> HostFinding {
    let mtu = netdev.mtu;
    let mode = netdev.ipoib_mode.as_deref().unwrap_or("datagram");
    let seen = format!("{mode} mode, MTU {mtu}");
    match mode {
        "connected" if mtu < CONNECTED_MTU => {
            let why = "connected mode takes 65,520: large segments are what it is for";
            let remedy = format!("ip link set {} mtu {CONNECTED_MTU}", netdev.name);
            HostFinding::new_warning(HostCheckKind::Ipoib, &netdev.name, seen)
                .with_explanation(why, remedy)
        }
        "connected" => HostFinding::new_ok(HostCheckKind::Ipoib, &netdev.name, seen),
        _ if mtu < DATAGRAM_MTU => {
            let why = "datagram mode takes 2,044; smaller segments make tcp's fallback slower than \
                it need be";
            let remedy = format!("ip link set {} mtu {DATAGRAM_MTU}", netdev.name);
            HostFinding::new_warning(HostCheckKind::Ipoib, &netdev.name, seen)
                .with_explanation(why, remedy)
        }
        _ => {
            let connected = match netdev.driver.as_deref() {
                Some("mlx5_core") => {
                    "from ConnectX-4 on there is no connected mode (enhanced IPoIB)"
                }
                _ => {
                    "for tcp alone, echo connected > /sys/class/net/DEVICE/mode allows 65,520 \
                    where the driver has it"
                }
            };
            HostFinding::new_ok(HostCheckKind::Ipoib, &netdev.name, seen).with_advice(format!(
                "datagram mode is capped at 2,044 (4,092 where the subnet manager's partition has \
                mtu=5): an MTU of 9000 refused there is expected. RDMA does not go through IPoIB, \
                and is not limited by it; {connected}"
            ))
        }
    }
}
