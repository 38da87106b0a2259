//! Owns the summary: which transport gateways and workers of this host can use.

use super::software::libraries_missing;
use super::usable_rails::usable_rails;
use super::{HostRequirements, format_count, memory};
use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{DeviceFileAccess, HostDescription, HostRailView};

const GET_RDMA: &str = "load the driver of a NIC that can do RDMA; for a trial without one: \
    modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0";

/// `datagram`: there are devices besides that make no reliable connections.
pub(super) fn check_transport(
    host: &HostDescription,
    needs: &HostRequirements,
    datagram: bool,
) -> HostFinding {
    let subject = "host";
    if host.devices.is_empty() && datagram {
        return HostFinding::new_ok(
            HostCheckKind::Transport,
            subject,
            "no RDMA device that makes reliable connections: tcp is used between hosts, shm within \
            this one",
        );
    }
    if host.devices.is_empty() {
        return HostFinding::new_ok(
            HostCheckKind::Transport,
            subject,
            "no RDMA device: tcp is used between hosts, shm within this one",
        )
        .with_remedy(GET_RDMA);
    }
    let rails = usable_rails(host);
    let names = rails.iter().map(HostRailView::rail_name).collect::<Vec<_>>().join(", ");
    let why = "without verbs, bytes pass through the kernel at both ends";
    let remedy = "follow the remedies below, failures first";
    if let Some(blocked) = find_blocker(host, needs) {
        let seen = format!(
            "{} present, but {blocked}: tcp is used",
            format_count(host.devices.len(), "RDMA device")
        );
        return HostFinding::new_failure(HostCheckKind::Transport, subject, seen)
            .with_explanation(why, remedy);
    }
    let all = host.all_rails().count();
    match rails.len() {
        0 => {
            let seen = format!(
                "{} present, but no port is active, open to this process and with an IP address at \
                once: tcp is used",
                format_count(host.devices.len(), "RDMA device")
            );
            HostFinding::new_failure(HostCheckKind::Transport, subject, seen)
                .with_explanation(why, remedy)
        }
        some => HostFinding::new_ok(
            HostCheckKind::Transport,
            subject,
            format!("verbs can be used on {some} of {}: {names}", format_count(all, "rail")),
        )
        .with_advice("tcp is the fallback of every peer, shm is used within this host"),
    }
}

/// Says what a configuration without verbs has.
pub(super) fn describe_tcp() -> HostFinding {
    let seen = "verbs.mode is \"off\": tcp is used between hosts, shm within this one";
    HostFinding::new_ok(HostCheckKind::Transport, "host", seen)
}

/// Returns what prevents the use of every rail.
fn find_blocker(host: &HostDescription, needs: &HostRequirements) -> Option<String> {
    if !libraries_missing(host).is_empty() {
        return Some(format!("{} is missing", libraries_missing(host).join(" and ")));
    }
    if host.connection_manager != DeviceFileAccess::Open {
        return Some("/dev/infiniband/rdma_cm can't be opened".to_owned());
    }
    if let Some(Err(complaint)) = &host.listed {
        return Some(format!("libibverbs says: {complaint}"));
    }
    memory::memlock_too_small(host, needs)
        .then(|| "the arena can't be registered (memlock)".to_owned())
}
