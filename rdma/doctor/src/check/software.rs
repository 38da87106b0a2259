//! Owns the checks of kernel modules and user libraries.

use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{DRIVERS, DeviceKind, HostDescription, LinkLayer, UnusedNic};

const LIBRARIES: &str = "apt-get install libibverbs1 ibverbs-providers librdmacm1, or dnf install \
    libibverbs librdmacm; then start again";
const RELOAD: &str = "a kernel without it has no verbs for user processes";

pub(super) fn check_modules(host: &HostDescription) -> Vec<HostFinding> {
    let mut found = Vec::new();
    if !host.devices.is_empty() {
        let needed = ["ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm"];
        let missing: Vec<_> = needed.into_iter().filter(|name| !host.has_module(name)).collect();
        if missing.is_empty() {
            found.push(HostFinding::new_ok(
                HostCheckKind::Modules,
                "kernel",
                describe_modules(host),
            ));
        } else {
            let seen = format!("not loaded: {}", missing.join(", "));
            let why = format!("{RELOAD}; rdma_ucm is the one that connections are made through");
            let remedy = format!(
                "modprobe -a {}; keep it: write the names to /etc/modules-load.d/rdma.conf",
                missing.join(" ")
            );
            found.push(
                HostFinding::new_failure(HostCheckKind::Modules, "kernel", seen)
                    .with_explanation(why, remedy),
            );
        }
        let infiniband = host.all_rails().any(|rail| rail.port.link_layer == LinkLayer::InfiniBand);
        if infiniband
            && !host.has_module("ib_ipoib")
            && !host.netdevs.iter().any(|netdev| netdev.infiniband)
        {
            let why = "rdma_cm finds InfiniBand ports by the IP addresses of their IPoIB devices";
            let finding = HostFinding::new_warning(
                HostCheckKind::Modules,
                "ib_ipoib",
                "not loaded, and there is an InfiniBand port",
            );
            found.push(finding.with_explanation(
                why,
                "modprobe ib_ipoib; ip address add ADDRESS/PREFIX dev ib0; ip link set ib0 up",
            ));
        }
    }
    found.extend(host.unused.iter().map(|nic| check_unused_nic(host, nic)));
    found
}

fn describe_modules(host: &HostDescription) -> String {
    let names = ["ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "ib_ipoib"].into_iter();
    let drivers = DRIVERS.iter().map(|driver| driver.module);
    let mut loaded: Vec<_> = names.chain(drivers).filter(|name| host.has_module(name)).collect();
    let mut seen = Vec::new();
    loaded.retain(|name| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    format!("loaded: {}", loaded.join(", "))
}

fn check_unused_nic(host: &HostDescription, nic: &UnusedNic) -> HostFinding {
    let driver = nic.driver.as_deref().unwrap_or("no driver");
    let remedy = match nic.module {
        Some(module) if !host.has_module(module) => format!("modprobe {module}"),
        Some(module) => {
            format!(
                "{module} is loaded: look for \"{module}\" in dmesg; RDMA may be off for this \
                function (devlink dev param show)"
            )
        }
        None => "install the NIC vendor's driver, or a kernel with drivers/infiniband \
            (linux-modules-extra)"
            .to_owned(),
    };
    if nic.only_rdma {
        let seen = format!("InfiniBand controller ({driver}) that is no RDMA device");
        let why = "the hardware is here, and nothing can use it";
        return HostFinding::new_warning(HostCheckKind::Modules, &nic.name, seen)
            .with_explanation(why, remedy);
    }
    let seen = format!("driver {driver} can do RDMA, and there is no RDMA device on it");
    HostFinding::new_ok(HostCheckKind::Modules, &nic.name, seen).with_remedy(remedy)
}

/// Returns the missing libraries that verbs can't be used without.
pub(super) fn libraries_missing(host: &HostDescription) -> Vec<&'static str> {
    let libraries = &host.libraries;
    let wanted = [("libibverbs.so.1", &libraries.ibverbs), ("librdmacm.so.1", &libraries.rdmacm)];
    wanted.into_iter().filter(|(_, path)| path.is_none()).map(|(name, _)| name).collect()
}

pub(super) fn check_libraries(host: &HostDescription) -> Vec<HostFinding> {
    let missing = libraries_missing(host);
    if !missing.is_empty() {
        let why =
            "devices are opened through these libraries; the binary loads them when it starts";
        let finding = HostFinding::new_failure(
            HostCheckKind::Libraries,
            missing.join(", "),
            "not found in the folders of the loader",
        );
        return vec![finding.with_explanation(why, LIBRARIES)];
    }
    let paths = [&host.libraries.ibverbs, &host.libraries.rdmacm];
    let paths: Vec<_> =
        paths.into_iter().flatten().map(|path| path.display().to_string()).collect();
    let mut found =
        vec![HostFinding::new_ok(HostCheckKind::Libraries, "user libraries", paths.join(", "))];
    for device in &host.devices {
        let known = DRIVERS.iter().find(|known| Some(known.hardware) == device.driver.as_deref());
        let unlisted = matches!(&host.listed, Some(Ok(listed)) if !listed.contains(&device.name));
        match known {
            Some(known) if !host.libraries.providers.contains(known.provider) => {
                let seen = format!(
                    "no provider library lib{} for its driver {}",
                    known.provider, known.hardware
                );
                let why = "libibverbs finds a device only with the provider of its driver, and its \
                    file in /etc/libibverbs.d";
                found.push(
                    HostFinding::new_warning(HostCheckKind::Libraries, &device.name, seen)
                        .with_explanation(why, LIBRARIES),
                );
            }
            _ if unlisted => {
                let seen = "the kernel has it, libibverbs doesn't list it";
                let why = "only what libibverbs lists can be opened";
                let remedy = "ibv_devices says why: usually a provider older than the kernel's \
                    driver, or no access to its file";
                found.push(
                    HostFinding::new_warning(HostCheckKind::Libraries, &device.name, seen)
                        .with_explanation(why, remedy),
                );
            }
            Some(known) if device.kind == DeviceKind::Software => {
                let seen = format!("provider lib{}: emulated in software", known.provider);
                let advice = "correct, and slower than tcp: for trials only";
                found.push(
                    HostFinding::new_ok(HostCheckKind::Libraries, &device.name, seen)
                        .with_advice(advice),
                );
            }
            Some(known) => {
                let seen =
                    format!("provider lib{} for its driver {}", known.provider, known.hardware);
                found.push(HostFinding::new_ok(HostCheckKind::Libraries, &device.name, seen));
            }
            None => {}
        }
    }
    found
}
