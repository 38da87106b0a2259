//! Owns the check of device files: present, and open to this process. In a container they come from
//! a device plugin or an option.

use super::format_count;
use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{DeviceFileAccess, HostDescription};

const KUBERNETES: &str = "Kubernetes: request the RDMA device plugin's resource in \
    resources.limits, by the name that `kubectl describe node` lists (rdma/hca_shared_devices_a: \
    1, nvidia.com/…: 1); docker, podman: --device /dev/infiniband";
const REFUSED: &str = "the same device plugin or --device allows it (\"not permitted\"); if its \
    mode forbids it (\"denied\"), rdma-core's udev rules on the node make it 0666, or run as a \
    user that may (securityContext.runAsUser)";
const UDEV: &str = "install rdma-core, whose udev rules make it 0666, or write \
    /etc/udev/rules.d/90-rdma.rules: KERNEL==\"uverbs*|rdma_cm\", \
    SUBSYSTEM==\"infiniband*|misc\", MODE=\"0666\"; then udevadm trigger";

pub(super) fn check_access(host: &HostDescription) -> Vec<HostFinding> {
    let mut found = Vec::new();
    if let Some(evidence) = &host.container {
        found.push(check_container(host, evidence));
    }
    found.extend(connection_manager(host));
    let open = host.devices.iter().filter(|device| device.access == DeviceFileAccess::Open).count();
    for device in &host.devices {
        let file = device
            .uverbs
            .as_ref()
            .map_or("its uverbs file".to_owned(), |file| format!("/dev/infiniband/{file}"));
        let subject = &device.name;
        let why = "a device is opened through its file";
        let (seen, remedy) = match &device.access {
            DeviceFileAccess::Open => {
                found.push(HostFinding::new_ok(
                    HostCheckKind::Access,
                    subject,
                    format!("{file} opens"),
                ));
                continue;
            }
            // A pod gets some of a node's devices. It is not concerned with the others.
            DeviceFileAccess::Missing if host.container.is_some() && open > 0 => {
                found.push(HostFinding::new_ok(
                    HostCheckKind::Access,
                    subject,
                    format!("{file} is not given to this container"),
                ));
                continue;
            }
            DeviceFileAccess::Missing if host.container.is_some() => {
                (format!("{file} is not there"), KUBERNETES)
            }
            DeviceFileAccess::Missing => {
                (format!("{file} is not there"), "modprobe ib_uverbs; udevadm trigger")
            }
            DeviceFileAccess::Denied(said) if host.container.is_some() => {
                (format!("{file} does not open: {said}"), REFUSED)
            }
            DeviceFileAccess::Denied(said) => (format!("{file} does not open: {said}"), UDEV),
        };
        let finding = match open {
            0 => HostFinding::new_failure(HostCheckKind::Access, subject, seen),
            _ => HostFinding::new_warning(HostCheckKind::Access, subject, seen),
        };
        found.push(finding.with_explanation(why, remedy));
    }
    found
}

fn check_container(host: &HostDescription, evidence: &str) -> HostFinding {
    let given = host
        .devices
        .iter()
        .filter(|device| device.uverbs.is_some() && device.access != DeviceFileAccess::Missing)
        .count();
    let seen = format!(
        "in a container ({evidence}); {given} of {} given to it",
        format_count(host.devices.len(), "RDMA device")
    );
    if given > 0 {
        return HostFinding::new_ok(HostCheckKind::Container, "container", seen);
    }
    let why = "sysfs shows the host's devices to every container; without files in /dev/infiniband \
        none can be used";
    HostFinding::new_failure(HostCheckKind::Container, "container", seen)
        .with_explanation(why, KUBERNETES)
}

fn connection_manager(host: &HostDescription) -> Option<HostFinding> {
    let file = "/dev/infiniband/rdma_cm";
    let why = "every connection is made through it";
    let in_container = host.container.is_some();
    Some(match &host.connection_manager {
        DeviceFileAccess::Open => {
            HostFinding::new_ok(HostCheckKind::Access, "rdma_cm", format!("{file} opens"))
        }
        DeviceFileAccess::Missing if in_container => HostFinding::new_failure(
            HostCheckKind::Access,
            "rdma_cm",
            format!("{file} is not there"),
        )
        .with_explanation(why, KUBERNETES),
        DeviceFileAccess::Missing => HostFinding::new_failure(
            HostCheckKind::Access,
            "rdma_cm",
            format!("{file} is not there"),
        )
        .with_explanation(why, "modprobe rdma_ucm; udevadm trigger"),
        DeviceFileAccess::Denied(said) => HostFinding::new_failure(
            HostCheckKind::Access,
            "rdma_cm",
            format!("{file} does not open: {said}"),
        )
        .with_explanation(why, if in_container { REFUSED } else { UDEV }),
    })
}
