//! Owns the check of NUMA: a NIC and the CPUs that feed it should be on one node.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::HostDescription;

pub(super) fn check_numa(host: &HostDescription) -> Vec<HostFinding> {
    let cpus = &host.process.cpus;
    // One node leaves nothing to check.
    if host.nodes.len() < 2 || cpus.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for device in &host.devices {
        let Some((node, near)) =
            device.numa_node.and_then(|node| Some((node, host.nodes.get(&node)?)))
        else {
            continue;
        };
        let seen =
            format!("on NUMA node {node} (CPUs {near}); this process may run on CPUs {cpus}");
        if cpus.shares_cpu_with(near) {
            found.push(HostFinding::new_ok(HostCheckKind::Numa, &device.name, seen));
            continue;
        }
        let why = "every byte would cross between the sockets, and so would every completion";
        let remedy = format!(
            "numactl --cpunodebind={node} --membind={node} verbs3 …; systemd: CPUAffinity={near} \
            and NUMAPolicy=bind, NUMAMask={node}; Kubernetes: topologyManagerPolicy: \
            single-numa-node"
        );
        found.push(
            HostFinding::new_warning(HostCheckKind::Numa, &device.name, seen)
                .with_explanation(why, remedy),
        );
    }
    found
}
