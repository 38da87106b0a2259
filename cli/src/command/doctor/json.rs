//! The report as one JSON document. Its schema is in `docs/networks.md`, and has a number: fields
//! are added, never changed.

use serde_json::{Value, json};
use verbs3_doctor::{
    ConnectOutcome, DeviceDescription, GidKind, HostDescription, HostFinding, HostRailView,
    PeerProbe, usable_rails, worst_severity,
};

use super::DoctorReport;

/// Rises when a field changes its meaning or goes away.
pub(super) const SCHEMA: u32 = 1;

pub(super) fn render_json(report: &DoctorReport) -> String {
    let worst = worst_severity(&report.findings);
    let document = json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": report.host.kernel,
        "page_bytes": report.host.memory.page_bytes,
        "container": report.host.container.is_some(),
        "verdict": worst.as_str(),
        "exit_status": worst.exit_status(),
        "usable_rails": usable_rails(&report.host).iter().map(HostRailView::rail_name).collect::<Vec<_>>(),
        "devices": report.host.devices.iter().map(|device| self::device_json(&report.host, device)).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding_json).collect::<Vec<_>>(),
        "peer": report.peer.as_ref().map(|probe| peer_json(&report.host, probe)),
    });
    format!("{document:#}\n")
}

fn finding_json(finding: &HostFinding) -> Value {
    json!({
        "check": finding.check.as_str(),
        "subject": finding.subject,
        "severity": finding.severity.as_str(),
        "seen": finding.seen,
        "why": finding.why,
        "remedy": finding.remedy,
    })
}

fn device_json(host: &HostDescription, device: &DeviceDescription) -> Value {
    json!({
        "name": device.name,
        "driver": device.driver,
        "firmware": device.firmware,
        "iwarp": device.iwarp,
        "numa_node": device.numa_node,
        "ports": device.ports.iter().map(|port| self::port_json(host, HostRailView { device, port })).collect::<Vec<_>>(),
    })
}

fn port_json(host: &HostDescription, rail: HostRailView<'_>) -> Value {
    let port = rail.port;
    let gid = |gid: &verbs3_doctor::GidTableEntry| {
        let kind = match gid.kind {
            GidKind::RoceV2 => "roce_v2",
            GidKind::InfiniBandOrRoceV1 if rail.is_roce() => "roce_v1",
            GidKind::InfiniBandOrRoceV1 => "infiniband",
            GidKind::Unknown => "unknown",
        };
        json!({ "index": gid.index, "gid": gid.gid.to_string(), "type": kind, "netdev": gid.netdev })
    };
    json!({
        "port": port.number,
        "state": port.state.as_str(),
        "physical_state": port.physical,
        "link_layer": port.link_layer.as_str(),
        "rate_gbits": port.rate.as_ref().map(|rate| rate.gbits),
        "active_mtu": port.active_mtu,
        "gids": port.gids.iter().map(gid).collect::<Vec<_>>(),
        "pkeys": port.pkeys.iter().map(|pkey| format!("{pkey:#06x}")).collect::<Vec<_>>(),
        "netdevs": host.netdevs_of(rail).iter().map(|netdev| json!({ "name": netdev.name, "mtu": netdev.mtu })).collect::<Vec<_>>(),
        "addresses": host.addresses_of(rail).iter().map(ToString::to_string).collect::<Vec<_>>(),
        "counters": port.counters,
    })
}

fn peer_json(host: &HostDescription, probe: &PeerProbe) -> Value {
    let (connected, round_trip, segment) = match &probe.reached {
        ConnectOutcome::Connected { round_trip, segment_bytes } => {
            (true, Some(*round_trip), *segment_bytes)
        }
        ConnectOutcome::Refused { round_trip } => (false, Some(*round_trip), None),
        ConnectOutcome::Failed(_) | ConnectOutcome::NotTried => (false, None, None),
    };
    json!({
        "host": probe.host,
        "port": probe.port,
        "address": probe.address.map(|address| address.ip().to_string()),
        "source": probe.source.as_ref().ok().map(ToString::to_string),
        "device": probe.device,
        "gateway": probe.gateway.map(|gateway| gateway.to_string()),
        "path_mtu": probe.path_mtu,
        "rails": probe.route_rails(host).iter().map(HostRailView::rail_name).collect::<Vec<_>>(),
        "connected": connected,
        "round_trip_us": round_trip.map(|time| time.as_secs_f64() * 1e6),
        "segment_bytes": segment,
    })
}
