//! What must hold between settings. The range of each is declared beside it. Every problem is
//! collected; nothing is changed.

mod certificates;
mod cluster;
mod controller;
mod coordinator;
mod disk;
mod gateway;
mod host_files;
mod mount;
mod store_identity;
mod telemetry;
mod ufs;
mod verbs;
mod webhook;
mod worker;

use crate::environment::EnvironmentLayer;
use crate::process_role::ProcessRole;
use crate::root::RootSettings;
use verbs3_settings::SettingsTable as _;
use verbs3_settings::{ByteSize, CheckFindings, ConfigProblem};

/// Everything that is wrong with `config` for a process that plays `roles` in `environment`.
/// Without a role: what is wrong whoever reads it.
pub(crate) fn check_config(
    config: &RootSettings,
    roles: &[ProcessRole],
    environment: &EnvironmentLayer,
) -> Vec<ConfigProblem> {
    let mut findings = CheckFindings::default();
    config.check_ranges("", &mut findings);
    let RootSettings {
        cluster,
        ufs,
        mount,
        gateway,
        worker,
        coordinator,
        tcp,
        verbs,
        dev,
        process: _,
        log,
        telemetry,
        webhook,
        controller,
    } = config;
    cluster::check_cluster(cluster, roles, &mut findings);
    cluster::check_list(cluster, mount, roles, &mut findings);
    ufs::check_ufs_list(ufs, roles, &mut findings);
    store_identity::check_store_identity(ufs, &mut findings);
    if roles.contains(&ProcessRole::Gateway) {
        store_identity::check_own_endpoint(ufs, gateway.listen, &mut findings);
    }
    mount::check_mounts(mount, ufs, roles, &mut findings);
    mount::check_copies_are_taken(mount, &worker.populate, roles, &mut findings);
    let lease = coordinator.lease;
    gateway::check_announcements(&gateway.tier, cluster, lease, roles, &mut findings);
    gateway::check_gateway(gateway, cluster, roles, &mut findings);
    worker::check_worker(worker, cluster, roles, &mut findings);
    coordinator::check_coordinator(coordinator, roles, &mut findings);
    check_device("tcp.bind_device", tcp.bind_device.as_deref(), &mut findings);
    verbs::check_verbs(verbs, worker, gateway, &mut findings);
    let disk_min = ByteSize::from_mib(16 * u64::from(dev.workers));
    if dev.disk > ByteSize(0) && dev.disk < disk_min {
        findings.add_error(
            "dev.disk",
            format!(
                "{} is too small for {} workers; give it {disk_min} at least",
                dev.disk, dev.workers
            ),
        );
    }
    if dev.dir.as_os_str().is_empty() {
        findings.add_error("dev.dir", "is empty; name a folder");
    }
    if log.level.trim().is_empty() {
        findings.add_error("log.level", "is empty; write a level, such as \"info\"");
    }
    telemetry::check_telemetry(telemetry, &mut findings);
    webhook::check_webhook(webhook, roles, &mut findings);
    controller::check_controller(controller, roles, &mut findings);
    host_files::check_surroundings(config, roles, environment, &mut findings);
    findings.problems
}

/// The name of a network device. Whether this host has it shows when it is used: that of another
/// host may be checked here.
fn check_device(path: &str, device: Option<&str>, findings: &mut CheckFindings) {
    // IFNAMSIZ of Linux is 16 with the closing zero; the rest is dev_valid_name of the kernel.
    let fits = |name: &str| {
        !matches!(name, "" | "." | "..")
            && name.len() <= 15
            && !name.contains(|c: char| c == '/' || c == ':' || c.is_ascii_whitespace())
    };
    if let Some(device) = device.filter(|device| !fits(device)) {
        findings.add_error(
            path,
            format!("{device:?} is not the name of a network device; `ip link` lists them"),
        );
    }
}

#[cfg(test)]
mod tests;
