//! Owns the check of the cgroup's bounds on RDMA devices (`rdma.max`).

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::HostDescription;

use super::HostRequirements;

/// Times that a process opens a device: librdmacm does, and so does the look at its ports.
const HANDLES_NEEDED: u64 = 2;
/// Objects of one connection: its queue pair, its completion queue, and two rings of messages.
const OBJECTS_PER_CONNECTION: u64 = 4;
/// Objects of a rail: its domain, the shared receive queue and its ring, regions of the arena (one
/// for each 64 GiB), and the first memory windows.
const OBJECTS_BESIDE: u64 = 64;

/// Compares each bound on a device of this host with what `verbs.connections_max` needs.
pub(super) fn check_device_limits(
    host: &HostDescription,
    needs: &HostRequirements,
) -> Vec<HostFinding> {
    let connections = u64::from(needs.verbs.connections_max);
    let objects_needed = OBJECTS_BESIDE + OBJECTS_PER_CONNECTION * connections;
    let mut findings = Vec::new();
    for limit in &host.device_limits {
        if host.devices.iter().all(|device| device.name != limit.device) {
            continue;
        }
        let bounds = [
            ("hca_handle", limit.handles_max, HANDLES_NEEDED),
            ("hca_object", limit.objects_max, objects_needed),
        ];
        for (resource, bound, needed) in bounds {
            let Some(bound) = bound else { continue };
            let seen = format!("{resource} {bound} ({}); {needed} may be needed", limit.file);
            if bound >= needed {
                findings.push(HostFinding::new_ok(HostCheckKind::RdmaLimit, &limit.device, seen));
                continue;
            }
            let why = format!(
                "the cgroup bounds what its processes make on the device: a process opens it \
                {HANDLES_NEEDED} times, each connection takes {OBJECTS_PER_CONNECTION} objects, \
                and verbs.connections_max is {connections}; beyond the bound, \
                connections fail"
            );
            let remedy = format!(
                "as root: echo '{} {resource}=max' > {}; or lower verbs.connections_max",
                limit.device, limit.file
            );
            findings.push(
                HostFinding::new_warning(HostCheckKind::RdmaLimit, &limit.device, seen)
                    .with_explanation(why, remedy),
            );
        }
    }
    findings
}
