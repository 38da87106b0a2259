//! What must hold between settings, and the range of each. Every problem is collected; nothing is
//! changed.

mod cluster;
mod coordinator;
mod disk;
mod gateway;
mod hot;
mod identity;
mod mount;
mod preload;
mod surroundings;
mod telemetry;
mod ufs;
mod verbs;
mod worker;

use std::fmt::{self, Display};
use std::path::Path;

use crate::environment::Environment;
use crate::problem::Problem;
use crate::process::{Log, Memory, Process};
use crate::quantity::{ByteSize, Period};
use crate::root::Config;

/// What a process is; decides which sections must be complete, and which files must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Gateway,
    Worker,
    Coordinator,
    Dev,
}

impl Display for Role {
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
pub(crate) struct Findings {
    problems: Vec<Problem>,
}

impl Findings {
    fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::error(path, message));
    }

    fn warning(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::warning(path, message));
    }

    fn range<T: PartialOrd + Display + Copy>(
        &mut self,
        path: impl Into<String>,
        value: T,
        min: T,
        max: T,
    ) {
        if !(min..=max).contains(&value) {
            self.error(path, format!("{value} is not between {min} and {max}"));
        }
    }

    fn readable(&mut self, path: impl Into<String>, file: &Path) {
        match std::fs::File::open(file).and_then(|file| file.metadata()) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => self.error(path, format!("{} is not a file", file.display())),
            Err(source) => self.error(path, format!("can't read {}: {source}", file.display())),
        }
    }
}

/// Everything that is wrong with `config` for a process that plays `roles` in `environment`.
/// Without a role: what is wrong whoever reads it.
pub(crate) fn check(config: &Config, roles: &[Role], environment: &Environment) -> Vec<Problem> {
    let mut findings = Findings::default();
    let Config {
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
    cluster::check(cluster, roles, &mut findings);
    cluster::check_list(cluster, mount, roles, &mut findings);
    ufs::check(ufs, roles, &mut findings);
    identity::check(ufs, &mut findings);
    mount::check(mount, ufs, roles, &mut findings);
    let lease = coordinator.lease;
    gateway::check_announcements(&gateway.tier, cluster, lease, roles, &mut findings);
    gateway::check(gateway, cluster, roles, &mut findings);
    worker::check(worker, cluster, roles, &mut findings);
    coordinator::check(coordinator, roles, &mut findings);
    worker::check_tcp(tcp, &mut findings);
    verbs::check(verbs, worker, gateway, &mut findings);
    findings.range("dev.workers", dev.workers, 1, 64);
    findings.range("dev.disk", dev.disk, ByteSize(0), ByteSize(1 << 40));
    let disk_min = ByteSize::mib(16 * u64::from(dev.workers));
    if dev.disk > ByteSize(0) && dev.disk < disk_min {
        findings.error(
            "dev.disk",
            format!(
                "{} is too small for {} workers; give it {disk_min} at least",
                dev.disk, dev.workers
            ),
        );
    }
    if dev.dir.as_os_str().is_empty() {
        findings.error("dev.dir", "is empty; name a folder");
    }
    let Process {
        threads,
        drain_for,
        admin_connections_max,
        admin_per_address_max,
        admin_deadline,
    } = process;
    findings.range("process.threads", *threads, 0, 1024);
    findings.range("process.drain_for", *drain_for, Period::millis(0), Period::seconds(3600));
    findings.range("process.admin_connections_max", *admin_connections_max, 4, 65_536);
    findings.range("process.admin_per_address_max", *admin_per_address_max, 1, 65_536);
    findings.range(
        "process.admin_deadline",
        *admin_deadline,
        Period::seconds(1),
        Period::seconds(300),
    );
    let Log { level, format: _ } = log;
    if level.trim().is_empty() {
        findings.error("log.level", "is empty; write a level, such as \"info\"");
    }
    telemetry::check(telemetry, &mut findings);
    surroundings::check(config, roles, environment, &mut findings);
    findings.problems
}

fn check_memory(path: &str, memory: &Memory, findings: &mut Findings) {
    let Memory { capacity, populate: _ } = memory;
    findings.range(format!("{path}.capacity"), *capacity, ByteSize::mib(16), ByteSize(16 << 40));
}

/// The name of a network device. Whether this host has it shows when it is used: that of another
/// host may be checked here.
fn check_device(path: &str, device: Option<&str>, findings: &mut Findings) {
    // IFNAMSIZ of Linux is 16 with the closing zero; the rest is dev_valid_name of the kernel.
    let fits = |name: &str| {
        !matches!(name, "" | "." | "..")
            && name.len() <= 15
            && !name.contains(|c: char| c == '/' || c == ':' || c.is_ascii_whitespace())
    };
    if let Some(device) = device.filter(|device| !fits(device)) {
        findings.error(
            path,
            format!("{device:?} is not the name of a network device; `ip link` lists them"),
        );
    }
}

#[cfg(test)]
mod tests;
