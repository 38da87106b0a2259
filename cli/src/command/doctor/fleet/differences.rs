//! What hosts that should be alike differ in, and which of them is the odd one out. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::super::remote_report::RemoteReport;
use crate::ssh::{SshHost, printable_text};

/// Value of a property that a host does not have.
const ABSENT: &str = "none";

/// One property that is not the same on all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FleetDifference {
    pub property: String,
    /// What more hosts have than anything else; `None`: two values are as frequent.
    pub usual: Option<SharedValue>,
    /// Every other value, the rarest first.
    pub odd: Vec<SharedValue>,
}

/// A value, and the hosts that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedValue {
    pub value: String,
    pub hosts: Vec<String>,
}

/// Compares hosts. Nothing differs from nothing: one host gives no difference.
pub fn find_differences(answered: &[(&SshHost, &RemoteReport)]) -> Vec<FleetDifference> {
    let hosts: Vec<(&SshHost, BTreeMap<String, String>)> =
        answered.iter().map(|(host, report)| (*host, list_properties(report))).collect();
    let properties: BTreeSet<&String> = hosts.iter().flat_map(|(_, has)| has.keys()).collect();
    let differ = properties.into_iter().filter_map(|property| {
        let mut by_value: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (host, has) in &hosts {
            let value = has.get(property).map_or(ABSENT, String::as_str);
            by_value.entry(value).or_default().push(host.as_str().to_owned());
        }
        (by_value.len() > 1).then(|| weigh_values(property, by_value))
    });
    differ.collect()
}

fn weigh_values(property: &str, by_value: BTreeMap<&str, Vec<String>>) -> FleetDifference {
    let shared =
        |(value, hosts): (&str, Vec<String>)| SharedValue { value: value.to_owned(), hosts };
    let mut odd: Vec<SharedValue> = by_value.into_iter().map(shared).collect();
    odd.sort_by_key(|shared| shared.hosts.len());
    let most = odd.last().map_or(0, |shared| shared.hosts.len());
    let tied = odd.iter().filter(|shared| shared.hosts.len() == most).count() > 1;
    let usual = if tied { None } else { odd.pop() };
    FleetDifference { property: property.to_owned(), usual, odd }
}

/// Returns what is compared, by name.
fn list_properties(report: &RemoteReport) -> BTreeMap<String, String> {
    let mut has = BTreeMap::new();
    let mut add = |property: String, value: String| {
        has.insert(printable_text(&property), printable_text(&value));
    };
    add("verbs3".to_owned(), report.version.clone());
    add("kernel".to_owned(), report.kernel.clone());
    if let Some(bytes) = report.page_bytes {
        add("page size".to_owned(), format!("{bytes} bytes"));
    }
    add("rails up".to_owned(), report.usable_rails.len().to_string());
    for device in &report.devices {
        add(format!("{} firmware", device.name), device.firmware.clone());
        for port in &device.ports {
            let rail = format!("{}/{}", device.name, port.port);
            if let Some(gbits) = port.rate_gbits {
                add(format!("{rail} rate"), format!("{gbits} Gb/s"));
            }
            if let Some(bytes) = port.active_mtu {
                add(format!("{rail} MTU of RDMA"), bytes.to_string());
            }
            if let Some(bytes) = port.netdevs.iter().map(|netdev| netdev.mtu).min() {
                add(format!("{rail} MTU"), bytes.to_string());
            }
        }
    }
    has
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn report(kernel: &str, firmware: &str, mtu: u32) -> RemoteReport {
        let document = serde_json::json!({
            "schema": 1, "version": "1.0.0", "kernel": kernel, "page_bytes": 4096, "exit_status": 0,
            "usable_rails": ["mlx5_0/1"], "findings": [],
            "devices": [{ "name": "mlx5_0", "firmware": firmware, "ports": [{
                "port": 1, "rate_gbits": 400.0, "active_mtu": 4096, "addresses": ["10.0.0.1"],
                "netdevs": [{ "name": "ib0", "mtu": mtu }],
            }] }],
        });
        serde_json::from_value(document).unwrap()
    }

    fn hosts(reports: &[RemoteReport]) -> Vec<FleetDifference> {
        let names: Vec<SshHost> = (1..=reports.len())
            .map(|at| SshHost::parse(&format!("gpu-{at:02}")).unwrap())
            .collect();
        find_differences(&names.iter().zip(reports).collect::<Vec<_>>())
    }

    #[test]
    fn the_odd_one_out_is_named_and_likes_are_silent() {
        let same = report("6.8", "28.43", 9000);
        assert_eq!(hosts(&[same.clone(), same.clone()]), []);
        assert_eq!(hosts(std::slice::from_ref(&same)), []);
        let found = hosts(&[same.clone(), report("6.8", "28.39", 1500), same]);
        let named: Vec<_> = found
            .iter()
            .map(|found| {
                let usual = found.usual.as_ref().unwrap();
                assert_eq!(found.odd.len(), 1);
                let odd = &found.odd[0];
                (
                    found.property.as_str(),
                    usual.hosts.len(),
                    odd.value.as_str(),
                    odd.hosts.join(","),
                )
            })
            .collect();
        assert_eq!(
            named,
            [
                ("mlx5_0 firmware", 2, "28.39", "gpu-02".to_owned()),
                ("mlx5_0/1 MTU", 2, "1500", "gpu-02".to_owned()),
            ]
        );
    }

    #[test]
    fn of_two_hosts_that_differ_neither_is_the_odd_one() {
        let found = hosts(&[report("6.8", "1", 9000), report("6.5", "1", 9000)]);
        assert_eq!((found.len(), &found[0].usual, found[0].odd.len()), (1, &None, 2));
    }

    #[test]
    fn a_host_that_lacks_a_device_is_odd() {
        let mut lacking = report("6.8", "1", 9000);
        lacking.devices.clear();
        let found = hosts(&[report("6.8", "1", 9000), report("6.8", "1", 9000), lacking]);
        assert!(found.iter().all(|found| found.odd[0].value == "none"), "{found:#?}");
        assert_eq!(found.len(), 4, "firmware, rate and both MTUs: {found:#?}");
    }
}
