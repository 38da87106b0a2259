//! Device files: present, and open to this process. In a container they come from a device plugin
//! or an option.

use super::count;
use crate::doctor::finding::{Check, Finding};
use crate::doctor::host::{Access, Host};

const KUBERNETES: &str = "Kubernetes: request the RDMA device plugin's resource in resources.limits, by the name that `kubectl describe node` \
    lists (rdma/hca_shared_devices_a: 1, nvidia.com/…: 1); docker, podman: --device /dev/infiniband";
const REFUSED: &str = "the same device plugin or --device allows it (\"not permitted\"); if its mode forbids it (\"denied\"), rdma-core's udev \
    rules on the node make it 0666, or run as a user that may (securityContext.runAsUser)";
const UDEV: &str = "install rdma-core, whose udev rules make it 0666, or write /etc/udev/rules.d/90-rdma.rules: \
    KERNEL==\"uverbs*|rdma_cm\", SUBSYSTEM==\"infiniband*|misc\", MODE=\"0666\"; then udevadm trigger";

pub(super) fn check(host: &Host) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(evidence) = &host.container {
        found.push(container(host, evidence));
    }
    found.extend(connection_manager(host));
    let open = host.devices.iter().filter(|device| device.access == Access::Open).count();
    for device in &host.devices {
        let file = device
            .uverbs
            .as_ref()
            .map_or("its uverbs file".to_owned(), |file| format!("/dev/infiniband/{file}"));
        let subject = &device.name;
        let why = "a device is opened through its file";
        let (seen, remedy) = match &device.access {
            Access::Open => {
                found.push(Finding::ok(Check::Access, subject, format!("{file} opens")));
                continue;
            }
            // A pod is given some of a node's devices: those that it was not given are not its
            // business.
            Access::Missing if host.container.is_some() && open > 0 => {
                found.push(Finding::ok(
                    Check::Access,
                    subject,
                    format!("{file} is not given to this container"),
                ));
                continue;
            }
            Access::Missing if host.container.is_some() => {
                (format!("{file} is not there"), KUBERNETES)
            }
            Access::Missing => {
                (format!("{file} is not there"), "modprobe ib_uverbs; udevadm trigger")
            }
            Access::Denied(said) if host.container.is_some() => {
                (format!("{file} does not open: {said}"), REFUSED)
            }
            Access::Denied(said) => (format!("{file} does not open: {said}"), UDEV),
        };
        let finding = match open {
            0 => Finding::fail(Check::Access, subject, seen),
            _ => Finding::warn(Check::Access, subject, seen),
        };
        found.push(finding.remedy(why, remedy));
    }
    found
}

fn container(host: &Host, evidence: &str) -> Finding {
    let given = host
        .devices
        .iter()
        .filter(|device| device.uverbs.is_some() && device.access != Access::Missing)
        .count();
    let seen = format!(
        "in a container ({evidence}); {given} of {} given to it",
        count(host.devices.len(), "RDMA device")
    );
    if given > 0 {
        return Finding::ok(Check::Container, "container", seen);
    }
    let why = "sysfs shows the host's devices to every container; without files in /dev/infiniband \
        none can be used";
    Finding::fail(Check::Container, "container", seen).remedy(why, KUBERNETES)
}

fn connection_manager(host: &Host) -> Option<Finding> {
    let file = "/dev/infiniband/rdma_cm";
    let why = "every connection is made through it";
    let in_container = host.container.is_some();
    Some(match &host.connection_manager {
        Access::Open => Finding::ok(Check::Access, "rdma_cm", format!("{file} opens")),
        Access::Missing if in_container => {
            Finding::fail(Check::Access, "rdma_cm", format!("{file} is not there"))
                .remedy(why, KUBERNETES)
        }
        Access::Missing => Finding::fail(Check::Access, "rdma_cm", format!("{file} is not there"))
            .remedy(why, "modprobe rdma_ucm; udevadm trigger"),
        Access::Denied(said) => {
            Finding::fail(Check::Access, "rdma_cm", format!("{file} does not open: {said}"))
                .remedy(why, if in_container { REFUSED } else { UDEV })
        }
    })
}
