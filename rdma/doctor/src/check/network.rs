//! Owns the check of a rail's addresses: GIDs, and the IP address that rdma_cm turns into one.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{GidKind, HostDescription, HostRailView, LinkLayer, PortState};

pub(super) fn check_gids(rail: HostRailView<'_>) -> Vec<HostFinding> {
    if rail.port.state != PortState::Active {
        return Vec::new();
    }
    let listed: Vec<String> = rail
        .port
        .gids
        .iter()
        .map(|gid| {
            let kind = match (gid.kind, rail.is_roce()) {
                (GidKind::RoceV2, _) => " (RoCE v2)",
                (GidKind::InfiniBandOrRoceV1, true) => " (RoCE v1)",
                _ => "",
            };
            format!("{} {}{kind}", gid.index, gid.gid)
        })
        .collect();
    let seen = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
    let has =
        |kind: GidKind| rail.port.gids.iter().any(|gid| gid.kind == kind && gid.is_routable());
    if listed.is_empty() {
        let why = "a port without GID can't be addressed";
        let remedy = if rail.is_roce() {
            "ip link set DEVICE up, and give it an address"
        } else {
            "restart the subnet manager; reload the driver"
        };
        return vec![
            HostFinding::new_warning(HostCheckKind::Gid, rail.rail_name(), seen)
                .with_explanation(why, remedy),
        ];
    }
    if rail.is_roce() && has(GidKind::InfiniBandOrRoceV1) && !has(GidKind::RoceV2) {
        let why = "RoCE v1 does not cross routers, and switches can't mark its congestion; peers \
            with v2 can't be reached by it";
        let remedy = "cma_roce_mode -d DEVICE -p PORT -m 2; a NIC that knows v1 only works within \
            one Ethernet segment";
        let remedy = remedy
            .replace("DEVICE", &rail.device.name)
            .replace("PORT", &rail.port.number.to_string());
        return vec![
            HostFinding::new_warning(
                HostCheckKind::Gid,
                rail.rail_name(),
                format!("RoCE v1 only: {seen}"),
            )
            .with_explanation(why, remedy),
        ];
    }
    vec![HostFinding::new_ok(HostCheckKind::Gid, rail.rail_name(), seen)]
}

pub(super) fn check_address(host: &HostDescription, rail: HostRailView<'_>) -> Vec<HostFinding> {
    if rail.port.state != PortState::Active {
        return Vec::new();
    }
    let netdevs = host.netdevs_of(rail);
    let addresses = host.addresses_of(rail);
    if let [netdev] = netdevs[..]
        && !netdev.up
        && !addresses.is_empty()
    {
        let finding = HostFinding::new_warning(
            HostCheckKind::Address,
            rail.rail_name(),
            format!("{} is down", netdev.name),
        );
        return vec![finding.with_explanation(
            "rdma_cm resolves peers through it",
            format!("ip link set {} up", netdev.name),
        )];
    }
    if !addresses.is_empty() {
        let listed = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return vec![HostFinding::new_ok(HostCheckKind::Address, rail.rail_name(), listed)];
    }
    let why =
        "rdma_cm chooses device, GID and P_Key by an IP address: a rail without one is never used";
    let remedy = match netdevs.first() {
        Some(netdev) => {
            format!("ip address add ADDRESS/PREFIX dev {0}; ip link set {0} up", netdev.name)
        }
        None if rail.port.link_layer == LinkLayer::InfiniBand => {
            "modprobe ib_ipoib; ip address add ADDRESS/PREFIX dev ib0; ip link set ib0 up"
                .to_owned()
        }
        None => {
            "its network device is not in this network namespace: use hostNetwork, or move it in"
                .to_owned()
        }
    };
    let on = netdevs.iter().map(|netdev| netdev.name.as_str()).collect::<Vec<_>>().join(", ");
    let seen = if on.is_empty() {
        "no network device, so no IP address".to_owned()
    } else {
        format!("no IP address on {on}")
    };
    vec![
        HostFinding::new_warning(HostCheckKind::Address, rail.rail_name(), seen)
            .with_explanation(why, remedy),
    ]
}
