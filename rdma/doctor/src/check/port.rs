//! Owns the checks of ports: whether they are up, at the speed that they were bought for, in a
//! partition.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{DeviceKind, HostDescription, HostRailView, LinkLayer, PortState};

pub(super) fn check_port_state(host: &HostDescription, rail: HostRailView<'_>) -> Vec<HostFinding> {
    let port = rail.port;
    let netdevs: Vec<_> =
        host.netdevs_of(rail).into_iter().map(|netdev| netdev.name.as_str()).collect();
    let on = if netdevs.is_empty() { String::new() } else { format!(", {}", netdevs.join(", ")) };
    let seen =
        format!("{}, physical {}, {}{on}", port.state.as_str(), port.physical, describe_link(rail));
    let why = "a rail that is not active carries nothing; its share goes to the others, or to tcp";
    let netdev = netdevs.first().copied().unwrap_or("DEVICE");
    let remedy = match port.state {
        PortState::Active => {
            return vec![HostFinding::new_ok(HostCheckKind::Port, rail.rail_name(), seen)];
        }
        PortState::Init | PortState::Armed => {
            "the link is up and no subnet manager has configured it: start one (systemctl start \
            opensm, or the switch's)"
                .to_owned()
        }
        PortState::Down | PortState::Unknown => match (port.link_layer, port.physical.as_str()) {
            (LinkLayer::InfiniBand, "Disabled") => {
                format!("ibportstate -C {} -D 0 {} enable", rail.device.name, port.number)
            }
            (LinkLayer::InfiniBand, _) => "check cable, transceiver and switch port (ibstat, \
                iblinkinfo)"
                .to_owned(),
            _ => format!(
                "ip link set {netdev} up; if it stays down: cable, transceiver, switch \
                port (ethtool {netdev})"
            ),
        },
    };
    vec![
        HostFinding::new_warning(HostCheckKind::Port, rail.rail_name(), seen)
            .with_explanation(why, remedy),
    ]
}

fn describe_link(rail: HostRailView<'_>) -> String {
    let what = match (rail.port.link_layer, rail.device.iwarp) {
        (LinkLayer::InfiniBand, _) => "InfiniBand",
        (_, true) => "iWARP on Ethernet",
        (LinkLayer::Ethernet, _) => "RoCE on Ethernet",
        (LinkLayer::Unknown, _) => "unknown link layer",
    };
    match rail.device.kind {
        DeviceKind::Software => format!("{what}, in software"),
        DeviceKind::Hardware => what.to_owned(),
    }
}

/// InfiniBand speeds that are no longer sold: a port at such a speed was negotiated down by a bad
/// cable.
const SLOW_SPEEDS: [&str; 2] = ["SDR", "DDR"];

pub(super) fn check_data_rate(rail: HostRailView<'_>) -> Vec<HostFinding> {
    let Some(rate) = &rail.port.rate else { return Vec::new() };
    if rail.port.state != PortState::Active {
        return Vec::new();
    }
    let seen = format!("{} Gb/s ({} × {})", rate.gbits, rate.width, rate.speed);
    if rail.device.kind == DeviceKind::Software {
        return vec![
            HostFinding::new_ok(HostCheckKind::Rate, rail.rail_name(), seen)
                .with_advice("nominal: the speed is that of the CPU"),
        ];
    }
    // Ethernet names its lanes like InfiniBand, but 25 Gb/s on one lane is what was bought.
    let slow = rate.width == 1 || SLOW_SPEEDS.contains(&rate.speed.as_str());
    if rail.port.link_layer != LinkLayer::InfiniBand || !slow {
        return vec![HostFinding::new_ok(HostCheckKind::Rate, rail.rail_name(), seen)];
    }
    let why = "InfiniBand links have four lanes (two on a split cable) and FDR or faster; this one \
        has negotiated down";
    let remedy = "iblinkinfo names both ends; reseat or replace cable and transceiver, then \
        ibportstate … reset";
    vec![
        HostFinding::new_warning(HostCheckKind::Rate, rail.rail_name(), seen)
            .with_explanation(why, remedy),
    ]
}

/// Bit 15 of a P_Key (IBTA 10.9.1.1): full membership. Two limited members can't talk to each
/// other.
const FULL_MEMBER: u16 = 0x8000;

pub(super) fn check_pkeys(rail: HostRailView<'_>) -> Vec<HostFinding> {
    let port = rail.port;
    // Other link layers have one P_Key, which means nothing.
    if port.link_layer != LinkLayer::InfiniBand || port.state != PortState::Active {
        return Vec::new();
    }
    let seen = port.pkeys.iter().map(|pkey| format!("{pkey:#06x}")).collect::<Vec<_>>().join(", ");
    if port.pkeys.iter().any(|pkey| pkey & FULL_MEMBER != 0) {
        return vec![HostFinding::new_ok(HostCheckKind::Pkey, rail.rail_name(), seen)];
    }
    let why = "limited members of a partition reach its full members only: gateways and workers \
        would not reach each other";
    let remedy = "make the port's GUID a full member in the subnet manager's partitions.conf \
        (GUID=full), then restart it";
    let seen = if seen.is_empty() {
        "no P_Key".to_owned()
    } else {
        format!("limited membership only: {seen}")
    };
    vec![
        HostFinding::new_warning(HostCheckKind::Pkey, rail.rail_name(), seen)
            .with_explanation(why, remedy),
    ]
}
