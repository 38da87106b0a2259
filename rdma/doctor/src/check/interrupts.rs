//! Owns the checks of the CPUs that serve a NIC's completions: those of its interrupts, and
//! `verbs.poll_cpus`.

use super::HostRequirements;
use super::usable_rails::usable_rails;
use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{CpuSet, DeviceDescription, HostDescription};

/// Fewer interrupts can't be spread: a NIC has one for its events beside those of completions.
const SPREAD_MIN: usize = 3;

pub(super) fn check_interrupts(host: &HostDescription) -> Vec<HostFinding> {
    let some = host.devices.iter().filter(|device| !device.pci.interrupt_cpus.is_empty());
    some.map(|device| check_device(host, device)).collect()
}

fn check_device(host: &HostDescription, device: &DeviceDescription) -> HostFinding {
    let (check, subject) = (HostCheckKind::Interrupts, &device.name);
    let interrupts = &device.pci.interrupt_cpus;
    let count = interrupts.len();
    let balance = if host.irqbalance { "; irqbalance runs" } else { "" };
    let near = near_cpus(host, device);
    if count >= SPREAD_MIN
        && let Some(cpu) = single_cpu(interrupts)
        && near.is_none_or(|near| near.single_cpu().is_none())
    {
        let seen = format!("all {count} interrupts are on CPU {cpu}{balance}");
        let why = "one CPU takes the completions of all connections: it is the limit before the \
            NIC is";
        return HostFinding::new_warning(check, subject, seen)
            .with_explanation(why, spread_remedy(host));
    }
    let known = near.filter(|_| host.nodes.len() > 1);
    let Some(near) = known else {
        return HostFinding::new_ok(check, subject, format!("{count} interrupts{balance}"));
    };
    let far = interrupts.iter().filter(|cpus| !cpus.shares_cpu_with(near)).count();
    if far == count {
        let seen = format!("none of {count} interrupts is on its node's CPUs {near}{balance}");
        let why = "every completion is taken on another socket, and its memory crosses between \
            the two";
        return HostFinding::new_warning(check, subject, seen)
            .with_explanation(why, spread_remedy(host));
    }
    let seen = match far {
        0 => format!("{count} interrupts, all on its node's CPUs {near}{balance}"),
        _ => format!("{far} of {count} interrupts are away from its node's CPUs {near}{balance}"),
    };
    let finding = HostFinding::new_ok(check, subject, seen);
    if far > 0 {
        let advice = "connections take interrupts in turn, so some of them are served from afar";
        return finding.with_advice(advice).with_remedy(spread_remedy(host));
    }
    match host.irqbalance {
        true => finding.with_advice("irqbalance may move them to other CPUs again"),
        false => finding,
    }
}

/// Returns the CPU that takes all of them.
fn single_cpu(interrupts: &[CpuSet]) -> Option<u32> {
    let cpu = interrupts.first()?.single_cpu()?;
    interrupts.iter().all(|cpus| cpus.single_cpu() == Some(cpu)).then_some(cpu)
}

fn spread_remedy(host: &HostDescription) -> String {
    let stop = match host.irqbalance {
        true => "systemctl disable --now irqbalance, which moves them again; then ",
        false => "",
    };
    let place = if host.container.is_some() { "on the host, " } else { "" };
    format!(
        "{place}{stop}deploy/host/tune.sh --apply --only irqs, which gives each a CPU of the NIC's \
        node in turn"
    )
}

/// Returns the CPUs of a device's NUMA node.
fn near_cpus<'a>(host: &'a HostDescription, device: &'a DeviceDescription) -> Option<&'a CpuSet> {
    let own = Some(&device.pci.near_cpus).filter(|cpus| !cpus.is_empty());
    own.or_else(|| host.nodes.get(&device.numa_node?))
}

/// Compares `verbs.poll_cpus` with the CPUs of this process, and with those near the NICs.
pub(super) fn check_poll_cpus(
    host: &HostDescription,
    needs: &HostRequirements,
) -> Vec<HostFinding> {
    let (check, subject) = (HostCheckKind::Numa, "verbs.poll_cpus");
    let chosen: CpuSet = needs.verbs.poll_cpus.iter().map(|&cpu| usize::from(cpu)).collect();
    if chosen.is_empty() {
        return Vec::new();
    }
    let allowed = &host.process.cpus;
    let is_outside = |cpu: &usize| !CpuSet::from_iter([*cpu]).shares_cpu_with(allowed);
    let outside: CpuSet =
        needs.verbs.poll_cpus.iter().map(|&cpu| usize::from(cpu)).filter(is_outside).collect();
    if !allowed.is_empty() && !outside.is_empty() {
        let seen = format!("CPUs {outside} of {chosen} are not this process's (CPUs {allowed})");
        let why = "a thread that can't be bound to its CPU runs on any, beside everything else";
        let remedy = "choose CPUs of the process, or give it those: CPUAffinity= in its unit, the \
            pod's CPUs, taskset";
        return vec![HostFinding::new_warning(check, subject, seen).with_explanation(why, remedy)];
    }
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for rail in usable_rails(host) {
        let name = rail.device.name.as_str();
        let Some(cpus) = near_cpus(host, rail.device) else { continue };
        let list = if chosen.shares_cpu_with(cpus) { &mut near } else { &mut far };
        let item = format!("{name} (CPUs {cpus})");
        if !list.contains(&item) {
            list.push(item);
        }
    }
    let why = "a poller on another socket takes every completion across";
    match (near.is_empty(), far.is_empty()) {
        (true, true) => Vec::new(),
        (true, false) => {
            let seen = format!("CPUs {chosen} are near no NIC: {}", far.join(", "));
            let remedy = "choose CPUs of the NICs' nodes, some of each";
            vec![HostFinding::new_warning(check, subject, seen).with_explanation(why, remedy)]
        }
        (false, _) => {
            let seen = format!("CPUs {chosen} are near {}", near.join(", "));
            let mut notes = describe_shared_cpus(host, &chosen);
            if !far.is_empty() {
                notes.insert(0, format!("far from {}: {why}", far.join(", ")));
            }
            vec![HostFinding::new_ok(check, subject, seen).with_advice(notes.join("; "))]
        }
    }
}

/// Says of each NIC how many of its interrupts the pollers' CPUs take. That is good for pollers
/// that sleep, and bad for those that don't.
fn describe_shared_cpus(host: &HostDescription, chosen: &CpuSet) -> Vec<String> {
    let describe = |device: &DeviceDescription| {
        let interrupts = &device.pci.interrupt_cpus;
        let shared = interrupts.iter().filter(|cpus| cpus.shares_cpu_with(chosen)).count();
        (shared > 0).then(|| {
            format!(
                "they take {shared} of {} interrupts of {}: with verbs.busy_poll, choose CPUs \
                without",
                interrupts.len(),
                device.name
            )
        })
    };
    host.devices.iter().filter_map(describe).collect()
}
