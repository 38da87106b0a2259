//! Checks of `[coordinator.preload]`.

use super::CheckFindings;
use crate::preload::CoordinatorPreloadSettings;
use crate::quantity::{ByteSize, TimePeriod};

pub(super) fn check_preload(preload: &CoordinatorPreloadSettings, findings: &mut CheckFindings) {
    let CoordinatorPreloadSettings {
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
    findings.check_range(at("jobs_running_max"), *jobs_running_max, 1, 64);
    findings.check_range(at("jobs_max"), *jobs_max, 1, 1000);
    findings.check_range(at("notified_jobs_max"), *notified_jobs_max, 1, 1000);
    findings.check_range(at("blocks_per_ufs_max"), *blocks_per_ufs_max, 1, 65_536);
    findings.check_range(at("objects_max"), *objects_max, 1, 65_536);
    findings.check_range(
        at("patience"),
        *patience,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(86_400),
    );
    findings.check_range(at("memory"), *memory, ByteSize::from_mib(16), ByteSize(64 << 30));
    findings.check_range(
        at("failures_max"),
        *failures_max,
        ByteSize::from_kib(4),
        ByteSize(1 << 40),
    );
    if failures.as_os_str().is_empty() {
        findings.add_error(at("failures"), "is empty; name a folder");
    }
}
