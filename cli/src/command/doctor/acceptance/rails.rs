//! The rails that an acceptance run measures, and what each one's wire can carry.

use std::net::IpAddr;

use verbs3_doctor::{
    DeviceKind, FindingSeverity, HostCheckKind, HostDescription, HostFinding, HostRailView,
    usable_rails,
};
use verbs3_rdma::verbs::RailIdentity;

use super::step::StepReason;

/// Bytes around the data of each packet: of InfiniBand, and of RoCE v2 over IPv4 with preamble and
/// gap (docs/fabric/measuring.md).
const INFINIBAND_BYTES: f64 = 26.0;
const ROCE_BYTES: f64 = 82.0;

/// One rail of this host.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptanceRail {
    pub identity: RailIdentity,
    /// Gb/s of data that the port's rate leaves; `None`: unknown, or software.
    pub wire_gbits: Option<f64>,
}

/// Rails to measure, or why there is none.
pub struct AcceptanceRails {
    pub rails: Vec<AcceptanceRail>,
    /// Why there is none, where there is none.
    pub none: StepReason,
}

impl AcceptanceRails {
    /// Takes the rails that have `addresses`, or else every rail of this host that is usable.
    pub fn find_rails(
        host: &HostDescription,
        findings: &[HostFinding],
        addresses: &[IpAddr],
    ) -> Result<Self, String> {
        let rails = if addresses.is_empty() {
            let usable = usable_rails(host);
            usable.into_iter().filter_map(|rail| describe_rail(host, rail)).collect()
        } else {
            let found = addresses.iter().map(|&address| named_rail(host, address));
            found.collect::<Result<Vec<_>, String>>()?
        };
        Ok(Self { rails, none: explain_none(findings) })
    }

    /// Returns the addresses of all rails.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.rails.iter().map(|rail| rail.identity.address).collect()
    }
}

impl AcceptanceRail {
    /// Returns the name in print, such as `mlx5_0:1`.
    pub fn label(&self) -> String {
        self.identity.metric_label()
    }
}

fn describe_rail(host: &HostDescription, rail: HostRailView<'_>) -> Option<AcceptanceRail> {
    let address = host.addresses_of(rail).first().copied()?;
    let port = u8::try_from(rail.port.number).ok()?;
    let identity = RailIdentity { device: rail.device.name.clone(), port, address };
    Some(AcceptanceRail { identity, wire_gbits: wire_gbits(rail) })
}

fn named_rail(host: &HostDescription, address: IpAddr) -> Result<AcceptanceRail, String> {
    let found = RailIdentity::find_by_address(address)
        .map_err(|error| format!("--rail {address}: {error}"))?;
    let identity = found.ok_or_else(|| format!("--rail {address} belongs to no RDMA device"))?;
    let known = host.all_rails().find(|rail| {
        rail.device.name == identity.device && rail.port.number == u32::from(identity.port)
    });
    Ok(AcceptanceRail { identity, wire_gbits: known.and_then(wire_gbits) })
}

fn wire_gbits(rail: HostRailView<'_>) -> Option<f64> {
    if rail.device.kind == DeviceKind::Software || rail.device.iwarp {
        return None;
    }
    let data = f64::from(rail.port.active_mtu?);
    let around = if rail.is_roce() { ROCE_BYTES } else { INFINIBAND_BYTES };
    Some(data_gbits(rail.port.rate.as_ref()?.gbits, data, around))
}

fn data_gbits(gbits: f64, data: f64, around: f64) -> f64 {
    gbits * data / (data + around)
}

fn explain_none(findings: &[HostFinding]) -> StepReason {
    let found = findings.iter().find(|finding| finding.check == HostCheckKind::Transport);
    let reason = found.map_or("no rail can be used", |finding| finding.seen.as_str());
    let worst = findings
        .iter()
        .find(|finding| finding.severity == FindingSeverity::Fail && finding.remedy.is_some());
    let remedy = worst
        .or(found)
        .and_then(|finding| finding.remedy.clone())
        .unwrap_or_else(|| "nothing, where tcp is meant; else see `verbs3 doctor`".to_owned());
    StepReason::new(format!("no rail: {reason}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_carries_what_the_table_of_the_documents_says() {
        // docs/fabric/measuring.md, "What 400 Gb/s can carry".
        for (data, around, gbits) in [
            (4096.0, INFINIBAND_BYTES, 397.0),
            (4096.0, ROCE_BYTES, 392.0),
            (2048.0, ROCE_BYTES, 385.0),
            (1024.0, INFINIBAND_BYTES, 390.0),
        ] {
            let carried = data_gbits(400.0, data, around);
            assert!((carried - gbits).abs() < 0.7, "{data}, {around}: {carried}");
        }
    }
}
