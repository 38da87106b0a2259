//! Owns the check of MTUs: what an Ethernet frame leaves for an RDMA packet, and what the device
//! really uses.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{HostDescription, HostRailView, LinkLayer, PortState};

/// The sizes that an RDMA packet can have (`enum ibv_mtu`).
const PATH_MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];
/// Headers of the largest RoCE packet, from `iboe_get_mtu` of `rdma/ib_addr.h`: GRH 40, UDP 8, BTH
/// 12, XRC 4, atomic 28, ICRC 4.
const ROCE_HEADERS: u32 = 96;

/// Returns the largest RDMA packet that fits a frame; `None` if not even the smallest does.
pub(crate) fn path_mtu(netdev_mtu: u32) -> Option<u32> {
    PATH_MTUS.into_iter().find(|size| size + ROCE_HEADERS <= netdev_mtu)
}

pub(super) fn check_mtu(host: &HostDescription, rail: HostRailView<'_>) -> Vec<HostFinding> {
    let port = rail.port;
    if port.state != PortState::Active {
        return Vec::new();
    }
    if port.link_layer == LinkLayer::InfiniBand {
        // The subnet manager sets it, whatever MTU IPoIB has.
        return port.active_mtu.map_or(Vec::new(), |mtu| check_infiniband_mtu(rail, mtu));
    }
    // A bond's slaves have the bond's MTU.
    let Some(netdev) = host.netdevs_of(rail).into_iter().min_by_key(|netdev| netdev.mtu) else {
        return Vec::new();
    };
    let (name, mtu) = (&netdev.name, netdev.mtu);
    if rail.device.iwarp {
        let seen = format!("{name} MTU {mtu}");
        if mtu >= 4200 {
            return vec![HostFinding::new_ok(HostCheckKind::Mtu, rail.rail_name(), seen)];
        }
        return vec![
            HostFinding::new_warning(HostCheckKind::Mtu, rail.rail_name(), seen)
                .with_explanation(SMALL, raise_mtu_remedy(name)),
        ];
    }
    let possible = path_mtu(mtu);
    let active = port.active_mtu.or(possible);
    let seen = match (port.active_mtu, possible) {
        (Some(active), _) => format!("active MTU {active}, {name} MTU {mtu}"),
        (None, Some(possible)) => {
            format!("{name} MTU {mtu}, so RDMA packets carry up to {possible} bytes")
        }
        (None, None) => format!("{name} MTU {mtu}, too small for any RDMA packet"),
    };
    if active < possible {
        let why =
            "the device took less than its network device allows: it was not told of a change";
        let remedy = format!(
            "ip link set {name} down; ip link set {name} up; look at `ibv_devinfo -d {}`",
            rail.device.name
        );
        return vec![
            HostFinding::new_warning(HostCheckKind::Mtu, rail.rail_name(), seen)
                .with_explanation(why, remedy),
        ];
    }
    if active < Some(PATH_MTUS[0]) {
        return vec![
            HostFinding::new_warning(HostCheckKind::Mtu, rail.rail_name(), seen)
                .with_explanation(SMALL, raise_mtu_remedy(name)),
        ];
    }
    vec![HostFinding::new_ok(HostCheckKind::Mtu, rail.rail_name(), seen)]
}

const SMALL: &str =
    "small packets cost CPU, and NICs packet rate: 4,096 bytes a packet is the most";

fn raise_mtu_remedy(netdev: &str) -> String {
    format!(
        "ip link set {netdev} mtu 9000 (4200 is enough), on every host and switch port of the \
        fabric alike"
    )
}

fn check_infiniband_mtu(rail: HostRailView<'_>, mtu: u32) -> Vec<HostFinding> {
    let seen = format!("active MTU {mtu}");
    if mtu >= 2048 {
        return vec![HostFinding::new_ok(HostCheckKind::Mtu, rail.rail_name(), seen)];
    }
    let remedy = "raise it in the subnet manager and on the switches (ibv_devinfo shows max_mtu)";
    vec![
        HostFinding::new_warning(HostCheckKind::Mtu, rail.rail_name(), seen)
            .with_explanation(SMALL, remedy),
    ]
}
