//! The report as one JSON document. Its schema is in `docs/networks.md`, and has a number: fields
//! are added, never changed.

use serde_json::{Value, json};
use verbs3_rdma::doctor::{
    Device, Finding, GidKind, Host, PeerProbe, Rail, Reached, usable_rails, verdict,
};

use super::Report;

/// Rises when a field changes its meaning or goes away.
const SCHEMA: u32 = 1;

pub(super) fn render(report: &Report) -> String {
    let worst = verdict(&report.findings);
    let document = json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": report.host.kernel,
        "container": report.host.container.is_some(),
        "verdict": worst.name(),
        "exit_status": worst.exit_status(),
        "usable_rails": usable_rails(&report.host).iter().map(Rail::name).collect::<Vec<_>>(),
        "devices": report.host.devices.iter().map(|device| self::device(&report.host, device)).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "peer": report.peer.as_ref().map(|probe| peer(&report.host, probe)),
    });
    format!("{document:#}\n")
}

fn finding(finding: &Finding) -> Value {
    json!({
        "check": finding.check.name(),
        "subject": finding.subject,
        "severity": finding.severity.name(),
        "seen": finding.seen,
        "why": finding.why,
        "remedy": finding.remedy,
    })
}

fn device(host: &Host, device: &Device) -> Value {
    json!({
        "name": device.name,
        "driver": device.driver,
        "firmware": device.firmware,
        "iwarp": device.iwarp,
        "numa_node": device.numa_node,
        "ports": device.ports.iter().map(|port| self::port(host, Rail { device, port })).collect::<Vec<_>>(),
    })
}

fn port(host: &Host, rail: Rail<'_>) -> Value {
    let port = rail.port;
    let gid = |gid: &verbs3_rdma::doctor::Gid| {
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
        "state": port.state.name(),
        "physical_state": port.physical,
        "link_layer": port.link_layer.name(),
        "rate_gbits": port.rate.as_ref().map(|rate| rate.gbits),
        "active_mtu": port.active_mtu,
        "gids": port.gids.iter().map(gid).collect::<Vec<_>>(),
        "pkeys": port.pkeys.iter().map(|pkey| format!("{pkey:#06x}")).collect::<Vec<_>>(),
        "netdevs": host.netdevs_of(rail).iter().map(|netdev| json!({ "name": netdev.name, "mtu": netdev.mtu })).collect::<Vec<_>>(),
        "addresses": host.addresses_of(rail).iter().map(ToString::to_string).collect::<Vec<_>>(),
        "counters": port.counters,
    })
}

fn peer(host: &Host, probe: &PeerProbe) -> Value {
    let (connected, round_trip, segment) = match &probe.reached {
        Reached::Connected { round_trip, segment_bytes } => {
            (true, Some(*round_trip), *segment_bytes)
        }
        Reached::Refused { round_trip } => (false, Some(*round_trip), None),
        Reached::Failed(_) | Reached::NotTried => (false, None, None),
    };
    json!({
        "host": probe.host,
        "port": probe.port,
        "address": probe.address.map(|address| address.ip().to_string()),
        "source": probe.source.as_ref().ok().map(ToString::to_string),
        "device": probe.device,
        "gateway": probe.gateway.map(|gateway| gateway.to_string()),
        "path_mtu": probe.path_mtu,
        "rails": probe.rails(host).iter().map(Rail::name).collect::<Vec<_>>(),
        "connected": connected,
        "round_trip_us": round_trip.map(|time| time.as_secs_f64() * 1e6),
        "segment_bytes": segment,
    })
}
