//! Checks of `[gateway]`.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;

use super::check_device;
use crate::cluster::ClusterSettings;
use crate::process_role::ProcessRole;
use verbs3_client::TierSettings;
use verbs3_gateway::{
    GatewayLendingSettings, GatewayLimitsSettings, GatewayReadSettings, GatewaySettings,
    GatewayTlsSettings,
};
use verbs3_rdma::settings::PeerSettings;
use verbs3_settings::{CheckFindings, MemorySettings, TimePeriod};

pub(super) fn check_gateway(
    gateway: &GatewaySettings,
    cluster: &ClusterSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let GatewaySettings {
        listen,
        bind_device,
        admin_listen,
        admin_bind_device,
        handover_socket,
        probe_socket,
        domains,
        own_hosts,
        identities,
        memory,
        tls,
        limits,
        read,
        tier,
        peers,
        lending,
        ..
    } = gateway;
    if listen == admin_listen && listen.port() != 0 {
        findings.add_error(
            "gateway.admin_listen",
            format!("{admin_listen} is gateway.listen too; give it another port"),
        );
    }
    check_device("gateway.bind_device", bind_device.as_deref(), findings);
    check_device("gateway.admin_bind_device", admin_bind_device.as_deref(), findings);
    check_socket("gateway.handover_socket", handover_socket.as_deref(), findings);
    check_socket("gateway.probe_socket", probe_socket.as_deref(), findings);
    let sockets = [&lending.socket, handover_socket, probe_socket];
    for (index, (socket, setting)) in sockets.iter().zip(SOCKETS).enumerate() {
        if socket.is_some() && sockets[..index].contains(socket) {
            findings
                .add_error(setting, "is another of this gateway's sockets; choose another path");
        }
    }
    for (index, domain) in domains.iter().enumerate() {
        if !is_host_name(domain) {
            let path = format!("gateway.domains[{index}]");
            findings.add_error(path, format!("{domain:?} is not a host name"));
        }
    }
    for (index, host) in own_hosts.iter().enumerate() {
        // Of version 6, an address has brackets in a Host header.
        let is_address = host.parse::<SocketAddr>().is_ok()
            || host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'))
                .is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
        if !is_host_name(host) && !is_address {
            let path = format!("gateway.own_hosts[{index}]");
            findings.add_error(path, format!("{host:?} is neither a host name nor an address"));
        }
    }
    if identities.is_none() && roles.contains(&ProcessRole::Gateway) {
        findings.add_error(
            "gateway.identities",
            "is missing; it names the file of access keys and what they may do",
        );
    }
    check_tls(tls, findings);
    check_limits(limits, findings);
    check_read(read, findings);
    // Where worker and gateway share a process, replies need no memory of the gateway.
    if roles.contains(&ProcessRole::Gateway) {
        check_arena(memory, read, tier, findings);
    }
    check_tier(tier, cluster, findings);
    check_peers(peers, findings);
    check_lending(lending, findings);
}

/// Settings of a gateway that name the file of a socket.
const SOCKETS: [&str; 3] =
    ["gateway.lending.socket", "gateway.handover_socket", "gateway.probe_socket"];

/// Longest path of a socket, with what its file is called until it is whole (`sun_path`, unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 96;

fn check_lending(lending: &GatewayLendingSettings, findings: &mut CheckFindings) {
    let GatewayLendingSettings { socket, memory_max, memory_total, .. } = lending;
    if memory_max.0 > memory_total.0 {
        findings.add_error(
            "gateway.lending.memory_max",
            format!("{memory_max} is more than gateway.lending.memory_total, {memory_total}"),
        );
    }
    check_socket("gateway.lending.socket", socket.as_deref(), findings);
}

fn check_socket(setting: &str, socket: Option<&Path>, findings: &mut CheckFindings) {
    let Some(socket) = socket else { return };
    let bytes = socket.as_os_str().len();
    if !socket.is_absolute() || socket.to_str().is_none() || bytes > SOCKET_PATH_BYTES_MAX {
        findings.add_error(
            setting,
            format!("has to be an absolute path of at most {SOCKET_PATH_BYTES_MAX} bytes of text"),
        );
    }
}

fn check_peers(peers: &PeerSettings, findings: &mut CheckFindings) {
    let PeerSettings { pause_min, pause_max, .. } = peers;
    if pause_min > pause_max {
        findings.add_error(
            "gateway.peers.pause_min",
            format!("{pause_min} is more than pause_max ({pause_max})"),
        );
    }
}

fn check_tls(tls: &GatewayTlsSettings, findings: &mut CheckFindings) {
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => {
            findings.add_error("gateway.tls.key", "is missing; a certificate needs its key")
        }
        (None, Some(_)) => {
            findings.add_error("gateway.tls.certificate", "is missing; a key needs its certificate")
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

fn check_limits(limits: &GatewayLimitsSettings, findings: &mut CheckFindings) {
    let GatewayLimitsSettings { bodies_max, xml_max, form_max, forms_max, .. } = limits;
    let at = |field: &str| format!("gateway.limits.{field}");
    if bodies_max.0 / 2 < xml_max.0 {
        let why = format!(
            "{bodies_max} is less than twice xml_max ({xml_max}): such a document would not fit"
        );
        findings.add_error(at("bodies_max"), why);
    }
    if forms_max < form_max {
        findings.add_error(
            at("forms_max"),
            format!("{forms_max} is less than form_max ({form_max}): not even one would fit"),
        );
    }
}

fn check_read(read: &GatewayReadSettings, findings: &mut CheckFindings) {
    let GatewayReadSettings { window, bytes_in_flight_max, .. } = read;
    let at = |field: &str| format!("gateway.read.{field}");
    if let Some(bytes) = bytes_in_flight_max.filter(|bytes| window > bytes) {
        findings.add_error(
            at("window"),
            format!(
                "{window} is more than bytes_in_flight_max ({bytes}): no large read could start"
            ),
        );
    }
}

/// What is admitted must fit, or requests would be refused for memory before any bound is reached.
fn check_arena(
    memory: &MemorySettings,
    read: &GatewayReadSettings,
    tier: &TierSettings,
    findings: &mut CheckFindings,
) {
    let capacity = memory.capacity;
    if let Some(bytes) = read.bytes_in_flight_max.filter(|bytes| *bytes > capacity) {
        findings.add_error("gateway.memory.capacity", format!(
            "{capacity} is too small for gateway.read.bytes_in_flight_max ({bytes}); raise the one or lower the other"
        ));
    }
    for (name, bytes) in [("read.window", read.window), ("tier.open_landing", tier.open_landing)] {
        if bytes > capacity {
            findings.add_error(
                "gateway.memory.capacity",
                format!("{capacity} is too small for one gateway.{name} ({bytes})"),
            );
        }
    }
}

fn check_tier(tier: &TierSettings, cluster: &ClusterSettings, findings: &mut CheckFindings) {
    let TierSettings {
        open_landing,
        first_progress,
        hedge_after,
        announce_deadline,
        relay_after,
        relays_max,
        rest_min,
        rest_max,
        ..
    } = tier;
    let at = |field: &str| format!("gateway.tier.{field}");
    if *open_landing < cluster.page {
        findings.add_error(
            at("open_landing"),
            format!("{open_landing} is less than one page (cluster.page is {})", cluster.page),
        );
    } else if *open_landing > cluster.block {
        findings.add_error(
            at("open_landing"),
            format!("{open_landing} is more than one block (cluster.block is {})", cluster.block),
        );
    }
    if hedge_after >= first_progress {
        findings.add_error(
            at("hedge_after"),
            format!(
                "{hedge_after} is not shorter than first_progress ({first_progress}): no hedge \
                would ever be sent"
            ),
        );
    }
    // Without coordinators nobody relays.
    if *relays_max > 0 && relay_after >= announce_deadline && !cluster.coordinators.is_empty() {
        findings.add_error(
            at("relay_after"),
            format!(
                "{relay_after} is not shorter than announce_deadline ({announce_deadline}): no \
                announcement would ever be relayed"
            ),
        );
    }
    if rest_min > rest_max {
        findings
            .add_error(at("rest_min"), format!("{rest_min} is more than rest_max ({rest_max})"));
    }
}

/// A home that has died is in the map until its lease is over. `lease`: of the coordinators, as far
/// as this file says it.
pub(super) fn check_announcements(
    tier: &TierSettings,
    cluster: &ClusterSettings,
    lease: TimePeriod,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let is_late = tier.announce_deadline <= lease;
    if is_late && !cluster.coordinators.is_empty() && roles.contains(&ProcessRole::Gateway) {
        findings.add_warning(
            "gateway.tier.announce_deadline",
            format!(
                "{} is not longer than coordinator.lease ({lease}, as this file has it): writes \
                whose home has died get 503",
                tier.announce_deadline
            ),
        );
    }
}

/// Returns whether this is a host name or an IPv4 address, with or without a port.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    host.split('.').all(is_label)
}
