//! Checks of `[coordinator.preload]`.

use super::Findings;
use crate::preload::CoordinatorPreload;
use crate::quantity::{ByteSize, Period};

pub(super) fn check(preload: &CoordinatorPreload, findings: &mut Findings) {
    let CoordinatorPreload {
        jobs_running_max,
        jobs_max,
        notified_jobs_max,
        blocks_per_ufs_max,
        objects_max,
        patience,
        memory,
        failures,
        failures_max,
    } = preload;
    let at = |name: &str| format!("coordinator.preload.{name}");
    findings.range(at("jobs_running_max"), *jobs_running_max, 1, 64);
    findings.range(at("jobs_max"), *jobs_max, 1, 1000);
    findings.range(at("notified_jobs_max"), *notified_jobs_max, 1, 1000);
    findings.range(at("blocks_per_ufs_max"), *blocks_per_ufs_max, 1, 65_536);
    findings.range(at("objects_max"), *objects_max, 1, 65_536);
    findings.range(at("patience"), *patience, Period::seconds(1), Period::seconds(86_400));
    findings.range(at("memory"), *memory, ByteSize::mib(16), ByteSize(64 << 30));
    findings.range(at("failures_max"), *failures_max, ByteSize::kib(4), ByteSize(1 << 40));
    if failures.as_os_str().is_empty() {
        findings.error(at("failures"), "is empty; name a folder");
    }
}
