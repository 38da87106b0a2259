//! What must hold between settings, and the range of each. Every problem is collected; nothing is
//! changed.

mod cluster;
mod coordinator;
mod disk;
mod gateway;
mod host_files;
mod hot;
mod mount;
mod preload;
mod store_identity;
mod telemetry;
mod ufs;
mod verbs;
mod worker;

use std::fmt::{self, Display};
use std::path::Path;

use crate::environment::EnvironmentLayer;
use crate::problem::ConfigProblem;
use crate::process::{LogSettings, MemorySettings, ProcessSettings};
use crate::quantity::{ByteSize, TimePeriod};
use crate::root::RootSettings;

/// What a process is; decides which sections must be complete, and which files must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessRole {
    Gateway,
    Worker,
    Coordinator,
    Dev,
}

impl Display for ProcessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gateway => "gateway",
            Self::Worker => "worker",
            Self::Coordinator => "coordinator",
            Self::Dev => "dev",
        })
    }
}

/// Collects what is wrong.
#[derive(Default)]
pub(crate) struct CheckFindings {
    problems: Vec<ConfigProblem>,
}

impl CheckFindings {
    fn add_error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new_error(path, message));
    }

    fn add_warning(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new_warning(path, message));
    }

    fn check_range<T: PartialOrd + Display + Copy>(
        &mut self,
        path: impl Into<String>,
        value: T,
        min: T,
        max: T,
    ) {
        if !(min..=max).contains(&value) {
            self.add_error(path, format!("{value} is not between {min} and {max}"));
        }
    }

    fn check_readable(&mut self, path: impl Into<String>, file: &Path) {
        match std::fs::File::open(file).and_then(|file| file.metadata()) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => self.add_error(path, format!("{} is not a file", file.display())),
            Err(source) => self.add_error(path, format!("can't read {}: {source}", file.display())),
        }
    }
}

/// Everything that is wrong with `config` for a process that plays `roles` in `environment`.
/// Without a role: what is wrong whoever reads it.
pub(crate) fn check_config(
    config: &RootSettings,
    roles: &[ProcessRole],
    environment: &EnvironmentLayer,
) -> Vec<ConfigProblem> {
    let mut findings = CheckFindings::default();
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
        process,
        log,
        telemetry,
    } = config;
    cluster::check_cluster(cluster, roles, &mut findings);
    cluster::check_list(cluster, mount, roles, &mut findings);
    ufs::check_ufs_list(ufs, roles, &mut findings);
    store_identity::check_store_identity(ufs, &mut findings);
    mount::check_mounts(mount, ufs, roles, &mut findings);
    let lease = coordinator.lease;
    gateway::check_announcements(&gateway.tier, cluster, lease, roles, &mut findings);
    gateway::check_gateway(gateway, cluster, roles, &mut findings);
    worker::check_worker(worker, cluster, roles, &mut findings);
    coordinator::check_coordinator(coordinator, roles, &mut findings);
    worker::check_tcp(tcp, &mut findings);
    verbs::check_verbs(verbs, worker, gateway, &mut findings);
    findings.check_range("dev.workers", dev.workers, 1, 64);
    findings.check_range("dev.disk", dev.disk, ByteSize(0), ByteSize(1 << 40));
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
    let ProcessSettings {
        threads,
        drain_for,
        admin_connections_max,
        admin_per_address_max,
        admin_deadline,
    } = process;
    findings.check_range("process.threads", *threads, 0, 1024);
    findings.check_range(
        "process.drain_for",
        *drain_for,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range("process.admin_connections_max", *admin_connections_max, 4, 65_536);
    findings.check_range("process.admin_per_address_max", *admin_per_address_max, 1, 65_536);
    findings.check_range(
        "process.admin_deadline",
        *admin_deadline,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(300),
    );
    let LogSettings { level, format: _ } = log;
    if level.trim().is_empty() {
        findings.add_error("log.level", "is empty; write a level, such as \"info\"");
    }
    telemetry::check_telemetry(telemetry, &mut findings);
    host_files::check_surroundings(config, roles, environment, &mut findings);
    findings.problems
}

fn check_memory(path: &str, memory: &MemorySettings, findings: &mut CheckFindings) {
    let MemorySettings { capacity, populate: _ } = memory;
    findings.check_range(
        format!("{path}.capacity"),
        *capacity,
        ByteSize::from_mib(16),
        ByteSize(16 << 40),
    );
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
