//! Owns the check of bonds. With RoCE LAG, the NIC presents both ports as one RDMA device on the
//! bond. Otherwise the bond's addresses lead nowhere. InfiniBand has no LAG: a bond of IPoIB devices
//! is for tcp.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{BondDescription, HostDescription, NetworkDevice};

/// The bonding modes that RoCE LAG supports.
const LAG_MODES: [&str; 3] = ["active-backup", "balance-xor", "802.3ad"];

pub(super) fn check_bonds(host: &HostDescription) -> Vec<HostFinding> {
    host.netdevs
        .iter()
        .filter_map(|netdev| {
            let bond = netdev.bond.as_ref()?;
            let mut found = match is_ipoib(host, netdev, bond) {
                true => vec![check_ipoib_bond(netdev, bond)],
                false => check_bond(host, netdev, bond),
            };
            if !found.is_empty() {
                found.extend(check_slaves(host, netdev, bond));
            }
            Some(found)
        })
        .flatten()
        .collect()
}

fn check_bond(
    host: &HostDescription,
    netdev: &NetworkDevice,
    bond: &BondDescription,
) -> Vec<HostFinding> {
    let rails: Vec<_> = host.all_rails().collect();
    let on = |name: &str| {
        rails
            .iter()
            .filter(|rail| rail.port.netdevs.iter().any(|at| at == name))
            .map(|rail| rail.rail_name())
            .collect::<Vec<_>>()
    };
    let of_bond = on(&netdev.name);
    let of_slaves: Vec<_> = bond
        .slaves
        .iter()
        .flat_map(|slave| on(slave))
        .filter(|name| !of_bond.contains(name))
        .collect();
    // A bond of plain Ethernet ports does not concern RDMA.
    if of_bond.is_empty() && of_slaves.is_empty() {
        return Vec::new();
    }
    let slaves = bond.slaves.join(", ");
    let subject = &netdev.name;
    let mut found = Vec::new();
    if !LAG_MODES.contains(&bond.mode.as_str()) {
        let why = "RoCE LAG knows active-backup, balance-xor and 802.3ad; in other modes the ports \
            stay apart, without the bond's addresses";
        let remedy = format!(
            "ip link set {subject} down; ip link set {subject} type bond mode 802.3ad \
            xmit_hash_policy layer3+4; ip link set {subject} up"
        );
        found.push(
            HostFinding::new_warning(
                HostCheckKind::Bonding,
                subject,
                format!("mode {} of {slaves}", bond.mode),
            )
            .with_explanation(why, remedy),
        );
    } else if of_bond.is_empty() {
        let seen = format!(
            "mode {}; no RDMA device on it, but {} on its slaves {slaves}",
            bond.mode,
            of_slaves.join(", ")
        );
        let why = "addresses are on the bond: rdma_cm finds no device by them, and each port alone \
            has none";
        let remedy = "bond the two ports of one NIC (RoCE LAG), and turn it on: devlink dev param \
            show, mlxconfig LAG_RESOURCE_ALLOCATION; or take the ports out of the bond and give \
            each an address: two rails";
        found.push(
            HostFinding::new_warning(HostCheckKind::Bonding, subject, seen)
                .with_explanation(why, remedy),
        );
    } else {
        let policy = bond
            .hash_policy
            .as_deref()
            .map(|policy| format!(", hash {policy}"))
            .unwrap_or_default();
        let seen = format!(
            "RoCE LAG: {} on {slaves}, mode {}{policy}: one rail",
            of_bond.join(", "),
            bond.mode
        );
        found.push(HostFinding::new_ok(HostCheckKind::Bonding, subject, seen));
    }
    found
}

fn is_ipoib(host: &HostDescription, netdev: &NetworkDevice, bond: &BondDescription) -> bool {
    let mut slaves = bond.slaves.iter().filter_map(|name| host.find_netdev(name));
    netdev.infiniband || slaves.any(|slave| slave.infiniband)
}

fn check_ipoib_bond(netdev: &NetworkDevice, bond: &BondDescription) -> HostFinding {
    let (subject, slaves) = (&netdev.name, bond.slaves.join(", "));
    let seen = format!("IPoIB: mode {} of {slaves}", bond.mode);
    if bond.mode != "active-backup" {
        let why = "a bond of IPoIB devices works in mode active-backup alone";
        let remedy = format!(
            "ip link set {subject} down; ip link set {subject} type bond mode active-backup \
            fail_over_mac active; ip link set {subject} up"
        );
        return HostFinding::new_warning(HostCheckKind::Bonding, subject, seen)
            .with_explanation(why, remedy);
    }
    HostFinding::new_ok(HostCheckKind::Bonding, subject, seen).with_advice(
        "it is for tcp (tcp.bind_device); for RDMA take the ports out of it, and give each an \
        address: two rails",
    )
}

/// Checks the slaves of a bond that concerns RDMA.
fn check_slaves(
    host: &HostDescription,
    netdev: &NetworkDevice,
    bond: &BondDescription,
) -> Vec<HostFinding> {
    let is_down = |slave: &&NetworkDevice| slave.mii_status.as_deref() == Some("down");
    let slaves = bond.slaves.iter().filter_map(|name| host.find_netdev(name));
    let warn_of = |slave: &NetworkDevice| {
        let why = "the bond goes on with the rest, at a part of its speed, and without a spare";
        let remedy = format!(
            "ip link set {0} up; cable, transceiver, switch port (ethtool {0})",
            slave.name
        );
        let seen = format!("its slave {} is down", slave.name);
        HostFinding::new_warning(HostCheckKind::Bonding, &netdev.name, seen)
            .with_explanation(why, remedy)
    };
    slaves.filter(is_down).map(warn_of).collect()
}
