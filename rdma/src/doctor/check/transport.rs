//! The summary: which transport gateways and workers of this host can use.

use super::software::libraries_missing;
use super::{Needs, count, memory};
use crate::doctor::finding::{Check, Finding};
use crate::doctor::host::{Access, Host, PortState, Rail};

const GET_RDMA: &str = "load the driver of a NIC that can do RDMA; for a trial without one: \
    modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0";

/// Rails that a connection can be made on: port active, device file open, known to libibverbs,
/// address there.
pub fn usable_rails(host: &Host) -> Vec<Rail<'_>> {
    let usable = |rail: &Rail<'_>| {
        let listed =
            !matches!(&host.listed, Some(Ok(listed)) if !listed.contains(&rail.device.name));
        let open = rail.device.access == Access::Open;
        listed
            && open
            && rail.port.state == PortState::Active
            && !host.addresses_of(*rail).is_empty()
    };
    host.rails().filter(usable).collect()
}

pub(super) fn check(host: &Host, needs: &Needs) -> Finding {
    let subject = "host";
    if host.devices.is_empty() {
        return Finding::ok(
            Check::Transport,
            subject,
            "no RDMA device: tcp is used between hosts, shm within this one",
        )
        .option(GET_RDMA);
    }
    let rails = usable_rails(host);
    let names = rails.iter().map(Rail::name).collect::<Vec<_>>().join(", ");
    let why = "without verbs, bytes pass through the kernel at both ends";
    let remedy = "follow the remedies below, failures first";
    if let Some(blocked) = blocked(host, needs) {
        let seen = format!(
            "{} present, but {blocked}: tcp is used",
            count(host.devices.len(), "RDMA device")
        );
        return Finding::fail(Check::Transport, subject, seen).remedy(why, remedy);
    }
    let all = host.rails().count();
    match rails.len() {
        0 => {
            let seen = format!(
                "{} present, but no port is active, open to this process and with an IP address at \
                once: tcp is used",
                count(host.devices.len(), "RDMA device")
            );
            Finding::fail(Check::Transport, subject, seen).remedy(why, remedy)
        }
        some => Finding::ok(
            Check::Transport,
            subject,
            format!("verbs can be used on {some} of {}: {names}", count(all, "rail")),
        )
        .advice("tcp is the fallback of every peer, shm is used within this host"),
    }
}

/// What keeps every rail from being used.
fn blocked(host: &Host, needs: &Needs) -> Option<String> {
    if !libraries_missing(host).is_empty() {
        return Some(format!("{} is missing", libraries_missing(host).join(" and ")));
    }
    if host.connection_manager != Access::Open {
        return Some("/dev/infiniband/rdma_cm can't be opened".to_owned());
    }
    if let Some(Err(complaint)) = &host.listed {
        return Some(format!("libibverbs says: {complaint}"));
    }
    memory::memlock_too_small(host, needs)
        .then(|| "the arena can't be registered (memlock)".to_owned())
}
